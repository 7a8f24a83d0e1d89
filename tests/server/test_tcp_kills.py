"""Whatever ends a connection or an answer, the TCP listener keeps nothing of it."""

import random
from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from gevent.pool import Group
from greenlet import GreenletExit, getcurrent

from nxdns.server.handler import HandlerStats, Transport
from nxdns.server.tcp_connection import Connection
from nxdns.server.tcp_server import TcpServer
from tests.support.fake_clients import (
    LOOPBACK,
    TcpAsker,
    answer,
    serving,
    settle,
    tcp_asker,
)
from tests.support.leaks import greenlets_alive, no_descriptor_left
from tests.support.tcp_handlers import EchoHandler, SteeredHandler, framed, numbered
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No greenlet has died with a traceback."""
    yield
    assert capfd.readouterr().err == ""


class Watched(TcpServer):
    """It tells which greenlets read its connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.readers: list[Any] = []

    def handle(self, connection: Connection) -> None:
        self.readers.append(getcurrent())
        try:
            super().handle(connection)
        finally:
            self.readers.remove(getcurrent())


class ErraticHandler:
    """Answers soon, late, largely or not at all, and counts how each message ended."""

    def __init__(self, chance: random.Random) -> None:
        self.stats = HandlerStats()
        self.answering: list[Any] = []
        self.answered = self.dropped = self.killed = 0
        self._chance = chance

    def handle(self, _transport: Transport, query: bytes) -> bytes | None:
        self.answering.append(getcurrent())
        try:
            for _ in range(self._chance.randrange(4)):
                gevent.sleep(self._chance.choice([0, 0, 0.001]))
        except GreenletExit:
            self.killed += 1
            raise
        finally:
            self.answering.remove(getcurrent())
        if self._chance.random() < 0.05:
            self.dropped += 1
            return None
        self.answered += 1
        return answer(query) + bytes(self._chance.choice([0, 0, 60_000]))


def converse(asker: TcpAsker, chance: random.Random) -> None:
    """As clients do that lose their line, their patience or their mind."""
    stream = framed(numbered(chance.randrange(1, 40)))
    with asker, gevent.Timeout(chance.uniform(0.001, 0.05), False):
        try:
            while stream:
                cut = chance.randrange(1, 120)
                asker.sock.sendall(stream[:cut])
                stream = stream[cut:]
                gevent.sleep(0)
            if chance.random() < 0.3:
                asker.finish()
            while chance.random() < 0.95:
                asker.reply()
            if chance.random() < 0.5:
                asker.reset()
        except (OSError, EOFError):
            return


def test_after_a_thousand_kills_and_timeouts_at_random_nothing_is_left() -> None:
    chance = random.Random(20251130)
    handler = ErraticHandler(chance)
    server = Watched(LOOPBACK, handler, max_connections=8, idle_seconds=0.02)
    greenlets = greenlets_alive()
    clients = Group()
    kills = connected = 0
    with no_descriptor_left(), serving(server):
        while kills < 1_000 or not server.stats.rejected_at_capacity:
            # The kills keep a place free nearly all the time: now and then all come at once.
            for _ in range((12 if kills % 100 == 0 else 1) if len(clients) < 12 else 0):
                asker = tcp_asker(server.bound)
                connected += 1
                clients.spawn(converse, asker, chance)
            victims = chance.choice([server.readers, handler.answering])
            if victims and chance.random() < 0.5:
                chance.choice(victims).kill(block=False)
                kills += 1
            gevent.sleep(chance.choice([0, 0, 0.001]))
        eventually(lambda: not len(clients), seconds=20)
        eventually(lambda: server.stats.active == 0)
        eventually(lambda: server.in_flight == 0)
        stats = server.stats
        assert stats.accepted + stats.rejected_at_capacity == connected
        assert stats.messages == handler.answered + handler.dropped + handler.killed
        # Of each kind there have been some.
        assert min(handler.answered, handler.dropped, handler.killed, stats.replies_lost) > 0
        assert min(stats.connection_errors, stats.idle_timeouts, stats.rejected_at_capacity) > 0
    assert greenlets_alive() <= greenlets


def test_the_killed_reader_of_a_connection_closes_it_and_what_it_awaits_is_let_finish() -> None:
    handler = SteeredHandler()
    server = Watched(LOOPBACK, handler)
    with no_descriptor_left(), serving(server), tcp_asker(server.bound) as asker:
        asker.send(*numbered(3))
        eventually(lambda: len(handler.held) == 3)
        server.readers[0].kill()
        assert asker.wait_for_close() == b""
        assert (server.stats.active, server.in_flight) == (0, 3)
        handler.answer_all()
        eventually(lambda: server.in_flight == 0)
        assert server.stats.replies_lost == 3


def test_a_killed_answer_ends_its_connection_once_the_others_are_given() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    queries = numbered(3)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(*queries)
        eventually(lambda: len(handler.held) == 3)
        victim: Any = next(iter(handler.greenlets))
        victim.kill()
        settle()
        left = list(handler.held)
        assert len(left) == 2
        handler.answer_all()
        assert asker.wait_for_close() == framed([answer(query) for query in left])
        eventually(lambda: (server.stats.active, server.in_flight) == (0, 0))


def test_a_connection_that_is_killed_before_it_began_is_let_go() -> None:
    server = TcpServer(LOOPBACK, EchoHandler())
    with no_descriptor_left(), serving(server):
        server.stop_accepting()
        with tcp_asker(server.bound) as asker:
            accepted = server.do_read()
            assert accepted is not None
            server.do_handle(*accepted)
            del accepted
            assert server.stats.active == 1
            [unbegun] = server._connections
            unbegun.kill()
            eventually(lambda: server.stats.active == 0)
            assert asker.wait_for_close() == b""
