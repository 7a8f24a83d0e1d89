"""A datagram that comes again while it is being answered."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
from gevent import socket

from nxdns.platform.address import ListenAddress
from nxdns.server.handler import Answerer, Handler
from nxdns.server.udp_server import UdpServer
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
    FixedHandler,
    GatedClient,
    accounted,
    answer,
    arrived,
    counted,
    serving,
    settle,
    udp_asker,
)
from tests.support.messages import make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

WILDCARD = ListenAddress("0.0.0.0", 0)
EITHER_ADDRESS = pytest.mark.parametrize(
    "address", [pytest.param(LOOPBACK, id="specific"), pytest.param(WILDCARD, id="wildcard")]
)
QUERY = make_query(id_=7)


@contextmanager
def asker_at(server: UdpServer, host: str, port: int) -> Iterator[Any]:
    """A client at an address and port of the test's choice; port 0 is any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.bind((host, port))
        sock.connect(("127.0.0.1", server.bound.port))
        yield sock


def assert_nothing_comes(sock: Any) -> None:
    settle()
    sock.settimeout(0)
    with pytest.raises(BlockingIOError):
        sock.recv(512)
    sock.settimeout(10)


@EITHER_ADDRESS
def test_the_answer_under_way_serves_a_retransmission(address: ListenAddress) -> None:
    client = GatedClient()
    handler = Handler(client)
    server = UdpServer(address, handler)
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        for _ in range(3):
            sock.send(QUERY)
        eventually(lambda: server.stats.received == 3 and client.waiting)
        assert (client.waiting, server.in_flight, server.stats.dropped_duplicate) == (1, 1, 2)
        client.gate.set()
        assert sock.recv(512) == answer(QUERY)
        assert_nothing_comes(sock)
        sock.send(QUERY)
        assert sock.recv(512) == answer(QUERY), "what is no longer in flight is asked again"
    assert server.stats.dropped_duplicate == 2
    assert arrived(server) == accounted(handler, server) == 4


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_query(id_=8), id="ID"),
        pytest.param(make_query("www.example.org", id_=7), id="name"),
        pytest.param(make_query("WWW.example.com", id_=7), id="case-of-the-name"),
        pytest.param(make_query(rtype="AAAA", id_=7), id="type"),
        # Its client has given up on EDNS: the answer to the first would not do.
        pytest.param(make_query(id_=7, payload=1232), id="OPT"),
    ],
)
def test_another_query_of_the_same_client_is_none(other: bytes) -> None:
    client = GatedClient()
    server = UdpServer(LOOPBACK, Handler(client))
    with serving(server), udp_asker(server.bound) as sock:
        sock.send(QUERY)
        sock.send(other)
        eventually(lambda: client.waiting == 2)
        client.gate.set()
        assert {sock.recv(512)[:2], sock.recv(512)[:2]} == {QUERY[:2], other[:2]}
    assert server.stats.dropped_duplicate == 0


@pytest.mark.parametrize("same", ["port", "host"])
def test_the_same_bytes_from_another_client_are_none(same: str) -> None:
    client = GatedClient()
    server = UdpServer(LOOPBACK, Handler(client))
    with serving(server), asker_at(server, "127.0.0.1", 0) as one:
        port = one.getsockname()[1]
        place = ("127.0.0.2", port) if same == "port" else ("127.0.0.1", 0)
        with asker_at(server, *place) as two:
            one.send(QUERY)
            two.send(QUERY)
            eventually(lambda: client.waiting == 2)
            client.gate.set()
            assert one.recv(512) == two.recv(512) == answer(QUERY)
    assert server.stats.dropped_duplicate == 0


def test_the_same_bytes_to_another_of_our_addresses_are_none() -> None:
    # A stub resolver that tries the next of its servers takes the answer from there alone.
    client = GatedClient()
    server = UdpServer(WILDCARD, Handler(client))
    with serving(server), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        places = [(host, server.bound.port) for host in ("127.0.0.1", "127.0.0.2")]
        for place in places:
            sock.sendto(QUERY, place)
        eventually(lambda: client.waiting == 2)
        client.gate.set()
        heard = sorted([sock.recvfrom(512), sock.recvfrom(512)])
    assert heard == [(answer(QUERY), place) for place in places]


def test_the_same_bytes_to_another_listener_are_none() -> None:
    client = GatedClient()
    servers = [UdpServer(LOOPBACK, Handler(client)) for _ in range(2)]
    with serving(*servers), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for server in servers:
            sock.sendto(QUERY, ("127.0.0.1", server.bound.port))
        eventually(lambda: client.waiting == 2)
    assert [server.stats.dropped_duplicate for server in servers] == [0, 0]


def test_a_query_that_was_dropped_as_all_places_were_taken_may_come_again() -> None:
    client = GatedClient()
    server = UdpServer(LOOPBACK, Handler(client), max_in_flight=1)
    with serving(server), udp_asker(server.bound) as sock:
        sock.send(make_query(id_=1))
        sock.send(QUERY)
        sock.send(QUERY)
        eventually(lambda: server.stats.received == 3)
        assert (server.stats.dropped_no_slot, server.stats.dropped_duplicate) == (2, 0)
        client.gate.set()
        assert sock.recv(512)[:2] == b"\0\1"
        sock.send(QUERY)
        assert sock.recv(512) == answer(QUERY)


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(Handler(EchoingClient()), id="answered-at-once"),
        pytest.param(FixedHandler(bytes(65508)), id="cannot-be-sent"),
    ],
)
def test_nothing_is_kept_of_what_is_over(handler: Answerer) -> None:
    server = UdpServer(LOOPBACK, handler)
    with serving(server), udp_asker(server.bound) as sock:
        for number in range(20):
            sock.send(make_query(id_=number))
            sock.send(b"")
        eventually(lambda: server.stats.received == 40 and server.in_flight == 0)
        assert not server._datagrams._answering


def test_a_killed_worker_leaves_its_query_free_to_be_asked_again() -> None:
    client = GatedClient()
    handler = Handler(client)
    server = UdpServer(LOOPBACK, handler)
    with serving(server), udp_asker(server.bound) as sock:
        sock.send(QUERY)
        eventually(lambda: client.waiting == 1)
        gevent.killall(list(server._datagrams.workers._pool))
        settle()
        assert not server._datagrams._answering
        assert (client.waiting, server.in_flight, counted(handler.stats)) == (
            0,
            0,
            {"cancelled": 1},
        )
        client.gate.set()
        sock.send(QUERY)
        assert sock.recv(512) == answer(QUERY)
    assert server.stats.dropped_duplicate == 0


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not-begun"])
def test_a_stop_that_kills_leaves_none(begun: bool) -> None:
    client = GatedClient()
    handler = Handler(client)
    server = UdpServer(LOOPBACK, handler)
    server.start()
    with udp_asker(server.bound) as sock:
        for number in range(5):
            sock.send(make_query(id_=number))
        if begun:
            eventually(lambda: client.waiting == 5)
        else:
            server.do_read()  # the workers are born, and have not had a turn
        assert len(server._datagrams._answering) == 5
        gevent.killall(list(server._datagrams.workers._pool))
        server.stop(0)
    assert not server._datagrams._answering
    assert client.waiting == 0
    assert arrived(server) == accounted(handler, server) == 5
