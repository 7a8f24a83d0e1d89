"""The UDP listener over real sockets: what it answers, and what it drops and counts."""

import errno
import logging
import os
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent import socket

from nxdns.platform.address import ListenAddress
from nxdns.server.datagrams import Datagrams
from nxdns.server.handler import Handler, HandlerStats, Transport
from nxdns.server.udp_server import UdpServer
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
    FixedHandler,
    GatedClient,
    ScriptedClient,
    accounted,
    answer,
    arrived,
    counted,
    serving,
    settle,
    udp_asker,
)
from tests.support.leaks import no_descriptor_left
from tests.support.messages import big_response, make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

WILDCARD = ListenAddress("0.0.0.0", 0)
IP_RECVERR = 11  # linux/in.h
#: Where it listens and whom a client asks there: an address of its own, and the wildcard, whose
#: datagrams are read in another way.
EITHER_ADDRESS = pytest.mark.parametrize(
    "address", [pytest.param(LOOPBACK, id="specific"), pytest.param(WILDCARD, id="wildcard")]
)
QUERY = make_query()


def padded_query(size: int, query: bytes) -> bytes:
    """``query`` with exactly ``size`` bytes: what is missing is an option of its OPT."""
    padding = size - len(query) - 4
    option = b"\0\x0c" + padding.to_bytes(2, "big") + bytes(padding)
    return query[:-2] + len(option).to_bytes(2, "big") + option


def ask(sock: Any, query: bytes) -> bytes:
    sock.send(query)
    reply: bytes = sock.recv(65535)
    return reply


@pytest.mark.parametrize(
    ("listen", "asked"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", id="IPv4"),
        pytest.param("::1", "::1", id="IPv6"),
        # The asker takes only what comes from the address it has asked.
        pytest.param("0.0.0.0", "127.0.0.1", id="IPv4-wildcard"),
        pytest.param("0.0.0.0", "127.0.0.2", id="IPv4-wildcard-at-a-second-address"),
        pytest.param("0.0.0.0", "127.9.9.9", id="IPv4-wildcard-at-any-address"),
        pytest.param("::", "::1", id="IPv6-wildcard"),
    ],
)
def test_the_reply_comes_from_the_address_that_was_asked(listen: str, asked: str) -> None:
    handler = Handler(EchoingClient())
    server = UdpServer(ListenAddress(listen, 0), handler)
    with serving(server), udp_asker(server.bound, asked) as sock:
        assert ask(sock, QUERY) == answer(QUERY)
    assert (server.stats.received, server.stats.send_errors) == (1, 0)
    assert counted(handler.stats) == {"queries": 1}


def test_the_ipv6_wildcard_is_told_which_address_was_asked() -> None:
    # The loopback has but one IPv6 address: whether a second one replies cannot be seen on it.
    server = UdpServer(ListenAddress("::", 0), Handler(EchoingClient()))
    with serving(server):
        assert server.socket.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO) == 1


def test_a_query_that_was_broadcast_is_answered_from_an_address_that_can_send() -> None:
    server = UdpServer(WILDCARD, Handler(EchoingClient()))
    with serving(server), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.sendto(QUERY, ("127.255.255.255", server.bound.port))
        assert sock.recvfrom(512) == (answer(QUERY), ("127.0.0.1", server.bound.port))


def test_the_bound_address_has_the_port_that_the_kernel_chose() -> None:
    server = UdpServer(LOOPBACK, Handler(EchoingClient()))
    with serving(server):
        assert server.bound.host == "127.0.0.1"
        assert server.bound.port != 0
        assert server.bound.port == server.socket.getsockname()[1]


def test_an_answer_too_long_for_the_client_is_truncated() -> None:
    handler = Handler(ScriptedClient([big_response(QUERY, 513)]))
    server = UdpServer(LOOPBACK, handler)
    with serving(server), udp_asker(server.bound) as sock:
        reply = ask(sock, QUERY)
    assert reply[2] & 0x02, "TC"
    assert counted(handler.stats) == {"queries": 1, "truncated": 1}


@EITHER_ADDRESS
def test_five_bytes_are_dropped_and_counted_by_handler_and_listener(
    address: ListenAddress,
) -> None:
    handler = Handler(EchoingClient())
    server = UdpServer(address, handler)
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        sock.send(b"\x12\x34\x01\0\0")
        assert ask(sock, QUERY) == answer(QUERY), "the first reply is not to the five bytes"
    assert (server.stats.received, server.stats.dropped_handler) == (2, 1)
    assert counted(handler.stats) == {"dropped_malformed": 1, "queries": 1}


@EITHER_ADDRESS
def test_an_empty_datagram_is_dropped_and_counted(address: ListenAddress) -> None:
    handler = Handler(EchoingClient())
    server = UdpServer(address, handler)
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        sock.send(b"")
        assert ask(sock, QUERY) == answer(QUERY)
    assert (server.stats.received, server.stats.dropped_handler) == (2, 1)


