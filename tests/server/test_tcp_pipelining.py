"""Several queries at once on one TCP connection (RFC 7766 §6.2.1.1)."""

from collections.abc import Iterator

import gevent
import pytest
from gevent import socket
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns.framing import frame
from nxdns.platform.sockets import socket_address
from nxdns.server.handler import Handler
from nxdns.server.tcp_connection import PIPELINED
from nxdns.server.tcp_server import TcpServer
from tests.support.fake_clients import (
    LOOPBACK,
    FixedHandler,
    GatedClient,
    TcpAsker,
    accounted,
    answer,
    arrived,
    counted,
    serving,
    settle,
    tcp_asker,
)
from tests.support.messages import make_query
from tests.support.tcp_handlers import EchoHandler, SteeredHandler, framed, numbered
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SHORT = 0.05  # seconds, where a deadline itself is the subject
LARGE = 65535


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No greenlet has died with a traceback."""
    yield
    assert capfd.readouterr().err == ""


def faults(server: TcpServer) -> tuple[int, int, int]:
    stats = server.stats
    return stats.connection_errors, stats.idle_timeouts, stats.replies_lost


def test_a_connection_answers_sixteen_at_a_time() -> None:
    assert PIPELINED == 16


def test_a_slow_query_does_not_delay_a_quick_one_behind_it() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    slow, quick, later = numbered(3)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(slow, quick)
        eventually(lambda: len(handler.held) == 2)
        assert server.in_flight == 2
        handler.answer(quick)
        assert asker.reply() == answer(quick)
        asker.send(later)
        eventually(lambda: later in handler.held)
        handler.answer(later)
        assert asker.reply() == answer(later)
        handler.answer(slow)
        assert asker.reply() == answer(slow)
    assert faults(server) == (0, 0, 0)


def test_answers_come_in_the_order_in_which_they_are_ready() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    queries = numbered(PIPELINED)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(*queries)
        eventually(lambda: len(handler.held) == PIPELINED)
        for query in reversed(queries):
            handler.answer(query)
        assert [asker.reply() for _ in queries] == [answer(query) for query in reversed(queries)]


def test_no_more_than_sixteen_are_answered_at_once_and_each_answer_lets_the_next_in() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    queries = numbered(PIPELINED + 24)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(*queries)
        for done in range(24):
            eventually(lambda to=PIPELINED + done: server.stats.messages == to)  # type: ignore[misc]
            settle()
            assert server.stats.messages == PIPELINED + done
            last = handler.asked[-1]
            handler.answer(last)
            assert asker.reply() == answer(last)
        eventually(lambda: server.stats.messages == len(queries))
        handler.answer_all()
        assert len({asker.reply() for _ in range(PIPELINED)}) == PIPELINED
    assert handler.most_held == PIPELINED
    assert handler.asked == queries
    assert faults(server) == (0, 0, 0)


def test_a_connection_with_sixteen_under_way_holds_up_no_other() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    *many, one = numbered(PIPELINED + 5)
    with serving(server), tcp_asker(server.bound) as busy, tcp_asker(server.bound) as other:
        busy.send(*many)
        eventually(lambda: len(handler.held) == PIPELINED)
        other.send(one)
        eventually(lambda: one in handler.held)
        handler.answer(one)
        assert other.reply() == answer(one)


def test_what_is_beyond_sixteen_is_left_to_the_tcp_of_the_client() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    messages = numbered(1024, LARGE)
    rest = framed(messages)  # 64 MiB: many times what a socket buffers
    with serving(server), tcp_asker(server.bound) as asker:
        sent = 0
        idle_turns = 0
        while idle_turns < 10:
            settle()
            try:
                sent += asker.sock._sock.send(rest[sent : sent + (1 << 20)])
                idle_turns = 0
            except BlockingIOError:
                idle_turns += 1
        assert PIPELINED * LARGE < sent < len(rest) // 2
        assert len(handler.asked) == PIPELINED


def slow_to_read(server: TcpServer) -> TcpAsker:
    """A client with hardly a receive buffer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(socket_address(server.bound.host, server.bound.port)[1])
    return TcpAsker(sock)


