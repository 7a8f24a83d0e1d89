"""One listen address: UDP and TCP on one port, begun and ended together, every query counted."""

import errno
import os

import gevent
import pytest
from gevent import socket

from nxdns.dns.packet import Packet, parse
from nxdns.platform.address import ListenAddress
from nxdns.server.allow import anybody
from nxdns.server.datagrams import UDP_IN_FLIGHT
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.server.udp_server import UdpServer
from nxdns.upstream.transport import LocalKind, LocalResource
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
    GatedClient,
    accounted,
    answer,
    arrived,
    counted,
    serving,
    settle,
    tcp_asker,
    udp_asker,
)
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query()


def assert_answers(address: ListenAddress, host: str) -> None:
    with udp_asker(address, host) as udp:
        udp.send(QUERY)
        assert udp.recv(512) == answer(QUERY)
    with tcp_asker(ListenAddress(host, address.port)) as tcp:
        assert tcp.ask(QUERY) == answer(QUERY)


@pytest.mark.parametrize(
    ("listen", "asked"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", id="IPv4"),
        pytest.param("::1", "::1", id="IPv6"),
        pytest.param("0.0.0.0", "127.0.0.2", id="IPv4-wildcard"),
        pytest.param("::", "::1", id="IPv6-wildcard"),
    ],
)
def test_udp_and_tcp_answer_on_the_one_port_that_the_kernel_chose(listen: str, asked: str) -> None:
    listener = Listener.bind(ListenAddress(listen, 0), Handler(EchoingClient()), anybody)
    assert listener.bound == listener.udp.bound == listener.tcp.bound
    assert listener.bound.host == listen
    assert listener.bound.port != 0
    with serving(listener):
        assert_answers(listener.bound, asked)


def test_a_port_that_is_asked_for_is_the_one_bound() -> None:
    first = Listener.bind(LOOPBACK, Handler(EchoingClient()), anybody)
    first.stop(0)
    second = Listener.bind(first.bound, Handler(EchoingClient()), anybody)
    with serving(second):
        assert second.bound == first.bound
        assert_answers(first.bound, "127.0.0.1")


def test_both_wildcards_listen_on_one_port() -> None:
    handler = Handler(EchoingClient())
    v4 = Listener.bind(ListenAddress("0.0.0.0", 0), handler, anybody)
    v6 = Listener.bind(ListenAddress("::", v4.bound.port), handler, anybody)
    with serving(v4, v6):
        assert_answers(v4.bound, "127.0.0.1")
        assert_answers(v6.bound, "::1")
    assert [arrived(v4.udp, v4.tcp), arrived(v6.udp, v6.tcp)] == [2, 2]


def test_when_tcp_cannot_bind_udp_is_let_go() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = ListenAddress("127.0.0.1", other.getsockname()[1])
        in_use = pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE))
        with no_descriptor_left(), in_use:
            Listener.bind(address, Handler(EchoingClient()), anybody)
        UdpServer(address, Handler(EchoingClient())).stop(0)


def test_when_udp_cannot_bind_nothing_is() -> None:
    server = UdpServer(LOOPBACK, Handler(EchoingClient()))
    in_use = pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE))
    with serving(server), no_descriptor_left(), in_use:
        Listener.bind(server.bound, Handler(EchoingClient()), anybody)


def test_nothing_is_answered_before_start() -> None:
    handler = Handler(EchoingClient())
    listener = Listener.bind(LOOPBACK, handler, anybody)
    with udp_asker(listener.bound) as udp, tcp_asker(listener.bound) as tcp:
        udp.send(QUERY)
        tcp.send(QUERY)
        settle()
        assert arrived(listener.udp, listener.tcp) == 0
        with serving(listener):
            assert udp.recv(512) == tcp.reply() == answer(QUERY), "the kernel has kept them"


def test_stop_before_start_leaves_nothing_open() -> None:
    with no_descriptor_left():
        Listener.bind(LOOPBACK, Handler(EchoingClient()), anybody).stop(60)


