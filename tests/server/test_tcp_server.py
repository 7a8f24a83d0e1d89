"""The TCP listener and clients that mean well: conversations, capacity, stopping."""

import errno
import gc
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest
from gevent import socket

from nxdns.dns.framing import frame
from nxdns.platform.address import ListenAddress
from nxdns.server.handler import Handler
from nxdns.server.tcp_server import TcpServer
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
    GatedClient,
    ScriptedClient,
    answer,
    counted,
    serving,
    settle,
    tcp_asker,
)
from tests.support.leaks import no_descriptor_left
from tests.support.messages import big_response, make_query, with_our_opt
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query(payload=4096)  # as it goes upstream


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No greenlet has died with a traceback."""
    yield
    assert capfd.readouterr().err == ""


def assert_no_fault(server: TcpServer) -> None:
    stats = server.stats
    assert (stats.connection_errors, stats.idle_timeouts, stats.accept_errors) == (0, 0, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_two_queries_are_answered_on_one_connection(host: str) -> None:
    handler = Handler(EchoingClient())
    server = TcpServer(ListenAddress(host, 0), handler)
    other = make_query("other.example.com")
    with serving(server), tcp_asker(server.bound) as asker:
        assert asker.ask(QUERY) == answer(QUERY)
        assert asker.ask(other) == answer(other)
        assert (server.stats.accepted, server.stats.active) == (1, 1)
    assert (server.stats.messages, server.stats.active) == (2, 0)
    assert counted(handler.stats) == {"queries": 2}
    assert_no_fault(server)


def test_queries_in_one_segment_are_answered_in_their_order() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    queries = [make_query(f"host{number}.example.com") for number in range(20)]
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(*queries)
        assert [asker.reply() for _ in queries] == [answer(query) for query in queries]
    assert server.stats.messages == 20


def test_queries_of_one_connection_are_handled_one_after_another() -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client))
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(QUERY, QUERY)
        eventually(lambda: client.waiting == 1)
        settle()
        assert (client.waiting, server.stats.messages) == (1, 1)
        client.gate.set()
        assert asker.reply() == asker.reply() == answer(QUERY)


def test_queries_of_two_connections_are_handled_side_by_side() -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client))
    with serving(server), tcp_asker(server.bound) as one, tcp_asker(server.bound) as two:
        one.send(QUERY)
        two.send(QUERY)
        eventually(lambda: client.waiting == 2)
        client.gate.set()
        assert one.reply() == two.reply() == answer(QUERY)


def test_a_message_may_be_split_anywhere() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    message = frame(QUERY)
    with serving(server), tcp_asker(server.bound) as asker:
        for split in range(1, len(message)):
            asker.sock.sendall(message[:split])
            settle()
            assert server.stats.messages == split - 1
            asker.sock.sendall(message[split:])
            assert asker.reply() == answer(QUERY)
    assert_no_fault(server)


def test_a_message_that_ends_within_the_next_one_loses_nothing() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    both = frame(QUERY) * 2
    with serving(server), tcp_asker(server.bound) as asker:
        for split in (len(both) // 2 + 1, len(both) // 2 + 2, len(both) - 1):
            asker.sock.sendall(both[:split])
            assert asker.reply() == answer(QUERY)
            settle()
            asker.sock.sendall(both[split:])
            assert asker.reply() == answer(QUERY)
    assert_no_fault(server)


def test_the_longest_message_goes_both_ways() -> None:
    query = make_query(payload=4096)
    padding = 65535 - len(query) - 4
    option = b"\0\x0c" + padding.to_bytes(2, "big") + bytes(padding)
    longest = query[:-2] + len(option).to_bytes(2, "big") + option
    upstream = big_response(query, 65535)
    client = ScriptedClient([upstream])
    server = TcpServer(LOOPBACK, Handler(client))
    with serving(server), tcp_asker(server.bound) as asker:
        assert asker.ask(longest) == with_our_opt(upstream)
    assert client.asked == [query]
    assert len(longest) == 65535


def data_segments_received(sock: Any) -> int:
    """From struct tcp_info in linux/tcp.h: ``tcpi_data_segs_in`` stands at offset 152."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 156)
    (segments,) = struct.unpack_from("=I", info, 152)
    return int(segments)


def test_prefix_and_message_leave_in_one_send() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server), tcp_asker(server.bound) as asker:
        for replies in (1, 2, 3):
            asker.ask(QUERY)
            assert data_segments_received(asker.sock) == replies


def test_no_reply_waits_until_the_one_before_is_acknowledged() -> None:
    client = EchoingClient()
    server = TcpServer(LOOPBACK, Handler(client))
    with serving(server), tcp_asker(server.bound) as asker:
        asker.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        asker.send(QUERY, QUERY, QUERY)
        eventually(lambda: len(client.asked) == 3)
        settle()
        arrived = asker.sock.recv(65535, socket.MSG_PEEK)
        assert arrived == frame(answer(QUERY)) * 3


def test_a_half_closed_client_still_gets_its_answers() -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client))
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(QUERY, QUERY)
        asker.finish()
        eventually(lambda: client.waiting == 1)
        client.gate.set()
        assert asker.reply() == asker.reply() == answer(QUERY)
        asker.wait_for_clean_close()
    assert_no_fault(server)


@pytest.mark.parametrize("queries", [0, 1], ids=["before-the-first", "after-one"])
def test_an_end_between_messages_is_no_fault(queries: int) -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server), tcp_asker(server.bound) as asker:
        for _ in range(queries):
            asker.ask(QUERY)
        asker.finish()
        asker.wait_for_clean_close()
        eventually(lambda: server.stats.active == 0)
    assert server.stats.accepted == 1
    assert_no_fault(server)