class LargeAnswers(EchoHandler):
    """Each is as long as can be, and each of its bytes tells whose it is."""

    def handle(self, *asked: object) -> bytes:
        query = asked[1]
        assert isinstance(query, bytes)
        return query[1:2] * LARGE


def test_answers_that_are_written_at_the_same_time_never_mix() -> None:
    server = TcpServer(LOOPBACK, LargeAnswers())
    queries = numbered(100)
    with serving(server), slow_to_read(server) as asker:
        asker.send(*queries)
        # All buffers on the way are full: one answer is half on its way, fifteen wait behind it.
        eventually(lambda: server.in_flight == PIPELINED)
        settle()
        assert (server.in_flight, server.stats.messages < 100) == (PIPELINED, True)
        replies = [asker.reply() for _ in queries]
    assert sorted(replies) == sorted(query[1:2] * LARGE for query in queries)
    assert faults(server) == (0, 0, 0)


def test_a_client_that_does_not_read_holds_its_share_and_blocks_nobody() -> None:
    server = TcpServer(LOOPBACK, FixedHandler(bytes(LARGE)))
    with serving(server), tcp_asker(server.bound) as deaf, tcp_asker(server.bound) as other:
        deaf.send(*numbered(300))
        eventually(lambda: server.in_flight == PIPELINED)
        settle()
        read = server.stats.messages
        assert read < 300
        assert other.ask(bytes(12)) == bytes(LARGE)
        assert (server.in_flight, server.stats.messages) == (PIPELINED, read + 1)


def test_a_client_that_never_reads_loses_all_that_waits_for_it_at_one_deadline() -> None:
    server = TcpServer(LOOPBACK, FixedHandler(bytes(LARGE)), idle_seconds=SHORT)
    with tcp_asker(server.bound) as deaf:
        deaf.send(*numbered(300))
        with serving(server):
            eventually(lambda: server.stats.accepted == 1 and server.stats.active == 0)
            assert faults(server) == (1, 0, PIPELINED)
            assert server.in_flight == 0


def test_a_half_closed_client_gets_the_answers_to_all_that_it_has_sent() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    queries = numbered(2 * PIPELINED)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(*queries)
        asker.finish()
        eventually(lambda: len(handler.held) == PIPELINED)
        handler.answer_all()
        eventually(lambda: len(handler.asked) == len(queries))
        handler.answer_all()
        assert {asker.reply() for _ in queries} == {answer(query) for query in queries}
        asker.wait_for_clean_close()
    assert faults(server) == (0, 0, 0)


def test_a_client_that_waits_for_its_answer_is_not_idle() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler, idle_seconds=SHORT)
    query, later = numbered(2)
    with tcp_asker(server.bound) as asker:
        asker.send(query)
        with serving(server):
            eventually(lambda: query in handler.held)
            gevent.sleep(3 * SHORT)
            asker.send(later)
            eventually(lambda: later in handler.held)
            handler.answer_all()
            assert [asker.reply(), asker.reply()] == [answer(query), answer(later)]
            asker.wait_for_clean_close()
            assert faults(server) == (0, 1, 0)


def test_a_dropped_message_ends_the_connection_once_those_under_way_are_answered() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    first, dropped, late = numbered(3)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(first, dropped)
        eventually(lambda: len(handler.held) == 2)
        handler.drop(dropped)
        settle()
        asker.send(late)
        settle()
        handler.answer(first)
        assert asker.wait_for_close() == frame(answer(first))
        eventually(lambda: server.stats.active == 0)
    assert handler.asked == [first, dropped]
    assert faults(server) == (0, 0, 0)


def test_a_message_that_is_broken_off_costs_nobody_before_it_the_answer() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    queries = numbered(3)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.sock.sendall(framed(queries) + b"\0\0")
        eventually(lambda: len(handler.held) == 3)
        settle()
        assert server.stats.active == 1
        handler.answer_all()
        assert asker.wait_for_close() == framed([answer(query) for query in queries])
        eventually(lambda: server.stats.active == 0)
    assert faults(server) == (1, 0, 0)