def test_stop_answers_what_is_in_flight_on_both_and_frees_the_port() -> None:
    client = GatedClient()
    listener = Listener.bind(LOOPBACK, Handler(client), anybody)
    listener.start()
    with udp_asker(listener.bound) as udp, tcp_asker(listener.bound) as tcp:
        udp.send(QUERY)
        tcp.send(QUERY)
        eventually(lambda: client.waiting == 2)
        stopping = gevent.spawn(listener.stop, 10)
        settle()
        client.gate.set()
        assert udp.recv(512) == tcp.reply() == answer(QUERY)
        tcp.wait_for_clean_close()
        stopping.get(timeout=10)
    again = Listener.bind(listener.bound, Handler(EchoingClient()), anybody)
    with serving(again):
        assert_answers(again.bound, "127.0.0.1")


def test_udp_and_tcp_wait_for_their_queries_at_the_same_time() -> None:
    client = GatedClient()
    handler = Handler(client)
    listener = Listener.bind(LOOPBACK, handler, anybody)
    listener.start()
    with udp_asker(listener.bound) as udp, tcp_asker(listener.bound) as tcp:
        udp.send(QUERY)
        tcp.send(QUERY)
        eventually(lambda: client.waiting == 2)
        stopping = gevent.spawn(listener.stop, 10)
        settle()
        with tcp_asker(listener.bound) as late:
            late.wait_for_close()
        assert listener.tcp.stats.rejected_at_capacity == 1, "TCP stops while UDP still waits"
        read_before = listener.udp.stats.received
        udp.send(QUERY)
        settle()
        assert listener.udp.stats.received == read_before, "and the other way round"
        client.gate.set()
        stopping.get(timeout=10)
    assert counted(handler.stats) == {"queries": 2}


class MoodyClient:
    """Answers, fails or holds a query for good, by the first letter of its name."""

    def __init__(self) -> None:
        self.held = GatedClient()

    def exchange(self, query: bytes) -> Packet:
        match query[13:14]:
            case b"f":
                raise LocalResource(LocalKind.SYSTEM_RESOURCES)
            case b"h":
                return self.held.exchange(query)
            case _:
                return parse(answer(query))


def test_after_a_mixed_load_every_query_is_accounted_for_exactly_once() -> None:
    client = MoodyClient()
    handler = Handler(client)
    listener = Listener.bind(LOOPBACK, handler, anybody)
    udp, tcp = listener.udp, listener.tcp
    good, failing, held = (make_query(f"{mood}.example.com") for mood in "gfh")
    two_questions = good[:5] + b"\2" + good[6:] + good[12:]
    notify = good[:2] + b"\x21" + good[3:]
    each = [good, failing, two_questions, notify, good[:5], answer(good), good + b"\0"]
    listener.start()
    with udp_asker(udp.bound) as asker:
        for datagram in (*each, bytes(4097), bytes(9000)):
            asker.send(datagram)
            settle()
        with tcp_asker(udp.bound) as many:
            for query in (good, failing, two_questions, notify, good + b"\0"):
                many.ask(query)
            many.send(good[:5])
            many.wait_for_close()
        for number in range(UDP_IN_FLIGHT):
            asker.send(make_query("h.example.com", id_=number))
        with tcp_asker(udp.bound) as killed:
            killed.send(held)
            eventually(lambda: client.held.waiting == UDP_IN_FLIGHT + 1)
            for _ in range(5):
                asker.send(good)
            eventually(lambda: udp.stats.received == UDP_IN_FLIGHT + 14)
            listener.stop(0.01)

    assert counted(handler.stats) == {
        "queries": 2,
        "servfail": 2,
        "formerr": 4,
        "notimp": 2,
        "dropped_malformed": 3,
        "cancelled": UDP_IN_FLIGHT + 1,
    }
    assert tcp.stats.messages == 7
    assert (udp.stats.dropped_oversize, udp.stats.dropped_no_slot) == (2, 5)
    assert udp.stats.dropped_handler == 2
    assert arrived(udp, tcp) == accounted(handler, udp, tcp) == UDP_IN_FLIGHT + 21
