"""A kill or an expired timer ends a DoT exchange wherever it waits, and the session with it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import gevent
import pytest
from gevent import Timeout, socket
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from greenlet import GreenletExit
from OpenSSL import SSL

from nxdns.dns.framing import frame
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.transport import Fault, SessionStats
from tests.support.authority import Authority, Issued
from tests.support.dot_leaves import dot_leaf
from tests.support.exchanging import exchanged
from tests.support.leaks import no_descriptor_left
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")
LARGE_QUERY = bytearray(big_response(QUERY, 65535))
LARGE_QUERY[2] &= 0x7F  # QR

#: What ends an exchange from outside: made anew for each test, and known again by its identity.
Interruption = Callable[[], BaseException]
INTERRUPTIONS = [pytest.param(GreenletExit, id="kill"), pytest.param(Timeout, id="timeout")]


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


class Exchange:
    """An exchange in a greenlet of its own, and whatever comes out of it."""

    def __init__(self, leaf: DotClient, query: bytes = QUERY) -> None:
        self._greenlet = gevent.spawn(self._run, leaf, query)
        self._outcome: bytes | Fault | BaseException | None = None

    def _run(self, leaf: DotClient, query: bytes) -> None:
        try:
            self._outcome = exchanged(leaf, query)
        except BaseException as error:  # noqa: BLE001 - it is what the test asks for
            self._outcome = error

    def interrupt(self, error: BaseException) -> None:
        assert not self._greenlet.dead, self._outcome
        self._greenlet.kill(error)

    def outcome(self) -> bytes | Fault | BaseException | None:
        self._greenlet.join()
        return self._outcome


class HandshakeServer:
    """Answers over TLS, but lets the handshakes of the connections in ``stalled`` come to nothing.

    Those get ``share`` of the server's first flight. An answered session is closed behind its
    second query when ``one_answer`` says so.
    """

    def __init__(
        self, context: SSL.Context, *stalled: int, share: float = 0.0, one_answer: bool = False
    ) -> None:
        self.reached, self.ended = Event(), Event()
        self.accepts = 0
        self._context = context
        self._stalled = stalled
        self._share = share
        self._one_answer = one_answer

    @contextmanager
    def serving(self, listener: Any = ("127.0.0.1", 0)) -> Iterator[int]:
        server = StreamServer(listener, self._handle, spawn=Pool())
        server.start()
        try:
            yield server.server_port
        finally:
            server.stop(timeout=0)

    def _handle(self, sock: Any, _client: Any) -> None:
        self.accepts += 1
        connection = SSL.Connection(self._context, None)
        connection.set_accept_state()
        if self.accepts in self._stalled:
            self._stall(sock, connection)
            return
        session = Session(sock, connection, self.accepts)
        with suppress(SSL.Error, EOFError, OSError):
            session.handshake()
            session.send_message(answer(session.read_query()))
            while not self._one_answer:
                session.send_message(answer(session.read_query()))
            session.read_query()

    def _stall(self, sock: Any, connection: SSL.Connection) -> None:
        connection.bio_write(sock.recv(18432))
        with pytest.raises(SSL.WantReadError):
            connection.do_handshake()
        flight = connection.bio_read(18432)
        sock.sendall(flight[: int(len(flight) * self._share)])
        gevent.idle()  # the client has read it
        self.reached.set()
        while sock.recv(1024):
            pass
        self.ended.set()


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_exchange_can_be_ended_while_it_connects(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    server = HandshakeServer(certificate.openssl_context())
    # A backlog that is full: the kernel drops the next SYN, and the connect waits.
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        with closing(dot_leaf(authority, listener.getsockname()[1])) as leaf:
            with no_descriptor_left():
                exchange = Exchange(leaf)
                gevent.idle()
                error = interruption()
                exchange.interrupt(error)
                assert exchange.outcome() is error
                assert leaf.last.dial_ns == 0
            with server.serving(listener):
                eventually(lambda: server.accepts)  # the backlog has room again
                assert exchanged(leaf, QUERY) == ANSWER


@pytest.mark.parametrize(
    "share", [pytest.param(0.0, id="silent-server"), pytest.param(0.5, id="half-a-flight")]
)
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_exchange_can_be_ended_during_its_handshake(
    authority: Authority, certificate: Issued, interruption: Interruption, share: float
) -> None:
    server = HandshakeServer(certificate.openssl_context(), 1, share=share)
    with server.serving() as port, closing(dot_leaf(authority, port)) as leaf:
        exchange = Exchange(leaf)
        server.reached.wait()
        error = interruption()
        exchange.interrupt(error)
        assert exchange.outcome() is error
        server.ended.wait()
        assert exchanged(leaf, QUERY) == ANSWER
        assert (server.accepts, leaf.last.reused) == (2, False)


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_exchange_can_be_ended_during_the_handshake_of_its_redial(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    server = HandshakeServer(certificate.openssl_context(), 2, one_answer=True)
    stats = SessionStats()
    with server.serving() as port, closing(dot_leaf(authority, port, stats)) as leaf:
        assert exchanged(leaf, QUERY) == ANSWER
        exchange = Exchange(leaf)
        server.reached.wait()
        error = interruption()
        exchange.interrupt(error)
        assert exchange.outcome() is error
        server.ended.wait()
        assert exchanged(leaf, QUERY) == ANSWER
        assert (server.accepts, stats.recoveries) == (3, 0)


@pytest.fixture
def narrow_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with the smallest send buffer there is: the default one takes any query whole."""
    real = socket.socket.connect

    def connect(self: Any, address: Any) -> Any:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.mark.usefixtures("narrow_sockets")
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_exchange_can_be_ended_while_it_sends_into_a_full_window(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    stuck, ended, heard = Event(), Event(), bytearray()

    def handle(sock: Any, _client: Any) -> None:
        connection = SSL.Connection(certificate.openssl_context(), None)
        connection.set_accept_state()
        session = Session(sock, connection, 1)
        session.handshake()
        if not stuck.is_set():
            stuck.set()
            with suppress(SSL.Error, EOFError, OSError):
                while True:
                    heard.extend(session.recv())
            ended.set()
        else:
            session.send_message(answer(session.read_query()))
            session.wait_for_end()

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        server = StreamServer(listener, handle, spawn=Pool())
        server.start()
        with closing(dot_leaf(authority, server.server_port)) as leaf:
            exchange = Exchange(leaf, bytes(LARGE_QUERY))
            stuck.wait()
            error = interruption()
            exchange.interrupt(error)
            assert exchange.outcome() is error
            assert (leaf.last.tls_ns > 0, leaf.last.send_ns) == (True, 0)
            ended.wait()
            assert len(heard) < len(LARGE_QUERY)
            assert exchanged(leaf, QUERY) == ANSWER
        server.stop(timeout=0)


@pytest.mark.parametrize(
    "reused", [pytest.param(False, id="fresh"), pytest.param(True, id="reused")]
)
@pytest.mark.parametrize(
    "first_bytes",
    [
        pytest.param(b"", id="before-the-first-byte"),
        pytest.param(frame(ANSWER)[:1], id="within-the-prefix"),
        pytest.param(frame(ANSWER)[:2], id="behind-the-prefix"),
        pytest.param(frame(ANSWER)[:-1], id="before-the-last-byte"),
    ],
)
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_exchange_can_be_ended_while_it_receives(
    authority: Authority,
    certificate: Issued,
    interruption: Interruption,
    first_bytes: bytes,
    reused: bool,
) -> None:
    reached, ended = Event(), Event()

    def script(session: Session) -> None:
        if reused or session.number > 1:
            session.send_message(answer(session.read_query()))
        if session.number > 1:
            return
        session.read_query()
        if first_bytes:
            session.send(first_bytes)
        gevent.idle()  # the client has read it
        reached.set()
        session.wait_for_end()
        ended.set()

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        if reused:
            assert exchanged(leaf, QUERY) == ANSWER
        exchange = Exchange(leaf)
        reached.wait()
        error = interruption()
        exchange.interrupt(error)
        assert exchange.outcome() is error
        assert (leaf.last.first_byte_ns > 0) is bool(first_bytes)
        ended.wait()
        # What is left of that response must not be taken for a part of the next.
        assert exchanged(leaf, QUERY) == ANSWER
        assert (peer.accepts, stats.recoveries) == (2, 0)


def test_a_timer_that_expires_in_its_own_time_comes_through_as_itself(
    authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), Session.wait_for_end) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        with Timeout(0.05) as timer, pytest.raises(Timeout) as expired:
            exchanged(leaf, QUERY)
        assert expired.value is timer