@EITHER_ADDRESS
def test_a_datagram_of_4096_bytes_is_answered(address: ListenAddress) -> None:
    client = EchoingClient()
    server = UdpServer(address, Handler(client))
    query = make_query(payload=4096)
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        assert ask(sock, padded_query(4096, query)) == answer(query)
    assert client.asked == [query]
    assert server.stats.dropped_oversize == 0


@EITHER_ADDRESS
@pytest.mark.parametrize("size", [4097, 9000, 65507])
def test_a_longer_datagram_is_dropped_and_counted(address: ListenAddress, size: int) -> None:
    client = EchoingClient()
    handler = Handler(client)
    server = UdpServer(address, handler)
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        sock.send(padded_query(size, make_query(payload=4096)))
        assert ask(sock, QUERY) == answer(QUERY)
    assert len(client.asked) == 1
    assert (server.stats.received, server.stats.dropped_oversize) == (2, 1)
    assert counted(handler.stats) == {"queries": 1}


@EITHER_ADDRESS
def test_queries_that_come_together_are_all_answered_after_some_that_came_alone(
    address: ListenAddress,
) -> None:
    server = UdpServer(address, Handler(EchoingClient()))
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        for together in (1, 1, 2, 1, 1, 30, 1, 1, 3):
            queries = [make_query(id_=number) for number in range(together)]
            for query in queries:
                sock.send(query)
            assert sorted(sock.recv(512) for _ in queries) == sorted(map(answer, queries))
    assert (server.stats.received, arrived(server)) == (41, 41)


