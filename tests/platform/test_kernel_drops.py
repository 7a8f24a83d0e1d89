"""Datagrams that found a socket's buffer full, counted by the kernel."""

import os
from pathlib import Path
from typing import Any

import pytest
from gevent import socket

from nxdns.platform.kernel_drops import datagrams_dropped

pytestmark = pytest.mark.integration

_DATAGRAM = b"x" * 512
_SENT = 200  # several times what the smallest buffer that the kernel allows can hold


def _bound(family: int, host: str) -> Any:
    """A socket that nobody reads, with hardly any room."""
    sock: Any = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    try:
        sock.bind((host, 0))
    except OSError:
        sock.close()
        pytest.skip(f"this machine has no {host}")
    sock.setblocking(False)
    return sock


def _inode(sock: Any) -> int:
    return os.fstat(sock.fileno()).st_ino


def _flood(target: Any) -> None:
    with socket.socket(target.family, socket.SOCK_DGRAM) as sender:
        for _ in range(_SENT):
            sender.sendto(_DATAGRAM, target.getsockname()[:2])


def _read_all(sock: Any) -> int:
    """How many are there."""
    count = 0
    try:
        while True:
            sock.recv(2048)
            count += 1
    except BlockingIOError:
        return count


@pytest.mark.parametrize(
    ("family", "host"),
    [
        pytest.param(socket.AF_INET, "127.0.0.1", id="ipv4"),
        pytest.param(socket.AF_INET6, "::1", id="ipv6"),
    ],
)
def test_what_a_full_buffer_dropped_is_what_was_sent_and_never_came(family: int, host: str) -> None:
    with _bound(family, host) as full, _bound(family, host) as idle:
        assert datagrams_dropped(_inode(full)) == 0
        _flood(full)
        dropped = datagrams_dropped(_inode(full))
        assert dropped is not None
        assert dropped > 0
        assert dropped + _read_all(full) == _SENT
        # It is this socket's alone, and it never falls.
        assert datagrams_dropped(_inode(idle)) == 0
        _flood(full)
        again = datagrams_dropped(_inode(full))
        assert again is not None
        assert again - dropped + _read_all(full) == _SENT


def test_a_socket_that_is_closed_or_was_never_there_has_no_number() -> None:
    with _bound(socket.AF_INET, "127.0.0.1") as sock:
        inode = _inode(sock)
        assert datagrams_dropped(inode) == 0
    assert datagrams_dropped(inode) is None


def test_where_the_kernel_does_not_tell_there_is_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _bound(socket.AF_INET, "127.0.0.1") as sock:
        monkeypatch.setattr("nxdns.platform.kernel_drops._TABLES", (str(tmp_path / "udp"),))
        assert datagrams_dropped(_inode(sock)) is None
