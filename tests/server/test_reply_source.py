"""Wildcards on links with several addresses: a reply comes from the address that was asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from gevent import socket

from nxdns.platform.address import ListenAddress
from nxdns.server.allow import anybody
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from tests.support.fake_clients import EchoingClient, serving
from tests.support.messages import make_query
from tests.support.namespaces import Network, ip, link, network

pytestmark = pytest.mark.integration

QUERY = make_query()
_PATIENCE_SECONDS = 10.0

# The same on both links, as link-local addresses often are (fe80::1 of every router).
_OF_SERVER = ("fe80::1/64", "fe80::11/64", "fd00::1/64", "fd00::11/64", "192.0.2.1/24")
_OF_CLIENT = ("fe80::2/64", "fd00::2/64", "192.0.2.2/24")
_FIRST, _SECOND = "wire0", "wire1"


class House(NamedTuple):
    """Two machines with two cables between them."""

    server: Network
    client: Network


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with network() as server, network() as client:
        for name in (_FIRST, _SECOND):
            link(server, client, name)
        for end, addresses in ((server, _OF_SERVER), (client, _OF_CLIENT)):
            with end.entered():
                for address in addresses:
                    _add(address, _FIRST)
                    if address.startswith("fe80"):
                        _add(address, _SECOND)
        yield House(server, client)


def _add(address: str, interface: str) -> None:
    # Without asking whether somebody else has it, which takes seconds.
    more = ["nodad"] if ":" in address else []
    ip("address", "add", address, "dev", interface, *more)


@contextmanager
def _listening(house: House, host: str) -> Iterator[Listener]:
    with house.server.entered():
        listener = Listener.bind(ListenAddress(host, 0), Handler(EchoingClient()), anybody)
    with serving(listener):
        yield listener


def _ask(house: House, source: str, asked: str, port: int, interface: str) -> None:
    """Send a datagram from and to these over that cable; the reply must come from there."""
    family = socket.AF_INET6 if ":" in asked else socket.AF_INET
    with house.client.entered():
        index = socket.if_nametoindex(interface)
        sock = socket.socket(family, socket.SOCK_DGRAM)

    def full(host: str, port: int) -> tuple[object, ...]:
        scope = index if host.startswith("fe80") else 0
        return (host, port, 0, scope) if ":" in host else (host, port)

    with sock:
        sock.settimeout(_PATIENCE_SECONDS)
        sock.bind(full(source, 0))
        sock.sendto(QUERY, full(asked, port))
        _, answering = sock.recvfrom(512)
        assert answering == full(asked, port)


@pytest.mark.parametrize("interface", [_FIRST, _SECOND])
@pytest.mark.parametrize("asked", ["fe80::1", "fe80::11"])
def test_a_link_local_client_is_answered_from_the_address_it_asked_on_its_own_link(
    house: House, asked: str, interface: str
) -> None:
    with _listening(house, "::") as listener:
        _ask(house, "fe80::2", asked, listener.bound.port, interface)
        assert listener.udp.stats.send_errors == 0


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        pytest.param("fd00::2", "fd00::11", id="global"),
        pytest.param("fd00::2", "fe80::11", id="a-global-client-asks-a-link-local-address"),
        pytest.param("fe80::2", "fd00::11", id="a-link-local-client-asks-a-global-address"),
    ],
)
def test_a_client_of_the_ipv6_wildcard_is_answered_from_the_address_it_asked(
    house: House, source: str, asked: str
) -> None:
    with _listening(house, "::") as listener:
        _ask(house, source, asked, listener.bound.port, _FIRST)


def test_a_client_of_the_ipv4_wildcard_is_answered_from_the_address_it_asked(
    house: House,
) -> None:
    with house.server.entered():
        _add("192.0.2.11/24", _FIRST)
    with _listening(house, "0.0.0.0") as listener:
        _ask(house, "192.0.2.2", "192.0.2.11", listener.bound.port, _FIRST)


def test_a_link_local_address_is_bound_on_its_own_link_alone(house: House) -> None:
    with _listening(house, f"fe80::1%{_SECOND}") as listener:
        port = listener.bound.port
        _ask(house, "fe80::2", "fe80::1", port, _SECOND)
        with house.server.entered():
            other = Listener.bind(
                ListenAddress(f"fe80::1%{_FIRST}", port), Handler(EchoingClient()), anybody
            )
        with serving(other):
            _ask(house, "fe80::2", "fe80::1", port, _FIRST)
        assert [each.udp.stats.received for each in (listener, other)] == [1, 1]


def test_a_wildcard_leaves_the_other_family_alone(house: House) -> None:
    with _listening(house, "::") as first, house.server.entered():
        second = Listener.bind(
            ListenAddress("0.0.0.0", first.bound.port), Handler(EchoingClient()), anybody
        )
        with serving(second):
            _ask(house, "fd00::2", "fd00::1", first.bound.port, _FIRST)
            _ask(house, "192.0.2.2", "192.0.2.1", first.bound.port, _FIRST)
            assert [each.udp.stats.received for each in (first, second)] == [1, 1]