class _Arrivals:
    """In the place of a socket: what has arrived, and how often nothing had."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.in_vain = 0
        self.recvmsg = self.sendto = self.sendmsg = self.recvfrom

    def recvfrom(self, *_: object) -> tuple[bytes, tuple[str, int]]:
        if not self.waiting:
            self.in_vain += 1
            raise BlockingIOError
        return self.waiting.pop(0), ("127.0.0.1", 5353)


def test_who_comes_alone_is_read_alone_and_all_who_are_there_in_the_very_next_turn() -> None:
    sock = _Arrivals()
    datagrams = Datagrams(
        sock,
        FixedHandler(b""),
        "a name",
        max_in_flight=8,
        permits=lambda _: True,
        reply_source=False,
        fatal=(),
    )
    loop = SimpleNamespace(iteration=0)
    datagrams._loop = loop

    def read(turn: int, *arriving: int) -> tuple[int, int]:
        """Of these, how many are left, and how often it was looked for more than there were."""
        loop.iteration = turn
        sock.waiting += [make_query(id_=number) for number in arriving]
        in_vain = sock.in_vain
        datagrams.read()
        return len(sock.waiting), sock.in_vain - in_vain

    assert read(10, 1) == (0, 1)
    assert read(20, 2) == (0, 0)
    assert read(30, 3, 4, 5) == (2, 0)
    assert read(31) == (0, 1)
    assert read(32, 6, 7) == (0, 1)
    datagrams.drain(0)


def test_all_that_has_come_is_read_from_a_server_that_leaves_its_port() -> None:
    handler = Handler(EchoingClient())
    server = UdpServer(LOOPBACK, handler)
    with serving(server), udp_asker(server.bound) as sock:
        sock.setblocking(False)
        for number in range(300):
            sock.send(make_query(id_=number))
        server.leave_port()
        gevent.spawn(server.stop, 10).get()
    assert server.stats.received == 300
    assert arrived(server) == accounted(handler, server)


@EITHER_ADDRESS
def test_a_full_pool_drops_and_goes_on_reading(address: ListenAddress) -> None:
    client = GatedClient()
    handler = Handler(client)
    server = UdpServer(address, handler, max_in_flight=2)
    queries = [make_query(f"host{number}.example.com") for number in range(8)]
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        for query in queries:
            sock.send(query)
        eventually(lambda: server.stats.received == 8)
        assert server.stats.dropped_no_slot == 6
        assert server.in_flight == client.waiting == 2
        client.gate.set()
        assert {sock.recv(512), sock.recv(512)} == {answer(query) for query in queries[:2]}
        assert ask(sock, QUERY) == answer(QUERY), "places are free again"
    assert server.stats.dropped_no_slot == 6
    assert counted(handler.stats) == {"queries": 3}


def test_a_listener_has_256_queries_in_flight() -> None:
    client = GatedClient()
    server = UdpServer(LOOPBACK, Handler(client))
    with serving(server), udp_asker(server.bound) as sock:
        for number in range(262):
            sock.send(make_query(id_=number))
        eventually(lambda: server.stats.received == 262 and client.waiting == 256)
        assert (server.in_flight, server.stats.dropped_no_slot) == (256, 6)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
def test_a_second_server_cannot_take_the_port(host: str) -> None:
    server = UdpServer(ListenAddress(host, 0), Handler(EchoingClient()))
    in_use = pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE))
    with serving(server), no_descriptor_left(), in_use:
        UdpServer(server.bound, Handler(EchoingClient()))


def test_both_wildcards_stand_beside_each_other_on_one_port() -> None:
    v4 = UdpServer(WILDCARD, Handler(EchoingClient()))
    v6 = UdpServer(ListenAddress("::", v4.bound.port), Handler(EchoingClient()))
    with serving(v4, v6):
        for host in ("127.0.0.1", "::1"):
            with udp_asker(v4.bound, host) as sock:
                assert ask(sock, QUERY) == answer(QUERY)
    assert (v4.stats.received, v6.stats.received) == (1, 1)


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    with no_descriptor_left(), pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)):
        UdpServer(ListenAddress("192.0.2.1", 0), Handler(EchoingClient()))


@EITHER_ADDRESS
def test_a_failed_send_is_counted_and_logged_once(
    address: ListenAddress, caplog: pytest.LogCaptureFixture
) -> None:
    server = UdpServer(address, FixedHandler(bytes(65508)))  # one more than a datagram holds
    caplog.set_level(logging.WARNING)
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        for number in range(3):
            sock.send(make_query(id_=number))
        eventually(lambda: server.stats.received == 3 and server.in_flight == 0)
    assert server.stats.send_errors == 3
    assert ["send" in record.message for record in caplog.records] == [True]


def ask_and_vanish(server: UdpServer, client: GatedClient) -> None:
    """Leave before the reply can come."""
    client.gate.clear()
    with udp_asker(server.bound, "127.0.0.1") as sock:
        sock.send(QUERY)
        eventually(lambda: client.waiting == 1)
    client.gate.set()


@EITHER_ADDRESS
def test_a_receive_error_is_counted_and_logged_once_and_ends_nothing(
    address: ListenAddress, caplog: pytest.LogCaptureFixture
) -> None:
    client = GatedClient()
    server = UdpServer(address, Handler(client))
    # The system then reports ICMP errors: here, that nobody takes a reply any more.
    server.socket.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    caplog.set_level(logging.WARNING)
    with serving(server):
        ask_and_vanish(server, client)
        eventually(lambda: server.stats.receive_errors == 1)
        ask_and_vanish(server, client)
        eventually(lambda: server.stats.receive_errors == 2)
        with udp_asker(server.bound, "127.0.0.1") as sock:
            assert ask(sock, QUERY) == answer(QUERY)
    assert ["receive" in record.message for record in caplog.records] == [True]


def test_a_handler_that_raises_costs_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    class RaisingOnce:
        def __init__(self) -> None:
            self.stats = HandlerStats()
            self.raised = False

        def handle(self, _: Transport, query: bytes) -> bytes | None:
            if not self.raised:
                self.raised = True
                raise RuntimeError
            return answer(query)

    server = UdpServer(LOOPBACK, RaisingOnce(), max_in_flight=1)
    with serving(server), udp_asker(server.bound) as sock:
        sock.send(QUERY)
        eventually(lambda: server.stats.received == 1 and server.in_flight == 0)
        assert ask(sock, QUERY) == answer(QUERY)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_stop_lets_the_answer_in_flight_leave_reads_no_more_and_frees_the_port() -> None:
    client = GatedClient()
    handler = Handler(client)
    server = UdpServer(LOOPBACK, handler)
    server.start()
    with udp_asker(server.bound) as sock:
        sock.send(QUERY)
        eventually(lambda: client.waiting == 1)
        stopping = gevent.spawn(server.stop, 10)
        settle()
        sock.send(make_query("too.late.example.com"))
        settle()
        client.gate.set()
        assert sock.recv(512) == answer(QUERY)
        stopping.get()
    assert server.stats.received == 1
    assert counted(handler.stats) == {"queries": 1}
    with (
        serving(UdpServer(server.bound, Handler(EchoingClient()))),
        udp_asker(server.bound) as sock,
    ):
        assert ask(sock, QUERY) == answer(QUERY)


@pytest.mark.parametrize("patience_seconds", [0, 0.01])
def test_stop_kills_what_exceeds_its_patience_and_counts_it(patience_seconds: float) -> None:
    client = GatedClient()
    handler = Handler(client)
    server = UdpServer(LOOPBACK, handler)
    server.start()
    with udp_asker(server.bound) as sock:
        for number in range(3):
            sock.send(make_query(id_=number))
        eventually(lambda: client.waiting == 3)
        server.stop(patience_seconds)
    assert (client.waiting, server.in_flight) == (0, 0)
    assert counted(handler.stats) == {"cancelled": 3}
    assert arrived(server) == accounted(handler, server) == 3


def test_stop_ends_at_once_when_nothing_is_in_flight() -> None:
    server = UdpServer(LOOPBACK, Handler(EchoingClient()))
    server.start()
    with udp_asker(server.bound) as sock:
        ask(sock, QUERY)
    with gevent.Timeout(5, AssertionError("stop waits for workers that have nothing to do")):
        server.stop(60)
        server.stop(60)


def test_stop_before_start_leaves_nothing_open() -> None:
    with no_descriptor_left():
        UdpServer(LOOPBACK, Handler(EchoingClient())).stop(60)
