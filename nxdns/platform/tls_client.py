"""The client side of DNS over TLS (RFC 7858): trust, and proof of the name.

OpenSSL verifies the chain, during the handshake. It is never asked about the name, so
service-identity checks that, after the handshake and before the first byte of a query.
"""

from typing import Any

import service_identity.pyopenssl as identity
from OpenSSL import SSL
from service_identity import CertificateError

from nxdns.platform.address import is_literal
from nxdns.platform.tls_stream import TlsStream

ALPN_DOT = b"dot"  # RFC 7858 in IANA's ALPN registry; offered, its absence tolerated


class CertificateRefused(Exception):
    """OpenSSL did not accept the certificate chain."""

    def __init__(self, code: int) -> None:
        super().__init__(f"X509 verification code {code}")
        #: The X509_V_ERR_… number.
        self.code = code


class _Verdict:
    """The first verification error of one handshake; 0 while there is none."""

    __slots__ = ("code",)

    def __init__(self) -> None:
        self.code = 0


def client_context(ca_file: str | None) -> SSL.Context:
    """Trust anchors and rules, to be shared by all connections of a generation.

    TLS 1.2 or newer, the system's anchors plus those of ``ca_file``. It loads the whole bundle
    (6 to 8 ms), so build it once. Raises SSL.Error when ``ca_file`` holds no certificate.
    """
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_verify(SSL.VERIFY_PEER, _note_verdict)
    context.set_default_verify_paths()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protos([ALPN_DOT])
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET)
    # Sessions idle most of their life: without their buffers each costs 39 KiB and not 60.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def _note_verdict(
    connection: SSL.Connection, _certificate: Any, code: int, _depth: int, accepted: int
) -> bool:
    """Remember why OpenSSL refuses. Its verdict is returned as it is: True would overrule it."""
    verdict = connection.get_app_data()
    if not accepted and verdict.code == 0:
        verdict.code = code
    return bool(accepted)


def open_session(sock: Any, context: SSL.Context, name: str) -> TlsStream:
    """Take over the connected ``sock``, complete the handshake, and verify chain and ``name``.

    Raises CertificateRefused, service-identity's VerificationError or CertificateError,
    TlsTruncated, SSL.Error, OSError; whatever ends it, a kill included, ``sock`` is closed.
    """
    try:
        connection = SSL.Connection(context, None)
        verdict = _Verdict()
        connection.set_app_data(verdict)
        if not is_literal(name):  # RFC 6066 §3: no literals in SNI
            connection.set_tlsext_host_name(name.removesuffix(".").encode("ascii"))
        connection.set_connect_state()
        stream = TlsStream(sock, connection)
    except BaseException:
        sock.close()
        raise
    try:
        stream.handshake()
        _verify_name(connection, name)
    except SSL.Error as error:
        stream.close()
        if verdict.code:
            raise CertificateRefused(verdict.code) from error
        raise
    except BaseException:
        stream.close()
        raise
    return stream


def _verify_name(connection: SSL.Connection, name: str) -> None:
    """RFC 9525: subjectAltName only, iPAddress for a literal; the common name never counts."""
    try:
        if is_literal(name):
            identity.verify_ip_address(connection, name)
        else:
            identity.verify_hostname(connection, name.removesuffix("."))
    except ValueError as exc:
        # What cryptography makes of a subjectAltName that it cannot decode: it proves no name.
        raise CertificateError(str(exc)) from exc