def test_a_format_error_does_not_end_the_connection() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server), tcp_asker(server.bound) as asker:
        assert asker.ask(QUERY + b"\0")[3] & 15 == 1
        assert asker.ask(QUERY) == answer(QUERY)
    assert_no_fault(server)


@pytest.mark.parametrize(
    "dropped", [pytest.param(QUERY[:5], id="cut-off"), pytest.param(answer(QUERY), id="response")]
)
def test_what_the_handler_drops_ends_the_connection(dropped: bytes) -> None:
    handler = Handler(EchoingClient())
    server = TcpServer(LOOPBACK, handler)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.send(dropped)
        asker.wait_for_clean_close()
    assert counted(handler.stats) == {"dropped_malformed": 1}
    assert_no_fault(server)


def test_at_capacity_the_next_connection_is_closed_and_counted() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()), max_connections=2)
    with serving(server), tcp_asker(server.bound) as one, tcp_asker(server.bound) as two:
        assert one.ask(QUERY) == two.ask(QUERY) == answer(QUERY)
        with tcp_asker(server.bound) as third:
            third.wait_for_clean_close()
        assert (server.stats.accepted, server.stats.rejected_at_capacity) == (2, 1)
        assert server.stats.active == 2
        assert one.ask(QUERY) == answer(QUERY), "those who were there are served on"

        two.finish()
        two.wait_for_clean_close()
        eventually(lambda: server.stats.active == 1)
        with tcp_asker(server.bound) as fourth:
            assert fourth.ask(QUERY) == answer(QUERY)
    assert (server.stats.accepted, server.stats.rejected_at_capacity) == (3, 1)
    assert_no_fault(server)


def sockets_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, socket.socket) for thing in gc.get_objects())


def test_connections_that_have_ended_leave_nothing_behind() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server):
        before = sockets_alive()
        for _ in range(20):
            with tcp_asker(server.bound) as asker:
                asker.ask(QUERY)
        eventually(lambda: server.stats.active == 0)
        settle()
        assert sockets_alive() <= before + 2  # such as a loop variable still holds


def test_a_listener_has_64_connections() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server), ExitStack() as connections:
        for _ in range(67):
            connections.enter_context(tcp_asker(server.bound))
        eventually(lambda: server.stats.accepted + server.stats.rejected_at_capacity == 67)
        assert (server.stats.accepted, server.stats.rejected_at_capacity) == (64, 3)
        assert server.stats.active == 64


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
def test_a_second_server_cannot_take_the_port(host: str) -> None:
    server = TcpServer(ListenAddress(host, 0), Handler(EchoingClient()))
    in_use = pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE))
    with serving(server), no_descriptor_left(), in_use:
        TcpServer(server.bound, Handler(EchoingClient()))


def test_stop_ends_idle_connections_at_once() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    server.start()
    with tcp_asker(server.bound) as new, tcp_asker(server.bound) as used:
        used.ask(QUERY)
        eventually(lambda: server.stats.accepted == 2)
        with gevent.Timeout(5, AssertionError("stop waits for clients that say nothing")):
            server.stop(60)
            server.stop(60)
        new.wait_for_clean_close()
        used.wait_for_clean_close()
    assert server.stats.active == 0
    assert_no_fault(server)


def test_stop_lets_a_query_in_flight_be_answered() -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client))
    server.start()
    with tcp_asker(server.bound) as asker:
        asker.send(QUERY)
        eventually(lambda: client.waiting == 1)
        stopping = gevent.spawn(server.stop, 10)
        settle()
        client.gate.set()
        assert asker.reply() == answer(QUERY)
        asker.wait_for_clean_close()
        stopping.get(timeout=10)
    assert_no_fault(server)


def test_stop_answers_what_an_idle_connection_has_sent_a_moment_before() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    server.start()
    with tcp_asker(server.bound) as asker:
        asker.ask(QUERY)
        settle()
        asker.send(QUERY)
        server.stop(10)
        assert asker.reply() == answer(QUERY)
        asker.wait_for_clean_close()
    assert_no_fault(server)


def test_stop_lets_a_message_that_has_begun_be_answered() -> None:
    server = TcpServer(LOOPBACK, Handler(EchoingClient()))
    server.start()
    message = frame(QUERY)
    with tcp_asker(server.bound) as asker:
        asker.sock.sendall(message[:5])
        eventually(lambda: server.stats.accepted == 1)
        settle()
        stopping = gevent.spawn(server.stop, 10)
        settle()
        asker.sock.sendall(message[5:])
        assert asker.reply() == answer(QUERY)
        asker.wait_for_clean_close()
        stopping.get(timeout=10)
    assert_no_fault(server)


def test_a_connection_that_arrives_while_stopping_is_closed_and_counted_as_rejected() -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client))
    server.start()
    with tcp_asker(server.bound) as asker:
        asker.send(QUERY)
        eventually(lambda: client.waiting == 1)
        stopping = gevent.spawn(server.stop, 10)
        settle()
        with tcp_asker(server.bound) as late:
            late.wait_for_clean_close()
        client.gate.set()
        assert asker.reply() == answer(QUERY)
        stopping.get(timeout=10)
    assert (server.stats.accepted, server.stats.rejected_at_capacity) == (1, 1)


def test_stop_before_start_leaves_nothing_open() -> None:
    with no_descriptor_left():
        TcpServer(LOOPBACK, Handler(EchoingClient())).stop(60)
