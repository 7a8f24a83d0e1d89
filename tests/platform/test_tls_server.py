"""The server side of DNS over TLS: the loopback upstream that the demo and the tests ask."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import gevent
import pytest
from gevent import socket
from OpenSSL import SSL

from nxdns.dns.framing import Unframer, frame
from nxdns.platform.sockets import dial
from nxdns.platform.tls_client import open_session
from nxdns.platform.tls_errors import TlsTruncated
from nxdns.platform.tls_server import LoopbackUpstream, accept_session, server_context
from nxdns.platform.tls_stream import TlsStream
from tests.support.authority import NAME, Authority, Issued
from tests.support.leaks import open_descriptors
from tests.support.messages import big_response, make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@contextmanager
def upstream(certificate: Issued, latency_seconds: float = 0.0) -> Iterator[LoopbackUpstream]:
    server = LoopbackUpstream(server_context(certificate.pem, certificate.pem), latency_seconds)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        gevent.idle()


class Client:
    """One session with the upstream, by hand."""

    def __init__(self, authority: Authority, port: int) -> None:
        self.stream: TlsStream = open_session(
            dial("127.0.0.1", port), authority.dot_context(), NAME
        )
        self._unframer = Unframer()

    def read(self) -> dns.message.Message:
        while (message := self._unframer.next_message()) is None:
            self._unframer.feed(self.stream.recv())
        return dns.message.from_wire(message)

    def close(self) -> None:
        self.stream.close()


# The context and the handshake.


def test_a_context_refuses_a_key_that_is_not_the_certificates(
    authority: Authority, certificate: Issued
) -> None:
    with pytest.raises(SSL.Error):
        server_context(certificate.pem, authority.issue("other.test").pem)


def test_a_context_refuses_a_file_that_is_not_there(certificate: Issued, tmp_path: Any) -> None:
    with pytest.raises(SSL.Error):
        server_context(str(tmp_path / "none.pem"), certificate.pem)


@contextmanager
def tcp_pair() -> Iterator[tuple[Any, Any]]:
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            yield client, accepted


def test_a_client_that_speaks_no_tls_is_refused_and_its_socket_closed(
    certificate: Issued,
) -> None:
    context = server_context(certificate.pem, certificate.pem)
    with tcp_pair() as (client, accepted):
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(SSL.Error):
            accept_session(accepted, context)
        assert accepted.fileno() == -1


def test_a_client_that_leaves_during_the_handshake_is_a_truncation(certificate: Issued) -> None:
    context = server_context(certificate.pem, certificate.pem)
    with tcp_pair() as (client, accepted):
        client.shutdown(socket.SHUT_WR)
        with pytest.raises(TlsTruncated):
            accept_session(accepted, context)
        assert accepted.fileno() == -1


def test_a_client_of_tls_1_1_is_refused_with_an_alert(
    authority: Authority, certificate: Issued
) -> None:
    old = SSL.Context(SSL.TLS_CLIENT_METHOD)
    old.load_verify_locations(authority.ca_file)
    old.set_verify(SSL.VERIFY_PEER)
    old.set_min_proto_version(SSL.TLS1_VERSION)
    old.set_max_proto_version(SSL.TLS1_1_VERSION)
    old.set_cipher_list(b"ALL:@SECLEVEL=0")
    connection = SSL.Connection(old, None)
    connection.set_connect_state()
    context = server_context(certificate.pem, certificate.pem)
    with tcp_pair() as (client, accepted):
        accepting = gevent.spawn(_refusal, accepted, context)
        with pytest.raises(SSL.Error, match="alert protocol version"):
            TlsStream(client, connection).handshake()
        assert isinstance(accepting.get(), SSL.Error)


def _refusal(sock: Any, context: SSL.Context) -> SSL.Error | None:
    try:
        accept_session(sock, context)
    except SSL.Error as error:
        return error
    return None


# The upstream.


@pytest.mark.parametrize(
    ("rtype", "addresses"),
    [
        pytest.param("A", ["192.0.2.1"], id="A"),
        pytest.param("AAAA", ["2001:db8::1"], id="AAAA"),
        pytest.param("MX", [], id="no-data"),
    ],
)
def test_any_name_has_an_address_of_the_documentation(
    authority: Authority, certificate: Issued, rtype: str, addresses: list[str]
) -> None:
    query = make_query("any.name.example", rtype)
    with upstream(certificate) as server, closing(Client(authority, server.port)) as client:
        client.stream.send(frame(query))
        reply = client.read()
        assert dns.message.from_wire(query).is_response(reply)
        assert reply.rcode() == dns.rcode.NOERROR
        assert reply.flags & dns.flags.RA
        assert [str(rdata) for rrset in reply.answer for rdata in rrset] == addresses


def test_a_query_does_not_wait_for_the_answer_to_the_one_before(
    authority: Authority, certificate: Issued
) -> None:
    queries = b"".join(frame(make_query()) for _ in range(10))
    # Nothing is answered within this test, and still all ten are taken in.
    with upstream(certificate, 60.0) as server, closing(Client(authority, server.port)) as client:
        client.stream.send(queries)
        eventually(lambda: server.queries == 10)


def test_every_query_of_a_burst_is_answered(authority: Authority, certificate: Issued) -> None:
    queries = [make_query(id_=number) for number in range(1, 31)]
    with upstream(certificate, 0.01) as server, closing(Client(authority, server.port)) as client:
        client.stream.send(b"".join(map(frame, queries)))
        assert sorted(client.read().id for _ in queries) == list(range(1, 31))
        assert (server.handshakes, server.queries) == (1, 30)


def test_queries_and_handshakes_are_counted_over_sessions(
    authority: Authority, certificate: Issued
) -> None:
    with upstream(certificate) as server:
        for _ in range(3):
            with closing(Client(authority, server.port)) as client:
                for _ in range(2):
                    client.stream.send(frame(make_query()))
                    client.read()
        assert (server.handshakes, server.queries) == (3, 6)


def test_a_large_query_is_read_whole(authority: Authority, certificate: Issued) -> None:
    query = bytearray(big_response(make_query(id_=7), 40000))
    query[2] &= 0x7F  # QR
    with upstream(certificate) as server, closing(Client(authority, server.port)) as client:
        client.stream.connection.sendall(frame(bytes(query)))
        client.stream.send(frame(make_query(id_=8)))
        assert {client.read().id, client.read().id} == {7, 8}


@pytest.mark.parametrize(
    "plaintext",
    [
        pytest.param(b"\0\0", id="an-empty-message"),
        pytest.param(frame(b"no DNS"), id="no-dns"),
        pytest.param(frame(make_query()[:-1]), id="a-query-cut-short"),
    ],
)
def test_a_client_that_sends_no_dns_is_shown_the_door_and_the_next_one_served(
    authority: Authority, certificate: Issued, plaintext: bytes
) -> None:
    with upstream(certificate) as server:
        with closing(Client(authority, server.port)) as client:
            client.stream.send(plaintext)
            with pytest.raises((SSL.Error, EOFError, OSError)):
                client.read()
        with closing(Client(authority, server.port)) as client:
            client.stream.send(frame(make_query(id_=9)))
            assert client.read().id == 9


def test_clients_that_leave_at_any_point_leave_nothing_behind(
    authority: Authority, certificate: Issued
) -> None:
    with upstream(certificate, 0.01) as server:
        before = open_descriptors()
        dial("127.0.0.1", server.port).close()
        with dial("127.0.0.1", server.port) as sock:
            sock.sendall(b"no hello of TLS")
            assert sock.recv(1024) == b""
        with closing(Client(authority, server.port)) as client:
            client.stream.send(frame(make_query())[:5])
        with closing(Client(authority, server.port)) as client:
            client.stream.send(frame(make_query()))  # gone before the answer
        eventually(lambda: open_descriptors() <= before)
        assert (server.handshakes, server.queries) == (2, 1)
