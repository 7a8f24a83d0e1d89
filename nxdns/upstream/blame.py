"""The one place where a foreign exception becomes a fault of the peer or a lack of ours.

The phase is known where the exception is caught, and is stated there; it is never guessed from a
name. Only errors of sockets, of the two TLS libraries, of the name check and of the HTTP library
can be a peer's. Anything else is a bug of ours, and a bug never makes an upstream sick.
"""

import errno
import http.client
import logging
import ssl  # for its exceptions; no socket of its is ever opened

import service_identity
import urllib3
from gevent import socket
from OpenSSL import SSL

from nxdns.dns.framing import EmptyFrame
from nxdns.dns.header import Truncated, WalkError
from nxdns.logs.bugs import log_bug_once
from nxdns.platform.tls_client import CertificateRefused
from nxdns.platform.tls_errors import TlsTruncated
from nxdns.upstream.errors import Cause, Fault, FaultKind, LocalKind, LocalResource

_log = logging.getLogger(__name__)

_LOCAL_ERRNOS = {
    errno.EMFILE: LocalKind.PROCESS_FD_QUOTA_EXCEEDED,
    errno.ENFILE: LocalKind.SYSTEM_FD_QUOTA_EXCEEDED,
    errno.ENOMEM: LocalKind.SYSTEM_RESOURCES,
    errno.ENOBUFS: LocalKind.SYSTEM_RESOURCES,
}

_ERRNO_CAUSES = {
    errno.ECONNREFUSED: Cause.CONNECTION_REFUSED,
    errno.ECONNRESET: Cause.CONNECTION_RESET_BY_PEER,
    errno.ETIMEDOUT: Cause.CONNECTION_TIMED_OUT,
    errno.EHOSTUNREACH: Cause.HOST_UNREACHABLE,
    errno.ENETUNREACH: Cause.NETWORK_UNREACHABLE,
    errno.EPIPE: Cause.BROKEN_PIPE,
}

# X509_V_ERR_… numbers, as openssl/x509_vfy.h gives them.
_CERTIFICATE_CAUSES = {
    2: Cause.CERTIFICATE_UNTRUSTED,  # UNABLE_TO_GET_ISSUER_CERT
    9: Cause.CERTIFICATE_NOT_YET_VALID,
    10: Cause.CERTIFICATE_EXPIRED,
    18: Cause.CERTIFICATE_UNTRUSTED,  # DEPTH_ZERO_SELF_SIGNED_CERT
    19: Cause.CERTIFICATE_UNTRUSTED,  # SELF_SIGNED_CERT_IN_CHAIN
    20: Cause.CERTIFICATE_UNTRUSTED,  # UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    21: Cause.CERTIFICATE_UNTRUSTED,  # UNABLE_TO_VERIFY_LEAF_SIGNATURE
    62: Cause.CERTIFICATE_NAME_MISMATCH,  # HOSTNAME_MISMATCH
    64: Cause.CERTIFICATE_NAME_MISMATCH,  # IP_ADDRESS_MISMATCH
}

_X509_OUT_OF_MEMORY = 17

_X509_NAMES = {
    code: name.removeprefix("ERR_")
    for name, code in vars(SSL.X509VerificationCodes).items()
    if name.startswith("ERR_")
} | {
    # What OpenSSL's security level refuses; pyOpenSSL does not name them.
    66: "EE_KEY_TOO_SMALL",
    67: "CA_KEY_TOO_SMALL",
    68: "CA_MD_TOO_WEAK",
}

_PARSE_CAUSES: dict[type[BaseException], Cause] = {
    Truncated: Cause.TRUNCATED,
    WalkError: Cause.MALFORMED,
    EmptyFrame: Cause.EMPTY_MESSAGE,
}


def blame(kind: FaultKind, exc: Exception) -> Fault:
    """The fault that ``exc``, raised in the phase ``kind``, is of the peer.

    Raises LocalResource, from ``exc``, when it is none.
    """
    root = _root_of(exc)
    local = map_local(root)
    if local is not None:
        raise LocalResource(local) from exc
    if kind is FaultKind.TLS_FAILED and isinstance(root, ssl.SSLZeroReturnError):
        # Python has OpenSSL pass over a missing close_notify, and then, as the moment has it, a
        # hang-up in the handshake looks like a clean close. There is none before its end.
        return Fault(kind, Cause.TLS_CONNECTION_TRUNCATED)
    return Fault(kind, _cause_of(root))


