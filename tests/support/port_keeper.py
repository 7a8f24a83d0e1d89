"""Another program that has a port."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gevent import subprocess

_PROGRAM = """
import os, socket, sys
name, user, protocol, host, port, only = sys.argv[1:]
with open("/proc/self/comm", "w") as comm:
    comm.write(name)
if int(user) != os.geteuid():
    os.setuid(int(user))
family = socket.AF_INET6 if ":" in host else socket.AF_INET
kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
sock = socket.socket(family, kind)
if family == socket.AF_INET6:
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only))
# As dnsmasq does.
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind((host, int(port)))
if protocol == "tcp":
    sock.listen()
print(sock.getsockname()[1], flush=True)
sys.stdin.read()
"""


class Keeper(NamedTuple):
    """Who has it."""

    pid: int
    port: int


@contextmanager
def keeping(
    protocol: str,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    name: str = "dnsmasq",
    user: int | None = None,
    both_families: bool = False,
) -> Iterator[Keeper]:
    """A process that calls itself ``name`` and has a port, until the block ends.

    Another ``user`` is for root alone.
    """
    arguments = [
        name,
        str(os.geteuid() if user is None else user),
        protocol,
        host,
        str(port),
        str(int(not both_families)),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Keeper(process.pid, int(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
