"""Whoever is told by sd_notify: a real datagram socket, as systemd has one."""

import secrets
from typing import Any

import gevent
from gevent import socket

from tests.support.waiting import eventually

_PATIENCE_SECONDS = 20.0


class Supervisor:
    """Takes what it is told, in an abstract address of its own unless a path is given."""

    def __init__(self, path: str = "") -> None:
        #: What NOTIFY_SOCKET says of it.
        self.address = path or f"@nxdns-test-{secrets.token_hex(8)}"
        #: Each datagram, as its lines.
        self.told: list[list[str]] = []
        self._socket: Any = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self.address[1:]}" if self.address.startswith("@") else path)
        self._reader = gevent.spawn(self._read)

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.kill()
        self._socket.close()

    def _read(self) -> None:
        while True:
            self.told.append(self._socket.recv(65536).decode().split("\n"))

    def wait_for(self, count: int) -> list[list[str]]:
        """All that it was told, once there are ``count`` datagrams."""
        eventually(lambda: len(self.told) >= count, seconds=_PATIENCE_SECONDS)
        return self.told