def map_local(exc: BaseException) -> LocalKind | None:
    """What this process ran out of, or None when ``exc`` can be a peer's doing.

    A bug of ours is ``Unexpected``, and is logged with its traceback the first time it occurs.
    """
    out_of_memory = isinstance(exc, CertificateRefused) and exc.code == _X509_OUT_OF_MEMORY
    if out_of_memory or isinstance(exc, MemoryError) or "malloc failure" in _tls_reason(exc):
        return LocalKind.OUT_OF_MEMORY
    if isinstance(exc, socket.gaierror):
        return LocalKind.OUT_OF_MEMORY if exc.errno == socket.EAI_MEMORY else None
    if isinstance(exc, ssl.SSLError):
        return None
    if isinstance(exc, OSError):
        return _LOCAL_ERRNOS.get(exc.errno or 0)
    if isinstance(exc, _PEER_ERRORS):
        return None
    log_bug_once(_log, exc)
    return LocalKind.UNEXPECTED


_PEER_ERRORS = (
    SSL.Error,
    CertificateRefused,
    TlsTruncated,
    service_identity.VerificationError,
    service_identity.CertificateError,
    WalkError,
    EmptyFrame,
    http.client.HTTPException,
    urllib3.exceptions.HTTPError,
)


def _root_of(exc: BaseException) -> BaseException:
    """What urllib3 has wrapped: the reason of its own errors is their last argument."""
    while isinstance(exc, urllib3.exceptions.HTTPError):
        inner = next((arg for arg in reversed(exc.args) if isinstance(arg, BaseException)), None)
        if inner is None:
            return exc
        exc = inner
    return exc


def _cause_of(exc: BaseException) -> str:
    if isinstance(exc, CertificateRefused):
        return _certificate_cause(exc.code)
    if isinstance(exc, ssl.SSLCertVerificationError):
        return _certificate_cause(exc.verify_code)
    if isinstance(exc, service_identity.VerificationError | service_identity.CertificateError):
        return Cause.CERTIFICATE_NAME_MISMATCH
    if isinstance(exc, SSL.ZeroReturnError | ssl.SSLZeroReturnError):
        return Cause.END_OF_STREAM
    if isinstance(exc, TlsTruncated | ssl.SSLEOFError):
        return Cause.TLS_CONNECTION_TRUNCATED
    if isinstance(exc, SSL.Error | ssl.SSLError):
        return _tls_cause(_tls_reason(exc))
    # Before OSError: http.client makes it a ConnectionResetError, without an errno.
    if isinstance(exc, http.client.RemoteDisconnected):
        return Cause.HTTP_CONNECTION_CLOSING
    if isinstance(exc, socket.gaierror):
        return Cause.NAME_NOT_RESOLVED
    if isinstance(exc, OSError):
        return _errno_cause(exc)
    return _PARSE_CAUSES.get(type(exc), Cause.HTTP_PROTOCOL)


def _certificate_cause(code: int) -> str:
    known = _CERTIFICATE_CAUSES.get(code)
    if known is not None:
        return known
    name = _X509_NAMES.get(code, "UNKNOWN")
    return "Certificate" + "".join(word.capitalize() for word in name.split("_"))


def _errno_cause(exc: OSError) -> str:
    if isinstance(exc, TimeoutError):  # a gevent socket's own timeout has no errno
        return Cause.CONNECTION_TIMED_OUT
    known = _ERRNO_CAUSES.get(exc.errno or 0)
    return known or "Errno" + errno.errorcode.get(exc.errno or 0, str(exc.errno or "Unknown"))


def _tls_cause(reason: str) -> str:
    if "unexpected eof" in reason:
        return Cause.TLS_CONNECTION_TRUNCATED
    if "alert" in reason and "protocol version" not in reason:
        return Cause.TLS_ALERT
    return Cause.TLS_PROTOCOL


def refuses_http1(exc: Exception) -> bool:
    """Whether the peer ended the handshake because ``http/1.1`` is not among what it speaks."""
    return "no application protocol" in _tls_reason(_root_of(exc))


def _tls_reason(exc: BaseException) -> str:
    """The reason string of either TLS library in one form: lower case, words, "" for none."""
    if isinstance(exc, ssl.SSLError):
        # The message too: Python's table of reasons is older than the OpenSSL below it.
        return f"{getattr(exc, 'reason', '')} {exc}".lower().replace("_", " ")
    if isinstance(exc, SSL.Error) and exc.args and isinstance(exc.args[0], list):
        return " ".join(str(entry[-1]) for entry in exc.args[0]).lower()
    return ""
