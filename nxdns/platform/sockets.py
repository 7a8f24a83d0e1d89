"""TCP connections that neither block the hub nor wait for a lookup."""

import errno
import ipaddress
from typing import Any

from gevent import socket


def socket_address(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """The family and the sockaddr of an IP literal, scope included (``fe80::1%eth0``).

    Raises OSError when the scope names no interface of this machine.
    """
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv4Address):
        return socket.AF_INET, (host, port)
    scope = address.scope_id
    if not scope:
        return socket.AF_INET6, (host, port)
    return socket.AF_INET6, (host.partition("%")[0], port, 0, _interface_index(scope))


def _interface_index(scope: str) -> int:
    if scope.isascii() and scope.isdigit():
        return int(scope)
    try:
        return int(socket.if_nametoindex(scope))
    except OSError as exc:
        # Python's own comes without an errno, by which everybody above tells one from another.
        raise OSError(errno.ENODEV, f"no interface is named {scope}") from exc


def dial(host: str, port: int, timeout_seconds: float | None = None) -> Any:
    """A connected gevent socket to an IP literal, with Nagle's algorithm off.

    ``timeout_seconds`` bounds the connect alone and raises TimeoutError; without it the caller's
    gevent.Timeout is the bound. Raises OSError. Whatever ends the call, no socket is left behind.
    """
    family, target = socket_address(host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A query is one small segment: held back for the ACK of the one before, it waits 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(timeout_seconds)
        sock.connect(target)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock
