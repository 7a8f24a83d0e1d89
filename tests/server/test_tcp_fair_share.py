"""A listener whose places are all taken: who gives way to whom."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from gevent import socket

from nxdns.dns.framing import frame
from nxdns.server.tcp_connection import Connection
from nxdns.server.tcp_places import Places
from nxdns.server.tcp_server import TcpServer
from tests.support.fake_clients import LOOPBACK, TcpAsker, answer, serving, settle
from tests.support.leaks import no_descriptor_left
from tests.support.tcp_handlers import EchoHandler, SteeredHandler, numbered
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

HOG, SECOND, NEWCOMER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
QUERY = bytes(12)


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No greenlet has died with a traceback."""
    yield
    assert capfd.readouterr().err == ""


class Clients:
    """Connections to one server, each accepted before the next is made."""

    def __init__(self, server: TcpServer, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack

    def connect(self, host: str, count: int = 1) -> list[TcpAsker]:
        return [self._connect(host) for _ in range(count)]

    def _connect(self, host: str) -> TcpAsker:
        stats, bound = self._server.stats, self._server.bound
        before = stats.accepted + stats.rejected_at_capacity
        sock = socket.create_connection((bound.host, bound.port), source_address=(host, 0))
        asker = self._stack.enter_context(TcpAsker(sock))
        eventually(lambda: stats.accepted + stats.rejected_at_capacity == before + 1)
        settle()
        return asker


@contextmanager
def clients_of(server: TcpServer) -> Iterator[Clients]:
    with serving(server), ExitStack() as stack:
        yield Clients(server, stack)


def verdict(server: TcpServer) -> tuple[int, int]:
    """Connections closed for others, and newcomers turned away."""
    return server.stats.evicted, server.stats.rejected_at_capacity


def test_64_idle_connections_of_one_address_keep_nobody_out() -> None:
    server = TcpServer(LOOPBACK, EchoHandler())
    with no_descriptor_left(), clients_of(server) as clients:
        hogs = clients.connect(HOG, 64)
        assert hogs[0].ask(QUERY) == answer(QUERY)
        settle()
        [newcomer] = clients.connect(NEWCOMER)
        assert newcomer.ask(QUERY) == answer(QUERY)
        hogs[1].wait_for_clean_close()
        eventually(lambda: server.stats.active == 64)
        assert hogs[0].ask(QUERY) == answer(QUERY), "it had asked something since"
        assert verdict(server) == (1, 0)
        stats = server.stats
        assert (stats.connection_errors, stats.idle_timeouts, stats.accepted) == (0, 0, 65)


def test_newcomers_get_in_until_they_hold_as_much() -> None:
    server = TcpServer(LOOPBACK, EchoHandler(), max_connections=6)
    with clients_of(server) as clients:
        clients.connect(HOG, 6)
        newcomers = clients.connect(NEWCOMER, 4)
        assert [each.ask(QUERY) for each in newcomers[:3]] == [answer(QUERY)] * 3
        newcomers[3].wait_for_clean_close()
        [late] = clients.connect(HOG)
        late.wait_for_clean_close()
        assert verdict(server) == (3, 2)
        assert server.stats.active == 6


def test_an_idle_connection_gives_way_even_where_each_address_has_one() -> None:
    server = TcpServer(LOOPBACK, EchoHandler(), max_connections=2)
    with clients_of(server) as clients:
        [first], [second] = clients.connect(HOG), clients.connect(SECOND)
        [newcomer] = clients.connect(NEWCOMER)
        first.wait_for_clean_close()
        assert second.ask(QUERY) == newcomer.ask(QUERY) == answer(QUERY)
        assert verdict(server) == (1, 0)


def test_a_connection_with_a_query_in_flight_never_gives_way() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler, max_connections=3)
    with clients_of(server) as clients:
        queries = numbered(3)
        hogs = clients.connect(HOG, 3)
        for hog, query in zip(hogs, queries, strict=True):
            hog.send(query)
        eventually(lambda: len(handler.held) == 3)
        [turned_away] = clients.connect(NEWCOMER)
        turned_away.wait_for_clean_close()
        assert verdict(server) == (0, 1)

        handler.answer(queries[1])
        assert hogs[1].reply() == answer(queries[1])
        settle()
        clients.connect(NEWCOMER)
        hogs[1].wait_for_clean_close()
        assert verdict(server) == (1, 1)
        handler.answer_all()
        assert [hogs[0].reply(), hogs[2].reply()] == [answer(queries[0]), answer(queries[2])]


