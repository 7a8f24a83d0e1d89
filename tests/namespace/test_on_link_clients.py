"""A household that asks from public addresses, whose prefix comes and goes while nxdns runs."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machines import LINK, Machine, two_machines
from tests.support.process import Child, child, config_file
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_PORT = 5300
_PATIENCE_SECONDS = 60.0
# Of nobody's household: the forwarder can be reached there whatever is on link.
_SERVER = "2001:db8:ffff::53"
_CLIENT, _PREFIX = "2001:db8:5::2", "2001:db8:5::/64"
_FETCH = (
    "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8053/metrics').read().decode())"
)


class Household:
    """The machine that nxdns runs on, and another one."""

    def __init__(self, server: Machine, client: Machine, process: Child) -> None:
        self.server = server
        self.client = client
        self.process = process

    def count(self, name: str) -> float:
        """Of the listeners together."""
        text = self.server.run(sys.executable, "-c", _FETCH)
        return sum(map(float, re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)))

    def answered(self, to: str, *options: str) -> bool:
        """Whether one query to ``to`` is; if not, it must have been counted as of a stranger."""
        over = "tcp_rejected" if "+tcp" in options else "udp_dropped"
        name = f"nxdns_{over}_not_allowed_total"
        before = self.count(name)
        asked = ["dig", "+tries=1", "+timeout=2", "-p", str(_PORT), *options, f"@{to}", "a.test"]
        told = self.client.try_run(*asked).stdout
        if "SERVFAIL" in told:  # there is no upstream
            assert self.count(name) == before
            return True
        assert self.count(name) == before + 1, told
        return False


@pytest.fixture(scope="module")
def household(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    with two_machines() as (server, client):
        server.ip(f"addr add 192.168.77.1/24 dev {LINK}")
        client.ip(f"addr add 192.168.77.2/24 dev {LINK}")
        server.ip(f"-6 addr add {_SERVER}/128 dev {LINK} nodad")
        client.ip(f"-6 addr add {_CLIENT}/64 dev {LINK} nodad")
        client.ip(f"-6 route add {_SERVER} dev {LINK}")
        # What an owner routes by hand is not on link: it may be a whole network behind a router.
        server.ip(f"-6 route add {_PREFIX} dev {LINK} metric 4000")
        folder: Path = tmp_path_factory.mktemp("household")
        file = config_file(
            folder,
            'url = "tls://127.0.0.1:1"',
            extra=f'[server]\nlisten = ["0.0.0.0:{_PORT}", "[::]:{_PORT}"]\n'
            '[web]\nlisten = "127.0.0.1:8053"\n',
        )
        with child("serve", "--config", file, inside=server.inside) as process:
            process.wait_for_line("upstreams ")
            yield Household(server, client, process)
            assert "bug" not in process.stderr


def _becomes(household: Household, fact: bool, *options: str) -> None:
    eventually(lambda: household.answered(_SERVER, *options) is fact, seconds=_PATIENCE_SECONDS)


def test_private_addresses_may_ask(household: Household) -> None:
    assert household.answered("192.168.77.1")
    assert household.answered("192.168.77.1", "+tcp")


def test_a_link_local_address_may_ask_whatever_its_interface(household: Household) -> None:
    scoped = f"{household.server.link_local}%{LINK}"
    assert household.answered(scoped)
    assert household.answered(scoped, "+tcp")


@pytest.mark.parametrize(
    ("comes", "goes"),
    [
        pytest.param(
            f"-6 addr add 2001:db8:5::1/64 dev {LINK} nodad",
            f"-6 addr del 2001:db8:5::1/64 dev {LINK}",
            id="with-an-address",
        ),
        pytest.param(
            f"-6 addr add 2001:db8:5::1/64 dev {LINK} nodad noprefixroute",
            f"-6 addr del 2001:db8:5::1/64 dev {LINK}",
            id="with-an-address-and-no-route",
        ),
        pytest.param(
            f"-6 route add {_PREFIX} dev {LINK} proto ra metric 100",
            f"-6 route del {_PREFIX} dev {LINK} proto ra metric 100",
            id="announced-by-a-router",
        ),
    ],
)
def test_a_public_prefix_may_ask_while_it_is_on_link(
    household: Household, comes: str, goes: str
) -> None:
    _becomes(household, False)
    _becomes(household, False, "+tcp")
    household.server.ip(comes)
    _becomes(household, True)
    _becomes(household, True, "+tcp")
    household.server.ip(goes)
    _becomes(household, False)
    _becomes(household, False, "+tcp")


def test_the_shared_prefix_may_not_ask_even_on_link(household: Household) -> None:
    household.server.ip(f"addr add 100.70.0.1/24 dev {LINK}")
    household.client.ip(f"addr add 100.70.0.2/24 dev {LINK}")
    household.server.ip(f"-6 addr add 2001:db8:5::1/64 dev {LINK} nodad")
    _becomes(household, True)  # so both changes have been seen
    assert not household.answered("100.70.0.1")
    assert not household.answered("100.70.0.1", "+tcp")
    household.server.ip(f"-6 addr del 2001:db8:5::1/64 dev {LINK}")
