"""systemd-resolved as a client, for glibc and dig behind it. What others get: test_clients.py.

What it thinks that we can is worth as much as its answers. Where a server seems not to understand
EDNS, or to lose datagrams, it asks that one without EDNS or over TCP alone for minutes.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.authority import Authority, Issued
from tests.support.namespaces import Network, ip, link, network
from tests.support.process import child, config_file
from tests.support.resolved import Resolved, resolved
from tests.support.served import (
    FAILING,
    HOST,
    IPV4,
    IPV6,
    MANY,
    STRINGS,
    TEXT,
    UNKNOWN,
    Served,
    cannot,
    serving,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

_OURS, _NEIGHBOUR = "192.168.77.1", "192.168.77.2"
_CABLE = "lan"


@dataclass(frozen=True)
class Household:
    """Two machines and the cable between them; nxdns serves both."""

    ours: Network
    neighbour: Network
    served: Served


def _has_carrier(where: Network) -> bool:
    with where.entered():
        return "state UP" in ip("-o", "link", "show", _CABLE)


@pytest.fixture(scope="module")
def household(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, certificate: Issued
) -> Iterator[Household]:
    for program in ("unshare", "nsenter", "ip", "mount", "dig", "getent"):
        if shutil.which(program) is None:
            cannot(f"there is no {program}; Debian has it")
    folder = tmp_path_factory.mktemp("household")
    with ExitStack() as running:
        try:
            ours, neighbour = (running.enter_context(network()) for _ in range(2))
        except pytest.skip.Exception as skipped:
            cannot(str(skipped))
        link(ours, neighbour, _CABLE)
        for where, address in ((ours, _OURS), (neighbour, _NEIGHBOUR)):
            with where.entered():
                ip("address", "add", f"{address}/24", "dev", _CABLE)
        eventually(lambda: _has_carrier(ours) and _has_carrier(neighbour))
        served = running.enter_context(serving(folder, authority, certificate, "0.0.0.0:0", ours))
        yield Household(ours, neighbour, served)


@dataclass(frozen=True)
class Asking:
    """A resolved, and how an answer of 3 kB comes to it."""

    by: Resolved
    served: Served
    at_length: Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=["same machine", "neighbour"])
def asking(
    request: pytest.FixtureRequest, tmp_path: Path, household: Household
) -> Iterator[Asking]:
    served = household.served
    # Over loopback it takes datagrams of 64 kB, over a cable what goes into one frame.
    where, server, at_length = {
        "same machine": (household.ours, "127.0.0.1", served.over_udp),
        "neighbour": (household.neighbour, _OURS, served.over_tcp),
    }[request.param]
    with resolved(tmp_path, where, f"{server}:{served.port}") as by:
        yield Asking(by, served, at_length)


def test_it_gets_the_addresses_of_both_families(asking: Asking) -> None:
    with asking.served.over_udp(), asking.by.trusting() as told:
        assert asking.by.getent(HOST) == IPV4[HOST] | IPV6[HOST]
    assert told.levels == {"UDP+EDNS0"}


def test_it_comes_again_over_tcp_for_6_kb_of_addresses(asking: Asking) -> None:
    # Even where it takes datagrams of 64 kB: we send none that long.
    with asking.served.over_tcp(), asking.by.trusting() as told:
        assert asking.by.getent(MANY) == IPV4[MANY] | IPV6[MANY]
    assert told.levels == {"UDP+EDNS0"}


def test_it_gets_a_text_of_3_kb_in_one_datagram_or_over_tcp(asking: Asking) -> None:
    with asking.at_length(), asking.by.trusting() as told:
        text = asking.by.dig("+tcp", "+short", TEXT, "TXT")
    assert re.findall(r'"([^"]*)"', text) == STRINGS
    assert told.levels == {"UDP+EDNS0"}


def test_it_asks_twice_before_it_believes_that_there_is_no_such_name(asking: Asking) -> None:
    with asking.served.over_udp(), asking.by.trusting() as told:
        for kind in ("A", "AAAA"):
            assert "status: NXDOMAIN" in asking.by.dig(UNKNOWN, kind)
        assert asking.by.getent(UNKNOWN) is None
    # Some servers say so of every name when they are asked with EDNS: DVE-2018-0001. Of one that
    # says it only then, it would think so from there on.
    assert told.levels == {"UDP+EDNS0", "UDP"}


def test_a_failure_upstream_is_not_held_against_us(asking: Asking) -> None:
    with asking.by.trusting():
        assert "status: SERVFAIL" in asking.by.dig(FAILING)
    with asking.by.trusting() as told:
        assert asking.by.getent(HOST) == IPV4[HOST] | IPV6[HOST]
    assert told.levels == {"UDP+EDNS0"}


def test_who_wants_its_port_is_told_that_it_has_it(household: Household, tmp_path: Path) -> None:
    asked = config_file(
        tmp_path, 'url = "tls://127.0.0.1:853"', extra='[server]\nlisten = ["0.0.0.0:53"]\n'
    )
    inside = ["nsenter", f"--net={household.ours.path}"]
    with (
        resolved(tmp_path, household.ours, f"127.0.0.1:{household.served.port}") as holder,
        child("serve", "--config", asked, inside=inside) as wants,
    ):
        ended = wants.wait()
    assert ended.status == 1
    assert f"is in use by systemd-resolved (pid {holder.pid}); to free it" in ended.stderr
