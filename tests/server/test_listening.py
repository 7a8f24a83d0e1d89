"""Addresses that are wanted, one set after another: what stays, what goes, what cannot be had."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import gevent
import pytest
from gevent import socket

from nxdns.dns.framing import frame
from nxdns.platform.address import ListenAddress
from nxdns.server import listening
from nxdns.server.allow import anybody
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.server.listening import Listening
from nxdns.upstream.transport import Client
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
    GatedClient,
    answer,
    serving,
    settle,
    tcp_asker,
    udp_asker,
)
from tests.support.forwarder import ask_tcp, ask_udp
from tests.support.leaks import greenlets_alive, no_descriptor_left, open_descriptors
from tests.support.messages import make_query
from tests.support.port_keeper import keeping
from tests.support.quiet_port import quiet_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query()
_FOR_LONG = 60.0


class House:
    """All listeners over one client, and what is told of them."""

    def __init__(self, client: Client) -> None:
        self.told: list[tuple[list[str], list[str]]] = []
        self.handler = Handler(client)
        self.listening = Listening(self.handler, self._hear, anybody)

    def _hear(self, opened: Sequence[ListenAddress], closed: Sequence[ListenAddress]) -> None:
        self.told.append(([str(each) for each in opened], [str(each) for each in closed]))

    def want(self, *addresses: ListenAddress, drain_seconds: float = _FOR_LONG) -> None:
        """It never lets anybody else run."""
        others_ran: list[bool] = []
        gevent.spawn(others_ran.append, True)
        self.listening.want(addresses, drain_seconds)
        assert not others_ran, "it has waited for something"

    @property
    def bound(self) -> list[ListenAddress]:
        return [each.bound for each in self.listening.bound]

    @property
    def missing(self) -> list[str]:
        return [str(each) for each in self.listening.missing]


Started = Callable[..., House]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts a house that listens on what is given; it is stopped when the test ends."""
    with ExitStack() as stack:

        def start(*addresses: ListenAddress, client: Client | None = None) -> House:
            house = House(client or EchoingClient())
            stack.callback(house.listening.stop, 0)
            house.want(*addresses)
            house.listening.start()
            return house

        yield start


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is tried again all the time."""
    monkeypatch.setattr(listening, "RETRY_SECONDS", 0.001)


def _free(host: str = "127.0.0.1") -> ListenAddress:
    """An address that nobody has now, and no client gets by chance."""
    return ListenAddress(host, quiet_port())


def _assert_answers(address: ListenAddress) -> None:
    assert ask_udp(address, QUERY) == ask_tcp(address, QUERY) == answer(QUERY)


def test_what_is_wanted_next_is_bound_and_what_stays_is_not_touched(started: Started) -> None:
    first, second, third = (_free(f"127.0.0.{number}") for number in (1, 2, 3))
    house = started(first, second)
    [_, stays] = house.listening.bound
    with tcp_asker(second) as connected:
        assert connected.ask(QUERY) == answer(QUERY)
        house.want(third, second)
        assert house.bound == [third, second]
        assert house.listening.bound[1] is stays
        assert connected.ask(QUERY) == answer(QUERY), "it was not touched"
    _assert_answers(second)
    _assert_answers(third)
    assert house.told == [([str(third)], [str(first)])]


def test_the_same_again_changes_nothing(started: Started) -> None:
    house = started(LOOPBACK, LOOPBACK)
    before = list(house.listening.bound)
    assert len(set(house.bound)) == 2, "a port each, although both are wanted as 0"
    house.want(LOOPBACK, LOOPBACK)
    assert [one is other for one, other in zip(house.listening.bound, before, strict=True)] == [
        True,
        True,
    ]
    assert house.told == []


def test_what_goes_answers_what_it_has_and_frees_its_port(started: Started) -> None:
    client = GatedClient()
    stays, goes = _free(), _free("127.0.0.2")
    house = started(stays, goes, client=client)
    with udp_asker(goes) as udp, tcp_asker(goes) as tcp:
        udp.send(QUERY)
        tcp.send(QUERY)
        eventually(lambda: client.waiting == 2)
        house.want(stays)
        assert house.bound == [stays]
        assert house.listening.in_flight == 2, "they are not forgotten"
        settle()
        client.gate.set()
        assert udp.recv(512) == tcp.reply() == answer(QUERY)
        tcp.wait_for_clean_close()
    eventually(lambda: house.listening.in_flight == 0)
    with serving(Listener.bind(goes, Handler(EchoingClient()), anybody)):
        _assert_answers(goes)


def test_what_goes_is_given_no_longer_than_its_time(started: Started) -> None:
    client = GatedClient()
    stays, goes = _free(), _free("127.0.0.2")
    house = started(stays, goes, client=client)
    with udp_asker(goes) as udp, tcp_asker(goes) as tcp:
        udp.send(QUERY)
        tcp.send(QUERY)
        eventually(lambda: client.waiting == 2)
        house.want(stays, drain_seconds=0.01)
        eventually(lambda: client.waiting == 0)
        tcp.wait_for_close()
    assert house.handler.stats.cancelled == 2
    eventually(lambda: house.listening.in_flight == 0)


def test_what_had_come_before_it_went_is_answered(started: Started) -> None:
    stays, goes = _free(), _free("127.0.0.2")
    house = started(stays, goes)
    with udp_asker(goes) as udp, tcp_asker(goes) as tcp:
        for _ in range(2):
            udp.send(QUERY)
            assert udp.recv(512) == answer(QUERY)
        # All are in the kernel, and nobody has looked yet.
        udp.setblocking(False)
        queries = [make_query(id_=number) for number in range(3)]
        for query in queries:
            udp.send(query)
        tcp.sock._sock.send(frame(QUERY))
        house.want(stays)
        udp.settimeout(10)
        assert sorted(udp.recv(512) for _ in queries) == sorted(map(answer, queries))
        assert tcp.reply() == answer(QUERY)
        tcp.wait_for_clean_close()


def _wildcard(address: ListenAddress) -> ListenAddress:
    return ListenAddress("::" if address.is_ipv6 else "0.0.0.0", address.port)


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
@pytest.mark.parametrize("wildcard_first", [True, False])
def test_a_wildcard_and_its_address_take_over_from_each_other_with_queries_in_flight(
    host: str, wildcard_first: bool, started: Started
) -> None:
    client = GatedClient()
    address = _free(host)
    old, new = address, _wildcard(address)
    if wildcard_first:
        old, new = new, old
    house = started(old, client=client)
    with udp_asker(address) as early, tcp_asker(address) as early_tcp:
        early.send(QUERY)
        early_tcp.send(QUERY)
        eventually(lambda: client.waiting == 2)
        house.want(new)
        assert (house.bound, house.missing) == ([new], [])
        with udp_asker(address) as late, tcp_asker(address) as late_tcp:
            late.send(QUERY)
            late_tcp.send(QUERY)
            eventually(lambda: client.waiting == 4)
            assert house.listening.bound[0].udp.stats.received == 1
            client.gate.set()
            for asker in (early, late):
                assert asker.recv(512) == answer(QUERY), "each from the address that was asked"
            assert early_tcp.reply() == late_tcp.reply() == answer(QUERY)


def test_what_is_wanted_again_while_it_goes_begins_anew(started: Started) -> None:
    client = GatedClient()
    stays, goes = _free(), _free("127.0.0.2")
    house = started(stays, goes, client=client)
    with udp_asker(goes) as early, udp_asker(goes) as late:
        early.send(QUERY)
        eventually(lambda: client.waiting == 1)
        house.want(stays)
        house.want(stays, goes)
        assert (house.bound, house.missing) == ([stays, goes], [])
        late.send(QUERY)
        eventually(lambda: client.waiting == 2)
        assert house.listening.in_flight == 2
        client.gate.set()
        assert early.recv(512) == late.recv(512) == answer(QUERY)


@contextmanager
def _asking(address: ListenAddress, count: list[int]) -> Iterator[None]:
    """Clients that ask one query after another, and count answers."""
    stopping = False

    def client(ask: Any) -> None:
        while not stopping:
            assert ask(address, QUERY) == answer(QUERY)
            count[0] += 1

    clients = [gevent.spawn(client, ask) for ask in (ask_udp, ask_tcp) * 3]
    yield
    stopping = True
    gevent.joinall(clients, raise_error=True)


def test_under_load_neither_what_stays_nor_what_is_taken_over_loses_a_query(
    started: Started,
) -> None:
    stays, taken = _free(), _free("127.0.0.2")
    extra = ListenAddress("127.0.0.3", taken.port)
    house = started(stays, taken)
    counts = [[0], [0]]
    with _asking(stays, counts[0]), _asking(taken, counts[1]):
        for number in range(60):
            wanted = ([_wildcard(taken)], [taken, extra], [extra, taken], [taken])[number % 4]
            house.want(stays, *wanted)
            assert house.missing == []
            before = counts[0][0], counts[1][0]
            eventually(lambda b=before: counts[0][0] > b[0] + 6 and counts[1][0] > b[1] + 6)  # type: ignore[misc]
    # The answer is counted before the client hears of it.
    assert house.handler.stats.queries == counts[0][0] + counts[1][0]


def test_a_hundred_changes_leave_nothing_behind(started: Started) -> None:
    stays, goes = _free(), _free("127.0.0.2")
    house = started(stays, goes)

    def change() -> None:
        house.want(stays, _wildcard(goes))
        house.want(stays, goes)

    def rest() -> tuple[int, int]:
        eventually(lambda: not house.listening._leaving)
        settle()
        return open_descriptors(), greenlets_alive()

    change()
    before = rest()
    for _ in range(50):
        change()
    assert rest() == before
    _assert_answers(goes)


def test_one_that_cannot_be_had_is_told_with_whoever_has_it_and_the_others_are_bound(
    started: Started,
) -> None:
    stays, added = _free(), _free("127.0.0.2")
    house = started(stays)
    with keeping("udp", "127.0.0.3") as keeper:
        taken = ListenAddress("127.0.0.3", keeper.port)
        with no_descriptor_left():
            house.want(stays, taken)
        house.want(stays, taken, added)
        assert house.bound == [stays, added]
        assert house.missing == [
            f"cannot listen on {taken}: the port is in use by dnsmasq (pid {keeper.pid})"
        ]
        _assert_answers(added)


@pytest.mark.usefixtures("soon")
def test_it_is_bound_as_soon_as_it_can_be_had(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    stays = _free()
    with keeping("tcp", "127.0.0.3") as keeper:
        taken = ListenAddress("127.0.0.3", keeper.port)
        house = started(taken, stays)
        assert house.bound == [stays]
    eventually(lambda: house.bound == [taken, stays])
    assert house.missing == []
    _assert_answers(taken)
    assert house.told == [([str(taken)], [])]
    assert caplog.records == [], "it is not told again what is known"


@pytest.mark.usefixtures("soon")
def test_while_none_can_be_had_those_before_go_on_and_then_they_go(started: Started) -> None:
    old = _free()
    house = started(old)
    with keeping("udp", "127.0.0.3") as keeper:
        taken = ListenAddress("127.0.0.3", keeper.port)
        house.want(taken)
        assert house.bound == house.listening.unwanted == [old]
        _assert_answers(old)
    eventually(lambda: house.bound == [taken])
    assert house.listening.unwanted == []
    _assert_answers(taken)
    with serving(Listener.bind(old, Handler(EchoingClient()), anybody)):
        _assert_answers(old)


@pytest.mark.parametrize(
    ("host", "number", "awaited"),
    [
        pytest.param("::1", errno.EAFNOSUPPORT, False, id="no-IPv6"),
        pytest.param("::1", errno.EADDRNOTAVAIL, False, id="IPv6-is-off"),
        pytest.param("::", errno.EAFNOSUPPORT, False, id="the-wildcard"),
        pytest.param("::1", errno.EADDRINUSE, True, id="in-use"),
        pytest.param("fd00::7", errno.EAFNOSUPPORT, True, id="an-address-of-an-interface"),
        pytest.param("127.0.0.9", errno.EACCES, True, id="not-allowed"),
    ],
)
def test_what_nobody_could_ask_is_missing_and_not_awaited_beside_something_else(
    started: Started, monkeypatch: pytest.MonkeyPatch, host: str, number: int, awaited: bool
) -> None:
    stays, missing = _free(), ListenAddress(host, quiet_port())
    bind = Listener.bind

    def refuse(address: ListenAddress, *arguments: Any, **keywords: Any) -> Listener:
        if address == missing:
            raise OSError(number, os.strerror(number))
        return bind(address, *arguments, **keywords)

    monkeypatch.setattr(Listener, "bind", refuse)
    house = started(stays, missing)
    assert [each.address for each in house.listening.missing] == [missing]
    assert [each.address for each in house.listening.awaited] == [missing] * awaited
    # Alone it is what keeps the list from being had.
    house.want(missing)
    assert house.bound == house.listening.unwanted == [stays]
    assert [each.address for each in house.listening.awaited] == [missing]


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_port_is_never_shared_with_somebody_else_to_take_it_over(
    protocol: str, started: Started
) -> None:
    old = _free()
    house = started(old)
    with keeping(protocol, "127.0.0.3", old.port) as keeper:
        house.want(_wildcard(old))
        assert house.bound == [old], "it was not let go for nothing"
        assert house.missing == [
            f"cannot listen on 0.0.0.0:{old.port}: the port is in use by dnsmasq (pid {keeper.pid})"
        ]
        _assert_answers(old)


def test_when_a_take_over_fails_for_whom_nobody_sees_the_old_one_is_bound_again(
    started: Started,
) -> None:
    client = GatedClient()
    stays, old = _free("127.0.0.2"), _free()
    house = started(stays, old, client=client)
    hidden: Any = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with hidden, udp_asker(old) as early, udp_asker(old) as late, tcp_asker(old) as tcp:
        early.send(QUERY)
        eventually(lambda: client.waiting == 1)
        hidden.bind(("127.0.0.3", old.port))  # and listens not
        house.want(stays, _wildcard(old))
        assert house.bound == [stays, old]
        assert house.listening.unwanted == [old]
        assert len(house.missing) == 1
        late.send(QUERY)
        with tcp_asker(old) as late_tcp:
            late_tcp.send(QUERY)
            eventually(lambda: client.waiting == 3)
            client.gate.set()
            assert early.recv(512) == late.recv(512) == late_tcp.reply() == answer(QUERY)
        tcp.wait_for_clean_close()


@pytest.mark.usefixtures("soon")
def test_what_a_missing_wildcard_covers_goes_on_until_it_can_be_had(started: Started) -> None:
    stays, old = _free("127.0.0.2"), _free()
    house = started(stays, old)
    with keeping("udp", "127.0.0.3", old.port):
        house.want(stays, _wildcard(old))
        assert house.bound == [stays, old]
        _assert_answers(old)
        house.want(stays, ListenAddress("127.0.0.3", old.port))
        assert house.bound == [stays], "another address covers nothing of it"
        house.want(stays, old)
        house.want(stays, _wildcard(old))
    eventually(lambda: house.bound == [stays, _wildcard(old)])
    assert house.listening.unwanted == []
    _assert_answers(old)


def test_a_wildcard_goes_although_the_narrower_address_is_missing(started: Started) -> None:
    stays, old = _free("127.0.0.2"), _wildcard(_free())
    house = started(stays, old)
    house.want(stays, ListenAddress("192.0.2.1", old.port))
    assert house.bound == [stays], "its owner does not want it open any longer"
    assert len(house.missing) == 1


def test_after_a_take_over_no_other_socket_can_have_the_port(started: Started) -> None:
    client = GatedClient()
    old = _free()
    house = started(old, client=client)
    with udp_asker(old) as udp:
        udp.send(QUERY)
        eventually(lambda: client.waiting == 1)
        house.want(_wildcard(old))
        greedy: Any = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                greedy.bind((old.host, old.port))
        client.gate.set()
        assert udp.recv(512) == answer(QUERY)


def test_a_stop_waits_for_what_goes_too_and_leaves_nothing() -> None:
    client = GatedClient()
    stays, goes = _free(), _free("127.0.0.2")
    alive = greenlets_alive()
    with no_descriptor_left(), udp_asker(goes) as udp, keeping("udp", "127.0.0.3") as keeper:
        house = House(client)
        house.want(stays, goes, ListenAddress("127.0.0.3", keeper.port))
        house.listening.start()
        udp.send(QUERY)
        eventually(lambda: client.waiting == 1)
        house.want(stays, ListenAddress("127.0.0.3", keeper.port))
        stopping = gevent.spawn(house.listening.stop, _FOR_LONG)
        settle()
        assert not stopping.ready()
        client.gate.set()
        assert udp.recv(512) == answer(QUERY)
        stopping.get(timeout=10)
        house.want(goes)
        assert house.listening.in_flight == 0
    eventually(lambda: greenlets_alive() <= alive)