def test_where_who_holds_most_waits_for_answers_the_next_gives_way() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler, max_connections=5)
    with clients_of(server) as clients:
        for hog, query in zip(clients.connect(HOG, 3), numbered(3), strict=True):
            hog.send(query)
        eventually(lambda: len(handler.held) == 3)
        idle = clients.connect(SECOND, 2)
        clients.connect(NEWCOMER)
        idle[0].wait_for_clean_close()
        assert verdict(server) == (1, 0)
        assert len(handler.held) == 3


def test_who_has_begun_a_message_gives_way_last_but_does() -> None:
    server = TcpServer(LOOPBACK, EchoHandler(), max_connections=3)
    with clients_of(server) as clients:
        hogs = clients.connect(HOG, 3)
        for hog in (hogs[0], hogs[1]):
            hog.sock.sendall(frame(QUERY)[:1])
        settle()
        newcomers = clients.connect(NEWCOMER)
        hogs[2].wait_for_clean_close()
        newcomers += clients.connect(SECOND)
        assert hogs[0].wait_for_close() == b""
        hogs[1].sock.sendall(frame(QUERY)[1:])
        assert hogs[1].reply() == answer(QUERY)
        assert [each.ask(QUERY) for each in newcomers] == [answer(QUERY)] * 2
        assert verdict(server) == (2, 0)
        assert server.stats.connection_errors == 0


def test_the_place_of_who_gave_way_is_taken_once() -> None:
    server = TcpServer(LOOPBACK, EchoHandler(), max_connections=4)
    bound = server.bound
    with serving(server), ExitStack() as stack:

        def connect(host: str) -> TcpAsker:
            source = (host, 0)
            sock = socket.create_connection((bound.host, bound.port), source_address=source)
            return stack.enter_context(TcpAsker(sock))

        hogs = [connect(HOG) for _ in range(4)]
        eventually(lambda: server.stats.accepted == 4)
        # All at once, so that no connection that gives way has ended before the next comes.
        server.stop_accepting()
        newcomers = [connect(f"127.0.0.{number}") for number in range(10, 14)]
        server.start_accepting()
        assert [each.ask(QUERY) for each in newcomers] == [answer(QUERY)] * 4
        for hog in hogs:
            hog.wait_for_clean_close()
        assert verdict(server) == (4, 0)
        assert server.stats.active == 4


@contextmanager
def held(places: Places, address: str) -> Iterator[tuple[Connection, socket.socket]]:
    """A connection that has its place, and the client's end of it."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours, address, 10.0)
    places.take(connection)
    with theirs:
        yield connection, theirs
    connection.close()


def test_who_has_sent_what_is_not_read_yet_does_not_give_way() -> None:
    places = Places(2)
    with held(places, HOG) as (asking, client), held(places, HOG) as (idle, _):
        client.send(b"\0")
        assert places.to_give_way(NEWCOMER) is idle
        assert places.leave(idle)
        assert not places.leave(idle)
        assert places.to_give_way(NEWCOMER) is None
        assert list(places) == [asking]
        assert (places.taken, places.full) == (1, False)


def test_who_has_hung_up_gives_way() -> None:
    places = Places(1)
    with held(places, HOG) as (connection, client):
        client.close()
        assert places.to_give_way(NEWCOMER) is connection
