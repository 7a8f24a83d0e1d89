"""Loopback ports at which nobody answers, and which nobody else can take meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gevent import socket


@contextmanager
def refusing_tcp() -> Iterator[int]:
    """A port that is bound and never listens: connects are refused."""
    sock: Any = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def refusing_udp() -> Iterator[int]:
    """A port whose socket is connected to itself, so that datagrams of others are refused."""
    sock: Any = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        yield sock.getsockname()[1]
