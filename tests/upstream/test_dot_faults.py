"""What a DoT leaf says of servers that cannot be reached, do not speak TLS, or answer nonsense."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gevent
import pytest
from gevent import socket
from gevent.pool import Pool
from gevent.server import StreamServer
from OpenSSL import SSL

from nxdns.dns.framing import frame
from nxdns.platform.tls_server import accept_session
from nxdns.upstream.transport import (
    Cause,
    Endpoint,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    SessionStats,
)
from tests.support.authority import NAME, Authority, Issued
from tests.support.dot_leaves import dot_client, dot_leaf
from tests.support.exchanging import exchanged
from tests.support.lacks import no_descriptor_free
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


@contextmanager
def raw_server(handle: Callable[[Any], None]) -> Iterator[int]:
    """A port on loopback, where ``handle`` has each accepted TCP connection."""
    server = StreamServer(("127.0.0.1", 0), lambda sock, _: handle(sock), spawn=Pool())
    server.start()
    try:
        yield server.server_port
    finally:
        server.stop()


# Connect.


def test_a_port_where_nobody_listens_is_refused(authority: Authority) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with closing(dot_leaf(authority, bound.getsockname()[1])) as leaf, no_descriptor_left():
            for _ in range(2):
                assert exchanged(leaf, QUERY) == Fault(
                    FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED
                )
            assert not leaf.last.reused
            assert leaf.last.tls_version == ""


def test_a_host_that_is_no_literal_is_never_looked_up(
    authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer:
        endpoint = Endpoint.parse(f"tls://localhost:{peer.port}")
        leaf = dot_client(endpoint, NAME, authority.dot_context())
        threads = gevent.get_hub().threadpool.size
        with closing(leaf):
            outcome = exchanged(leaf, QUERY)
        gevent.idle()
        assert outcome == Fault(FaultKind.CONNECT_FAILED, Cause.NAME_NOT_RESOLVED)
        assert peer.accepts == 0
        assert gevent.get_hub().threadpool.size == threads


def test_a_scope_that_names_no_interface_has_the_errno_of_that(authority: Authority) -> None:
    endpoint = Endpoint.parse("tls://[fe80::1%nowhere0]:853")
    with closing(dot_client(endpoint, NAME, authority.dot_context())) as leaf:
        assert exchanged(leaf, QUERY) == Fault(FaultKind.CONNECT_FAILED, "ErrnoENODEV")


def test_a_dot_leaf_refuses_an_endpoint_that_is_doh(authority: Authority) -> None:
    endpoint = Endpoint.parse("https://127.0.0.1/secret-token")
    with pytest.raises(ValueError, match="https://127") as refused:
        dot_client(endpoint, NAME, authority.dot_context())
    assert "secret-token" not in str(refused.value)


# What this process lacks.


def test_a_dial_without_a_free_descriptor_is_nobodys_fault(
    authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        gevent.idle()  # the peer waits in its accept
        with no_descriptor_free(), pytest.raises(LocalResource) as lack:
            exchanged(leaf, QUERY)
        assert lack.value.kind is LocalKind.PROCESS_FD_QUOTA_EXCEEDED
        assert exchanged(leaf, QUERY) == ANSWER
        assert peer.accepts == 1


def test_a_redial_without_a_free_descriptor_is_nobodys_fault(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        session.send_message(answer(session.read_query()))
        if session.number == 1:
            session.read_query()

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        exchanged(leaf, QUERY)
        with no_descriptor_free(), pytest.raises(LocalResource) as lack:
            exchanged(leaf, QUERY)
        assert lack.value.kind is LocalKind.PROCESS_FD_QUOTA_EXCEEDED
        assert stats.recoveries == 0


@pytest.mark.parametrize(
    "query", [pytest.param(b"", id="empty"), pytest.param(bytes(65536), id="65536-bytes")]
)
def test_a_query_that_cannot_be_framed_dials_nobody(
    authority: Authority, certificate: Issued, query: bytes
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        with pytest.raises(LocalResource) as lack:
            exchanged(leaf, query)
        gevent.idle()
        assert lack.value.kind is LocalKind.BUFFER_TOO_SMALL
        assert peer.accepts == 0


# Handshakes that fail.


def tls11_only(certificate: Issued) -> SSL.Context:
    context = certificate.openssl_context()
    context.set_min_proto_version(SSL.TLS1_VERSION)
    context.set_max_proto_version(SSL.TLS1_1_VERSION)
    context.set_cipher_list(b"ALL:@SECLEVEL=0")
    return context


def no_common_cipher(certificate: Issued) -> SSL.Context:
    """For a key that is not RSA."""
    context = certificate.openssl_context()
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(b"ECDHE-RSA-AES128-GCM-SHA256")
    return context


@pytest.mark.parametrize(
    ("context_of", "cause"),
    [
        pytest.param(tls11_only, Cause.TLS_PROTOCOL, id="tls-1.1-only"),
        pytest.param(no_common_cipher, Cause.TLS_ALERT, id="no-common-cipher"),
    ],
)
def test_a_server_that_ends_the_handshake_with_an_alert_says_why(
    authority: Authority,
    certificate: Issued,
    context_of: Callable[[Issued], SSL.Context],
    cause: Cause,
) -> None:
    def refuse(sock: Any) -> None:
        with pytest.raises(SSL.Error):
            accept_session(sock, context_of(certificate))

    with raw_server(refuse) as port, closing(dot_leaf(authority, port)) as leaf:
        assert exchanged(leaf, QUERY) == Fault(FaultKind.TLS_FAILED, cause)
        assert leaf.last.tls_version == ""


def _end(sock: Any) -> None:
    sock.close()


def _reset(sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


#: A ServerHello: version 1.1, a random, no session, a cipher that a client of TLS 1.2 offers.
_SERVER_HELLO = b"\x03\x02" + bytes(32) + b"\0" + b"\xc0\x13" + b"\0"
TLS11_SERVER_HELLO = (
    b"\x16\x03\x02" + frame(b"\x02\0" + frame(_SERVER_HELLO))  # two-byte lengths, as DNS has them
)


def _says(data: bytes) -> Callable[[Any], None]:
    def say(sock: Any) -> None:
        sock.sendall(data)
        sock.recv(1024)  # so that the close is a FIN behind the data and the client's alert

    return say


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        pytest.param(_end, Cause.TLS_CONNECTION_TRUNCATED, id="fin"),
        pytest.param(_reset, Cause.CONNECTION_RESET_BY_PEER, id="reset"),
        pytest.param(_says(b"220 mail.example ESMTP\r\n"), Cause.TLS_PROTOCOL, id="not-tls"),
        pytest.param(_says(TLS11_SERVER_HELLO), Cause.TLS_PROTOCOL, id="server-hello-of-tls-1.1"),
        pytest.param(
            _says(b"\x15\x03\x01\0\x02\x02\x46"), Cause.TLS_PROTOCOL, id="alert-protocol-version"
        ),
        pytest.param(
            _says(b"\x15\x03\x03\0\x02\x02\x28"), Cause.TLS_ALERT, id="alert-handshake-failure"
        ),
        pytest.param(
            _says(b"\x15\x03\x03\0\x02\x02\x50"), Cause.TLS_ALERT, id="alert-internal-error"
        ),
    ],
)
def test_a_handshake_that_the_server_breaks_has_the_cause_that_was_seen(
    authority: Authority, ending: Callable[[Any], None], cause: Cause
) -> None:
    hellos: list[bytes] = []

    def serve(sock: Any) -> None:
        hellos.append(sock.recv(18432))
        ending(sock)

    stats = SessionStats()
    with (
        raw_server(serve) as port,
        closing(dot_leaf(authority, port, stats)) as leaf,
        no_descriptor_left(),
    ):
        assert exchanged(leaf, QUERY) == Fault(FaultKind.TLS_FAILED, cause)
        assert exchanged(leaf, QUERY) == Fault(FaultKind.TLS_FAILED, cause)
    assert len(hellos) == 2  # one dial for each exchange: a fresh one is never tried again
    assert stats.recoveries == 0


def test_a_server_that_ends_in_the_middle_of_its_own_handshake_is_truncated(
    authority: Authority, certificate: Issued
) -> None:
    def serve(sock: Any) -> None:
        connection = SSL.Connection(certificate.openssl_context(), None)
        connection.set_accept_state()
        connection.bio_write(sock.recv(18432))
        with pytest.raises(SSL.WantReadError):
            connection.do_handshake()
        flight = connection.bio_read(18432)
        sock.sendall(flight[: len(flight) // 2])

    with raw_server(serve) as port, closing(dot_leaf(authority, port)) as leaf:
        outcome = exchanged(leaf, QUERY)
    assert outcome == Fault(FaultKind.TLS_FAILED, Cause.TLS_CONNECTION_TRUNCATED)
