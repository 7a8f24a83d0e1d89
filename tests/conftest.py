"""Fixtures of every test."""

import ipaddress
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent import socket

from nxdns.logs.rarely import Rarely
from tests.support.authority import NAME, Authority, Issued

# A shell's background job ignores SIGINT, and so would all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# What made this build is not for the builds of tests.
os.environ.pop("NXDNS_COMPILE", None)


@pytest.fixture(autouse=True)
def only_loopback(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reaches another machine by accident; ``live`` ones say so."""
    if request.node.get_closest_marker("live"):
        return
    real = socket.socket.connect

    def connect(self: Any, address: Any) -> Any:
        if isinstance(address, tuple) and not ipaddress.ip_address(address[0]).is_loopback:
            pytest.fail(f"the test tried to reach {address}")
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.fixture(autouse=True)
def nothing_told_later(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test hears, a minute later, what happened in one before it."""
    made: list[Rarely] = []
    real = Rarely.__init__

    def init(self: Rarely, *arguments: Any, **keywords: Any) -> None:
        real(self, *arguments, **keywords)
        made.append(self)

    monkeypatch.setattr(Rarely, "__init__", init)
    yield
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority of this run."""
    folder: Path = tmp_path_factory.mktemp("authority")
    return Authority(folder)


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Issued:
    """A good certificate for NAME and 127.0.0.1."""
    return authority.issue(NAME, "127.0.0.1")
