"""The TCP listener and clients that mean ill: none holds a place, none goes uncounted."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent
import pytest
from gevent import socket

from nxdns.dns.framing import frame
from nxdns.server.handler import Answerer, Handler
from nxdns.server.tcp_server import TcpServer
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
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
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query()
SHORT = 0.05  # seconds, where a deadline itself is the subject


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No greenlet has died with a traceback."""
    yield
    assert capfd.readouterr().err == ""


def outcome(server: TcpServer) -> tuple[int, int, int]:
    """Messages, connection errors, idle timeouts, once the one connection has ended."""
    eventually(lambda: server.stats.accepted == 1 and server.stats.active == 0)
    stats = server.stats
    return stats.messages, stats.connection_errors, stats.idle_timeouts


def assert_place_is_free(server: TcpServer) -> None:
    """The one place of ``server`` is taken by the next who comes."""
    with tcp_asker(server.bound):
        eventually(lambda: server.stats.accepted == 2)
    assert server.stats.rejected_at_capacity == 0


MESSAGE = frame(QUERY)
CUT_SHORT = [
    pytest.param(MESSAGE[:1], 0, id="within-the-prefix"),
    pytest.param(MESSAGE[:2], 0, id="behind-the-prefix"),
    pytest.param(MESSAGE[:-1], 0, id="within-the-message"),
    pytest.param(MESSAGE + MESSAGE[:1], 1, id="within-the-next-prefix"),
    pytest.param(MESSAGE + MESSAGE[:-1], 1, id="within-the-next-message"),
]


@pytest.mark.parametrize(("sent", "messages"), CUT_SHORT)
def test_an_end_within_a_message_is_a_connection_error(sent: bytes, messages: int) -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()), max_connections=1)
    with serving(server):
        with tcp_asker(server.bound) as asker:
            asker.sock.sendall(sent)
            asker.finish()
            assert asker.wait_for_close() == frame(answer(QUERY)) * messages
        assert outcome(server) == (messages, 1, 0)
        assert_place_is_free(server)


@pytest.mark.parametrize("messages", [0, 1], ids=["first", "after-one"])
def test_an_empty_message_ends_the_connection_and_is_an_error(messages: int) -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()), max_connections=1)
    with serving(server):
        with tcp_asker(server.bound) as asker:
            asker.sock.sendall(MESSAGE * messages + b"\0\0" + MESSAGE)
            assert asker.wait_for_close() == frame(answer(QUERY)) * messages
        assert outcome(server) == (messages, 1, 0)
        assert_place_is_free(server)


@pytest.mark.parametrize("sent", [b"", MESSAGE[:7]], ids=["between-messages", "within-a-message"])
def test_a_reset_is_a_connection_error(sent: bytes) -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()), max_connections=1)
    with serving(server):
        with tcp_asker(server.bound) as asker:
            asker.sock.sendall(sent)
            eventually(lambda: server.stats.active == 1)
            settle()
            asker.reset()
        assert outcome(server) == (0, 1, 0)
        assert_place_is_free(server)


def test_a_reset_while_the_answer_is_awaited_is_a_connection_error() -> None:
    client = GatedClient()
    handler = Handler(client)
    server = TcpServer(LOOPBACK, handler, max_connections=1)
    with serving(server):
        with tcp_asker(server.bound) as asker:
            asker.send(QUERY)
            eventually(lambda: client.waiting == 1)
            asker.reset()
        client.gate.set()
        assert outcome(server) == (1, 1, 0)
        assert_place_is_free(server)
    assert counted(handler.stats) == {"queries": 1}


# Where a deadline is short, what the client sends first is sent before the server starts: it then
# finds it there, however slow the machine is.


def hasty_server(handler: Answerer) -> TcpServer:
    return TcpServer(LOOPBACK, handler, max_connections=1, idle_seconds=SHORT)


@pytest.mark.parametrize("messages", [0, 1], ids=["before-the-first", "after-one"])
def test_a_client_that_says_nothing_is_closed_cleanly_at_the_idle_timeout(messages: int) -> None:
    server = hasty_server(Handler(EchoingClient()))
    with tcp_asker(server.bound) as asker:
        asker.send(*[QUERY] * messages)
        with serving(server):
            assert [asker.reply() for _ in range(messages)] == [answer(QUERY)] * messages
            asker.wait_for_clean_close()
            assert outcome(server) == (messages, 0, 1)
            assert_place_is_free(server)


@pytest.mark.parametrize(
    "begun", [MESSAGE[:1], MESSAGE[:2], MESSAGE[:9]], ids=["half-a-prefix", "prefix", "message"]
)
def test_a_client_that_begins_a_message_and_falls_silent_is_a_connection_error(
    begun: bytes,
) -> None:
    server = hasty_server(Handler(EchoingClient()))
    with tcp_asker(server.bound) as asker:
        asker.sock.sendall(begun)
        with serving(server):
            assert asker.wait_for_close() == b""
            assert outcome(server) == (0, 1, 0)
            assert_place_is_free(server)


