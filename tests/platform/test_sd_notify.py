"""What systemd is told, over a real socket; and that nothing depends on its being there."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from gevent import socket

from nxdns.platform.sd_notify import notify, reloading
from tests.support.leaks import no_descriptor_left
from tests.support.supervisor import Supervisor

pytestmark = pytest.mark.timeout(10)  # what blocks here would block for good


@pytest.mark.parametrize("abstract", [True, False], ids=["abstract", "path"])
def test_each_call_is_a_datagram_with_an_assignment_a_line(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A path in a socket's address has at most 108 bytes; a relative one is short.
    monkeypatch.chdir(tmp_path)
    with Supervisor("" if abstract else "notify") as supervisor, no_descriptor_left():
        address = supervisor.address if abstract else str(tmp_path / "notify")
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert notify("READY=1", "STATUS=serving 127.0.0.1:53; upstreams café")
        assert notify("STOPPING=1")
        assert supervisor.wait_for(2) == [
            ["READY=1", "STATUS=serving 127.0.0.1:53; upstreams café"],
            ["STOPPING=1"],
        ]


@pytest.mark.parametrize("address", [None, "", "relative/path", "vsock:2:1234"])
def test_without_an_address_that_is_one_nobody_is_told(
    address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative").mkdir()
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with Supervisor("relative/path") as supervisor:
        if address is not None:
            monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert not notify("READY=1")
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "relative/path"))
        assert notify("STOPPING=1")
        assert supervisor.wait_for(1) == [["STOPPING=1"]]


@pytest.mark.parametrize("address", ["/no/such/socket", "@nobody-is-there", "/" + "x" * 200])
def test_a_supervisor_that_is_not_there_is_no_reason_to_fail(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with no_descriptor_left():
        assert not notify("READY=1")


def test_a_supervisor_that_does_not_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    deaf: Any = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with deaf:
        deaf.bind("notify")
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        # The kernel keeps some for it, and then no more: net.unix.max_dgram_qlen.
        told = sum(1 for _ in itertools.takewhile(bool, (notify("STATUS=") for _ in range(10_000))))
        assert 0 < told < 10_000
        assert not notify("READY=1")


def test_a_reload_says_when_it_began_in_the_microseconds_of_the_monotonic_clock() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    state, since = reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert state == "RELOADING=1"
    name, _, value = since.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= after