def test_a_reset_costs_the_answers_under_way_and_frees_the_place_when_they_have_come() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    queries = numbered(5)
    with serving(server):
        with tcp_asker(server.bound) as asker:
            asker.send(*queries)
            eventually(lambda: len(handler.held) == 5)
            asker.reset()
        settle()
        assert (server.stats.active, server.in_flight) == (1, 5)
        handler.answer_all()
        eventually(lambda: server.stats.active == 0)
        assert faults(server) == (1, 0, 5)
        assert server.in_flight == 0


def test_stop_lets_all_that_is_under_way_on_a_connection_be_answered() -> None:
    handler = SteeredHandler()
    server = TcpServer(LOOPBACK, handler)
    server.start()
    queries = numbered(PIPELINED + 4)
    with tcp_asker(server.bound) as asker:
        asker.send(*queries)
        eventually(lambda: len(handler.held) == PIPELINED)
        stopping = gevent.spawn(server.stop, 10)
        settle()
        handler.answer_all()
        eventually(lambda: len(handler.asked) == len(queries))
        handler.answer_all()
        assert {asker.reply() for _ in queries} == {answer(query) for query in queries}
        asker.wait_for_clean_close()
        stopping.get(timeout=10)
    assert (server.in_flight, server.stats.active) == (0, 0)
    assert faults(server) == (0, 0, 0)


def test_what_stop_gives_up_is_cancelled_each_by_itself() -> None:
    client = GatedClient()
    handler = Handler(client)
    server = TcpServer(LOOPBACK, handler)
    server.start()
    with tcp_asker(server.bound) as asker:
        asker.send(*[make_query()] * (PIPELINED + 3))
        eventually(lambda: client.waiting == PIPELINED)
        with gevent.Timeout(5, AssertionError("stop waits for ever")):
            server.stop(0)
        assert asker.wait_for_close() == b""
    assert counted(handler.stats) == {"cancelled": PIPELINED}
    assert arrived(server) == accounted(handler, server) == PIPELINED
    assert (server.in_flight, server.stats.active) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(4, 700), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 400), max_size=60),
)
def test_messages_may_be_cut_and_joined_in_any_way(sizes: list[int], cuts: list[int]) -> None:
    queries = [bytes([number]) + bytes(size - 1) for number, size in enumerate(sizes)]
    server = TcpServer(LOOPBACK, EchoHandler())
    stream = framed(queries)
    with serving(server), tcp_asker(server.bound) as asker:
        for cut in cuts:
            asker.sock.sendall(stream[:cut])
            stream = stream[cut:]
            settle()
        asker.sock.sendall(stream)
        asker.finish()
        assert {asker.reply() for _ in queries} == {answer(query) for query in queries}
        asker.wait_for_clean_close()
    assert faults(server) == (0, 0, 0)


def test_two_messages_may_be_split_at_every_offset() -> None:
    one, two = numbered(2)
    stream = framed([one, two])
    server = TcpServer(LOOPBACK, EchoHandler())
    with serving(server), tcp_asker(server.bound) as asker:
        for split in range(1, len(stream)):
            asker.sock.sendall(stream[:split])
            settle()
            asker.sock.sendall(stream[split:])
            assert [asker.reply(), asker.reply()] == [answer(one), answer(two)]
    assert faults(server) == (0, 0, 0)


def test_a_prefix_may_come_byte_by_byte_and_so_may_all_else() -> None:
    server = TcpServer(LOOPBACK, EchoHandler())
    queries = numbered(3)
    with serving(server), tcp_asker(server.bound) as asker:
        for byte in framed(queries):
            asker.sock.sendall(bytes([byte]))
            settle()
        assert [asker.reply() for _ in queries] == [answer(query) for query in queries]
    assert faults(server) == (0, 0, 0)
