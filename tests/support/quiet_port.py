"""Ports that the kernel gives to nobody who has not asked for just that one."""

import random
from pathlib import Path
from typing import Any

from gevent import socket

_FIRST = 10000


def quiet_port() -> int:
    """One below those of outgoing connections, and free for UDP and TCP on every address.

    A client that gets a listener's port by chance would be in the way of another bind of it.
    """
    chosen_by_kernel = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(_FIRST, int(chosen_by_kernel[0]))
        if _is_free(port):
            return port


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        sock: Any = socket.socket(socket.AF_INET6, kind)
        with sock:
            try:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                sock.bind(("::", port))
            except OSError:
                return False
    return True
