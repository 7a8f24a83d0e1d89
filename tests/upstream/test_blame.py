"""Blame: a foreign exception becomes the peer's fault, with its concrete cause."""

import errno
import http.client
import logging
import ssl
from collections.abc import Callable

import pytest
import service_identity
from gevent import socket
from OpenSSL import SSL
from urllib3 import exceptions as urllib3

from nxdns.dns.framing import EmptyFrame
from nxdns.dns.header import Truncated, WalkError
from nxdns.platform.tls_client import CertificateRefused
from nxdns.platform.tls_errors import TlsTruncated
from nxdns.upstream.blame import blame, map_local, refuses_http1
from nxdns.upstream.errors import Fault, FaultKind


def os_error(code: int) -> OSError:
    return OSError(code, "as the kernel says it")


def openssl_error(*reasons: str) -> SSL.Error:
    """As pyOpenSSL raises it: one triple for each entry of OpenSSL's queue."""
    return SSL.Error([("SSL routines", "", reason) for reason in reasons])


def ssl_error(reason: str, made: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    """As the standard library raises it."""
    error = made(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def refused_by_ssl(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.reason = "CERTIFICATE_VERIFY_FAILED"
    error.verify_code = code
    return error


def cause_of(exc: Exception) -> str:
    fault = blame(FaultKind.RECEIVE_FAILED, exc)
    assert fault.kind is FaultKind.RECEIVE_FAILED
    return str(fault.cause)


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
def test_the_call_site_states_the_phase(kind: FaultKind) -> None:
    assert blame(kind, os_error(errno.EPIPE)) == Fault(kind, "BrokenPipe")


@pytest.mark.parametrize(
    ("exc", "cause"),
    [
        pytest.param(os_error(errno.ECONNREFUSED), "ConnectionRefused", id="ECONNREFUSED"),
        pytest.param(os_error(errno.ECONNRESET), "ConnectionResetByPeer", id="ECONNRESET"),
        pytest.param(os_error(errno.ETIMEDOUT), "ConnectionTimedOut", id="ETIMEDOUT"),
        pytest.param(os_error(errno.EHOSTUNREACH), "HostUnreachable", id="EHOSTUNREACH"),
        pytest.param(os_error(errno.ENETUNREACH), "NetworkUnreachable", id="ENETUNREACH"),
        pytest.param(os_error(errno.EPIPE), "BrokenPipe", id="EPIPE"),
        pytest.param(os_error(errno.EPERM), "ErrnoEPERM", id="EPERM"),
        pytest.param(os_error(errno.ECONNABORTED), "ErrnoECONNABORTED", id="ECONNABORTED"),
        pytest.param(os_error(9999), "Errno9999", id="an errno without a name"),
        pytest.param(TimeoutError("timed out"), "ConnectionTimedOut", id="TimeoutError, no errno"),
        pytest.param(
            socket.gaierror(socket.EAI_NONAME, "not known"), "NameNotResolved", id="no such name"
        ),
        pytest.param(
            socket.gaierror(socket.EAI_AGAIN, "temporary"), "NameNotResolved", id="no name server"
        ),
    ],
)
def test_an_error_of_a_socket_names_its_errno(exc: Exception, cause: str) -> None:
    assert cause_of(exc) == cause


CERTIFICATE_CAUSES = [
    pytest.param(2, "CertificateUntrusted", id="2 unable to get issuer cert"),
    pytest.param(9, "CertificateNotYetValid", id="9 not yet valid"),
    pytest.param(10, "CertificateExpired", id="10 has expired"),
    pytest.param(18, "CertificateUntrusted", id="18 self-signed"),
    pytest.param(19, "CertificateUntrusted", id="19 self-signed in chain"),
    pytest.param(20, "CertificateUntrusted", id="20 unable to get issuer cert locally"),
    pytest.param(21, "CertificateUntrusted", id="21 unable to verify leaf signature"),
    pytest.param(62, "CertificateNameMismatch", id="62 hostname mismatch"),
    pytest.param(64, "CertificateNameMismatch", id="64 IP address mismatch"),
    pytest.param(7, "CertificateCertSignatureFailure", id="7 signature failure"),
    pytest.param(22, "CertificateCertChainTooLong", id="22 chain too long"),
    pytest.param(23, "CertificateCertRevoked", id="23 revoked"),
    pytest.param(26, "CertificateInvalidPurpose", id="26 invalid purpose"),
    pytest.param(47, "CertificatePermittedViolation", id="47 name constraint"),
    pytest.param(66, "CertificateEeKeyTooSmall", id="66 key of the leaf too small"),
    pytest.param(67, "CertificateCaKeyTooSmall", id="67 key of the authority too small"),
    pytest.param(68, "CertificateCaMdTooWeak", id="68 signed with a weak digest"),
]


@pytest.mark.parametrize(("code", "cause"), CERTIFICATE_CAUSES)
@pytest.mark.parametrize(
    "refused_by",
    [
        pytest.param(CertificateRefused, id="pyOpenSSL"),
        pytest.param(refused_by_ssl, id="ssl"),
        pytest.param(lambda code: urllib3.SSLError(refused_by_ssl(code)), id="urllib3"),
    ],
)
def test_a_refused_certificate_says_why_by_its_x509_code(
    refused_by: Callable[[int], Exception], code: int, cause: str
) -> None:
    assert cause_of(refused_by(code)) == cause


@pytest.mark.parametrize(
    "exc",
    [
        pytest.param(service_identity.VerificationError(errors=[]), id="another name"),
        pytest.param(service_identity.CertificateError("no subjectAltName"), id="no name at all"),
    ],
)
def test_what_service_identity_refuses_is_a_name_mismatch(exc: Exception) -> None:
    assert cause_of(exc) == "CertificateNameMismatch"


@pytest.mark.parametrize(
    ("exc", "cause"),
    [
        pytest.param(SSL.ZeroReturnError(), "EndOfStream", id="close_notify"),
        pytest.param(TlsTruncated(), "TlsConnectionTruncated", id="FIN without close_notify"),
        pytest.param(
            openssl_error("unexpected eof while reading"), "TlsConnectionTruncated", id="FIN"
        ),
        pytest.param(
            openssl_error("sslv3 alert handshake failure"), "TlsAlert", id="alert: handshake"
        ),
        pytest.param(openssl_error("tlsv1 alert unknown ca"), "TlsAlert", id="alert: unknown CA"),
        pytest.param(
            openssl_error("tlsv1 alert no application protocol"), "TlsAlert", id="alert: ALPN"
        ),
        pytest.param(
            openssl_error("tlsv1 alert protocol version"), "TlsProtocol", id="alert: version"
        ),
        pytest.param(openssl_error("wrong version number"), "TlsProtocol", id="not TLS"),
        pytest.param(openssl_error("unsupported protocol"), "TlsProtocol", id="no common version"),
        pytest.param(
            openssl_error("decryption failed or bad record mac"), "TlsProtocol", id="bad record"
        ),
        pytest.param(
            openssl_error("bad record type", "sslv3 alert bad record mac"),
            "TlsAlert",
            id="an alert behind another entry",
        ),
        pytest.param(openssl_error(), "TlsProtocol", id="an empty queue"),
        pytest.param(SSL.Error(), "TlsProtocol", id="no queue"),
        pytest.param(
            ssl_error("UNEXPECTED_EOF_WHILE_READING", ssl.SSLEOFError),
            "TlsConnectionTruncated",
            id="ssl: FIN",
        ),
        pytest.param(
            ssl_error("ZERO_RETURN", ssl.SSLZeroReturnError), "EndOfStream", id="ssl: close_notify"
        ),
        pytest.param(ssl_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), "TlsAlert", id="ssl: alert"),
        pytest.param(
            ssl_error("TLSV1_ALERT_PROTOCOL_VERSION"), "TlsProtocol", id="ssl: alert: version"
        ),
        pytest.param(ssl_error("WRONG_VERSION_NUMBER"), "TlsProtocol", id="ssl: not TLS"),
        pytest.param(ssl_error("UNSUPPORTED_PROTOCOL"), "TlsProtocol", id="ssl: no common version"),
    ],
)
def test_an_error_of_a_tls_library_names_how_the_session_ended(exc: Exception, cause: str) -> None:
    assert cause_of(exc) == cause


def test_a_handshake_knows_no_clean_close() -> None:
    fault = blame(FaultKind.TLS_FAILED, ssl_error("ZERO_RETURN", ssl.SSLZeroReturnError))
    assert fault == Fault(FaultKind.TLS_FAILED, "TlsConnectionTruncated")


def test_an_ssl_error_that_python_code_raised_without_a_reason_is_still_the_peers() -> None:
    # gevent.ssl does, and so does the standard library's ssl.py.
    exc = ssl.SSLError("The handshake operation timed out")
    assert map_local(exc) is None
    assert blame(FaultKind.TLS_FAILED, exc).kind is FaultKind.TLS_FAILED


DISCONNECTED = http.client.RemoteDisconnected("closed without response")


@pytest.mark.parametrize(
    ("exc", "cause"),
    [
        pytest.param(DISCONNECTED, "HttpConnectionClosing", id="bare disconnect"),
        pytest.param(
            urllib3.ProtocolError("Connection aborted.", DISCONNECTED),
            "HttpConnectionClosing",
            id="disconnect",
        ),
        pytest.param(
            urllib3.ProtocolError("Connection aborted.", os_error(errno.ECONNRESET)),
            "ConnectionResetByPeer",
            id="reset",
        ),
        pytest.param(
            urllib3.ProtocolError("Connection aborted.", http.client.BadStatusLine("SSH-2.0")),
            "HttpProtocol",
            id="bad status line",
        ),
        pytest.param(
            urllib3.ProtocolError("Connection broken.", urllib3.IncompleteRead(3, 50)),
            "HttpProtocol",
            id="incomplete body",
        ),
        pytest.param(http.client.LineTooLong("header line"), "HttpProtocol", id="long header"),
        pytest.param(urllib3.InvalidHeader("two lengths"), "HttpProtocol", id="bad header"),
        pytest.param(
            urllib3.SSLError(ssl_error("TLSV1_ALERT_INTERNAL_ERROR")), "TlsAlert", id="TLS alert"
        ),
        pytest.param(
            urllib3.ProtocolError(
                "outer", urllib3.ProtocolError("inner", os_error(errno.EHOSTUNREACH))
            ),
            "HostUnreachable",
            id="wrapped twice",
        ),
    ],
)
def test_an_error_of_the_http_library_names_what_it_wraps(exc: Exception, cause: str) -> None:
    assert cause_of(exc) == cause


@pytest.mark.parametrize(
    ("exc", "cause"),
    [
        pytest.param(Truncated("ran off"), "Truncated", id="truncated"),
        pytest.param(WalkError("bad pointer"), "Malformed", id="malformed"),
        pytest.param(EmptyFrame(), "EmptyMessage", id="empty frame"),
    ],
)
def test_what_we_cannot_parse_is_the_doing_of_whoever_sent_it(exc: Exception, cause: str) -> None:
    assert map_local(exc) is None
    assert blame(FaultKind.BAD_RESPONSE, exc) == Fault(FaultKind.BAD_RESPONSE, cause)


def test_the_fault_of_a_peer_is_not_logged_as_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    for exc in (os_error(errno.EPIPE), openssl_error("x"), DISCONNECTED, SSL.ZeroReturnError()):
        blame(FaultKind.SEND_FAILED, exc)
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


@pytest.mark.parametrize(
    ("exc", "refuses"),
    [
        pytest.param(openssl_error("tlsv1 alert no application protocol"), True, id="pyOpenSSL"),
        pytest.param(ssl_error("TLSV1_ALERT_NO_APPLICATION_PROTOCOL"), True, id="ssl"),
        pytest.param(
            urllib3.SSLError(ssl_error("TLSV1_ALERT_NO_APPLICATION_PROTOCOL")), True, id="urllib3"
        ),
        pytest.param(ssl_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), False, id="another alert"),
        pytest.param(os_error(errno.ECONNRESET), False, id="reset"),
    ],
)
def test_a_server_without_http_1_is_told_by_its_alert(exc: Exception, refuses: bool) -> None:
    assert refuses_http1(exc) is refuses
