"""Closing a DoT leaf is safe at any time, and never waits."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from greenlet import GreenletExit
from OpenSSL import SSL

from nxdns.dns.framing import frame
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.transport import SessionStats
from tests.support.authority import Authority, Issued
from tests.support.dot_leaves import dot_leaf
from tests.support.exchanging import exchanged
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def outcome_of(leaf: DotClient) -> object:
    try:
        return exchanged(leaf, QUERY)
    except BaseException as error:  # noqa: BLE001 - it is what the test asks for
        return error


def close_in_the_hub(leaf: DotClient) -> None:
    """Close where whoever tries to wait gets an error: in a callback of the event loop."""
    ends: list[BaseException | None] = []

    def close() -> None:
        try:
            leaf.close()
        except BaseException as error:  # noqa: BLE001 - reported below
            ends.append(error)
        else:
            ends.append(None)

    gevent.get_hub().loop.run_callback(close)
    eventually(lambda: ends)
    assert ends == [None]


def test_a_leaf_that_was_never_used_can_be_closed_twice(authority: Authority) -> None:
    leaf = dot_leaf(authority, 853)
    leaf.close()
    leaf.close()


def test_a_closed_leaf_says_goodbye_and_dials_again_when_it_is_asked(
    authority: Authority, certificate: Issued
) -> None:
    goodbyes: list[BaseException] = []

    def script(session: Session) -> None:
        try:
            answer_all(answer)(session)
        except (SSL.Error, EOFError) as end:
            goodbyes.append(end)

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == ANSWER
        leaf.close()
        leaf.close()
        eventually(lambda: goodbyes)
        assert isinstance(goodbyes[0], SSL.ZeroReturnError)  # close_notify, not a bare FIN
        assert exchanged(leaf, QUERY) == ANSWER
        assert (peer.accepts, stats.recoveries, leaf.last.reused) == (2, 0, False)


def test_closing_an_idle_session_never_waits(authority: Authority, certificate: Issued) -> None:
    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == ANSWER
        close_in_the_hub(leaf)
        close_in_the_hub(leaf)


@pytest.mark.parametrize(
    "reused", [pytest.param(False, id="fresh"), pytest.param(True, id="reused")]
)
@pytest.mark.parametrize(
    "first_bytes",
    [
        pytest.param(b"", id="before-the-first-byte"),
        pytest.param(frame(ANSWER)[:-1], id="in-the-middle-of-the-response"),
    ],
)
def test_an_exchange_under_which_the_leaf_is_closed_is_cancelled(
    authority: Authority, certificate: Issued, first_bytes: bytes, reused: bool
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
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        if reused:
            assert exchanged(leaf, QUERY) == ANSWER
        exchange = gevent.spawn(outcome_of, leaf)
        reached.wait()
        close_in_the_hub(leaf)
        # Nobody's fault: the peer did nothing wrong, and its health must not suffer.
        assert isinstance(exchange.get(), GreenletExit)
        ended.wait()
        assert exchanged(leaf, QUERY) == ANSWER
        assert (peer.accepts, stats.recoveries) == (2, 0)


def test_a_close_is_no_fault_when_the_server_has_hung_up_in_the_same_moment(
    authority: Authority, certificate: Issued
) -> None:
    asked = Event()

    def script(session: Session) -> None:
        session.send_message(answer(session.read_query()))
        session.read_query()
        asked.set()
        hang_up.wait()

    hang_up = Event()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == ANSWER
        exchange = gevent.spawn(outcome_of, leaf)
        asked.wait()
        hang_up.set()
        leaf.close()
        assert isinstance(exchange.get(), GreenletExit)
        assert peer.accepts == 1  # a leaf that was closed does not redial


@contextmanager
def gated_server(
    context: SSL.Context, gate: Event, entered: Event, script: Callable[[Session], None]
) -> Iterator[int]:
    """A port whose handshakes wait for ``gate``, having read the client's hello."""

    def handle(sock: Any, _client: Any) -> None:
        connection = SSL.Connection(context, None)
        connection.set_accept_state()
        connection.bio_write(sock.recv(18432))
        entered.set()
        gate.wait()
        session = Session(sock, connection, 1)
        with suppress(SSL.Error, EOFError, OSError):
            session.handshake()
            script(session)

    server = StreamServer(("127.0.0.1", 0), handle, spawn=Pool())
    server.start()
    try:
        yield server.server_port
    finally:
        server.stop(timeout=0)


def test_a_leaf_closed_during_its_handshake_sends_no_query(
    authority: Authority, certificate: Issued
) -> None:
    gate, entered = Event(), Event()
    heard: list[bytes] = []

    def script(session: Session) -> None:
        query = session.read_query()
        heard.append(query)
        session.send_message(answer(query))
        session.wait_for_end()

    with (
        no_descriptor_left(),
        gated_server(certificate.openssl_context(), gate, entered, script) as port,
        closing(dot_leaf(authority, port)) as leaf,
    ):
        exchange = gevent.spawn(outcome_of, leaf)
        entered.wait()
        close_in_the_hub(leaf)
        gate.set()
        assert isinstance(exchange.get(), GreenletExit)
        gevent.idle()
        assert heard == []
        assert exchanged(leaf, QUERY) == ANSWER
        assert heard == [QUERY]


def test_a_leaf_closed_during_a_handshake_that_then_fails_is_cancelled(
    authority: Authority, certificate: Issued
) -> None:
    gate, entered = Event(), Event()
    context = authority.issue("other.test").openssl_context()
    with (
        gated_server(context, gate, entered, Session.wait_for_end) as port,
        closing(dot_leaf(authority, port)) as leaf,
    ):
        exchange = gevent.spawn(outcome_of, leaf)
        entered.wait()
        leaf.close()
        gate.set()
        assert isinstance(exchange.get(), GreenletExit)
