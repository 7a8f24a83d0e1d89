"""Who has a port: other programs on loopback, found by what /proc tells of them."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gevent import socket

from nxdns.platform import port_holder
from nxdns.platform.address import ListenAddress
from nxdns.platform.port_holder import holder, in_the_way
from tests.cli.ports import refusing_tcp
from tests.support.port_keeper import keeping

pytestmark = pytest.mark.integration

_NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@contextmanager
def _as_nobody() -> Iterator[None]:
    """This thread may look at the files of others as an unprivileged service may."""
    libc = ctypes.CDLL(None)
    libc.setfsuid(_NOBODY)
    try:
        yield
    finally:
        libc.setfsuid(0)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize(
    ("has", "wants"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", id="the-same-address"),
        pytest.param("0.0.0.0", "127.0.0.1", id="a-wildcard-has-it"),
        pytest.param("127.0.0.1", "0.0.0.0", id="a-wildcard-wants-it"),
        pytest.param("::1", "::1", id="ipv6"),
        pytest.param("::", "::1", id="an-ipv6-wildcard-has-it"),
        pytest.param("::1", "::", id="an-ipv6-wildcard-wants-it"),
    ],
)
def test_the_program_that_has_the_port_is_named_with_its_pid(
    protocol: str, has: str, wants: str
) -> None:
    with keeping(protocol, has) as keeper:
        told = holder(ListenAddress(wants, keeper.port), "udp", "tcp")
        assert told == f"dnsmasq (pid {keeper.pid})"


@pytest.mark.parametrize("host", ["::", "::ffff:127.0.0.1"])
def test_a_socket_of_both_families_has_the_port_of_ipv4_too(host: str) -> None:
    with keeping("udp", host, both_families=True) as keeper:
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp", "tcp")
        assert told == f"dnsmasq (pid {keeper.pid})"


def test_whoever_has_just_that_address_comes_before_a_wildcard_of_the_other_family() -> None:
    with keeping("udp", "::", name="innocent") as other, keeping("udp", port=other.port) as keeper:
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp")
        assert told == f"dnsmasq (pid {keeper.pid})"


def test_a_program_at_another_address_or_port_or_protocol_is_not_in_the_way() -> None:
    with keeping("udp", "127.0.0.2") as keeper:
        assert in_the_way(ListenAddress("127.0.0.1", keeper.port), "udp") == []
        assert in_the_way(ListenAddress("127.0.0.2", keeper.port ^ 1), "udp") == []
        assert in_the_way(ListenAddress("127.0.0.2", keeper.port), "tcp") == []
        assert in_the_way(ListenAddress("::", keeper.port), "udp") == []
        assert len(in_the_way(ListenAddress("127.0.0.2", keeper.port), "udp")) == 1


def test_a_socket_of_ours_is_told_as_such() -> None:
    sock: Any = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.bind(("127.0.0.1", 0))
        address = ListenAddress("127.0.0.1", sock.getsockname()[1])
        assert holder(address, "udp", "tcp") == "nxdns itself"


def test_where_proc_knows_of_no_socket_it_is_another_program() -> None:
    with refusing_tcp() as port:  # bound, and in no table before it listens
        assert holder(ListenAddress("127.0.0.1", port), "udp", "tcp") == "another program"


@needs_root
def test_of_a_program_that_is_hidden_from_us_the_user_is_told() -> None:
    with keeping("udp") as keeper, _as_nobody():
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp")
        assert told == "a program of user root"


@needs_root
def test_a_user_without_a_name_is_told_by_number() -> None:
    with keeping("udp", user=61234) as keeper, _as_nobody():
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp")
        assert told == "a program of user 61234"


def test_whatever_a_program_calls_itself_it_is_one_line() -> None:
    with keeping("udp", name="dns\nmas\x1bq") as keeper:
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp")
        assert told == f"dns?mas?q (pid {keeper.pid})"


def test_of_systemd_resolved_it_is_told_how_it_lets_the_port_go() -> None:
    with keeping("udp", name="systemd-resolved") as keeper:  # of which the kernel keeps 15
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp")
    assert told.startswith(f"systemd-resolved (pid {keeper.pid}); to free it, ")
    for part in ("[Resolve]", "DNSStubListener=no", "/etc/systemd/resolved.conf.d/", "restart"):
        assert part in told
    assert "\n" not in told


@needs_root
def test_systemd_resolved_is_known_by_its_user_where_it_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "passwd"
    users.write_text("root:x:0:0::/:\nbroken\nsystemd-resolve:x:61235:61235::/:/bin/false\n")
    monkeypatch.setattr(port_holder, "_USERS", users)
    monkeypatch.setattr(port_holder, "_process_with", lambda _: None)
    with keeping("udp", user=61235) as keeper:
        told = holder(ListenAddress("127.0.0.1", keeper.port), "udp")
    assert told.startswith("systemd-resolved; to free it, ")
    assert "DNSStubListener=no" in told


def test_what_ends_meanwhile_is_no_error() -> None:
    with keeping("tcp") as keeper:
        address = ListenAddress("127.0.0.1", keeper.port)
    assert holder(address, "udp", "tcp") == "another program"