def trickle(asker: TcpAsker, data: bytes) -> None:
    """One byte at a time, with no pause as long as the deadline."""
    for number in range(len(data)):
        asker.sock.sendall(data[number : number + 1])
        gevent.sleep(SHORT / 10)


@pytest.mark.parametrize("messages", [0, 1], ids=["first-message", "after-one"])
def test_a_client_that_trickles_bytes_cannot_exceed_the_deadline(messages: int) -> None:
    server = hasty_server(Handler(EchoingClient()))
    message = frame(QUERY + bytes(500))  # more than 50 deadlines long at this pace
    with tcp_asker(server.bound) as asker:
        asker.sock.sendall(MESSAGE * messages + message[:1])
        with serving(server):
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                trickle(asker, message[1:])
            assert outcome(server) == (messages, 1, 0)
            assert_place_is_free(server)


def ask_without_reading(asker: TcpAsker) -> None:
    """What is answered, 65535 bytes each, is more than all buffers on the way can hold."""
    asker.send(*[QUERY] * 300)


def test_a_client_that_never_reads_cannot_hold_a_place() -> None:
    server = hasty_server(FixedHandler(bytes(65535)))
    with tcp_asker(server.bound) as asker:
        ask_without_reading(asker)
        with serving(server):
            messages, connection_errors, idle_timeouts = outcome(server)
            assert 0 < messages < 300
            assert (connection_errors, idle_timeouts) == (1, 0)
            assert_place_is_free(server)


@contextmanager
def no_descriptor_to_spare() -> Iterator[None]:
    """Every new descriptor is refused with EMFILE, as in a process that has used up its own."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_listener_without_descriptors_counts_and_serves_again_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server), TcpAsker(socket.socket()) as asker:
        with no_descriptor_to_spare():
            asker.sock.connect((server.bound.host, server.bound.port))
            asker.send(QUERY)
            eventually(lambda: server.stats.accept_errors >= 2)
            assert server.stats.accept_errors <= 5, "it must not spin"
            assert server.stats.accepted == 0
        assert asker.reply() == answer(QUERY)
    assert (server.stats.accepted, server.stats.rejected_at_capacity) == (1, 0)
    assert ["accept failed" in record.message for record in caplog.records] == [True]


def begin_a_message(asker: TcpAsker) -> None:
    asker.sock.sendall(MESSAGE[:5])


def wait_for_an_answer(asker: TcpAsker) -> None:
    asker.send(QUERY)


def large_replies() -> Answerer:
    return FixedHandler(bytes(65535))


def answering() -> Answerer:
    return Handler(EchoingClient())


def unanswering() -> Answerer:
    return Handler(GatedClient())


@pytest.mark.parametrize("patience_seconds", [0, 0.01])
@pytest.mark.parametrize(
    ("behave", "make_handler"),
    [
        pytest.param(begin_a_message, answering, id="within-a-message"),
        pytest.param(ask_without_reading, large_replies, id="never-reading"),
        pytest.param(wait_for_an_answer, unanswering, id="unanswered"),
    ],
)
def test_stop_ends_a_connection_that_exceeds_its_patience(
    behave: Callable[[TcpAsker], None],
    make_handler: Callable[[], Handler],
    patience_seconds: float,
) -> None:
    server = TcpServer(LOOPBACK, make_handler())
    server.start()
    with tcp_asker(server.bound) as asker:
        behave(asker)
        eventually(lambda: server.stats.active == 1)
        settle()
        with gevent.Timeout(5, AssertionError("stop waits for ever")):
            server.stop(patience_seconds)
        assert server.stats.active == 0
        asker.wait_for_close()


def test_a_query_that_stop_kills_counts_as_cancelled() -> None:
    handler = Handler(GatedClient())
    server = TcpServer(LOOPBACK, handler)
    server.start()
    with tcp_asker(server.bound) as asker:
        asker.send(QUERY)
        eventually(lambda: server.stats.messages == 1)
        server.stop(0)
        assert asker.wait_for_close() == b""
    assert counted(handler.stats) == {"cancelled": 1}
    assert arrived(server) == accounted(handler, server) == 1


def test_stop_withstands_a_client_that_has_reset_its_connection() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    server.start()
    with tcp_asker(server.bound) as asker:
        asker.ask(QUERY)
        settle()
        asker.reset()
        server.stop(10)
    assert (server.stats.active, server.stats.connection_errors) == (0, 1)


def test_a_connection_made_a_moment_before_stop_is_closed() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    server.start()
    with no_descriptor_left():
        with tcp_asker(server.bound) as asker:
            server.stop(0)
            assert asker.wait_for_close() == b""
        assert server.stats.active == 0
