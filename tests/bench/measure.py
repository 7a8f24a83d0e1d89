"""Start programs, load them, and see what they cost."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
from gevent import Timeout, socket, subprocess

from nxdns.platform.address import ListenAddress, parse_listen_address
from tests.support.messages import make_query

ROOT = Path(__file__).parent.parent.parent

_CPUCLOCK_SCHED = 2  # linux/posix-timers.h: of a whole process, in nanoseconds
_START_SECONDS = 20.0
_LOST_SECONDS = 6.0


def config(port: int, name: str, ca_file: str, *, web: str = "", extra: str = "") -> str:
    """A configuration with one upstream over DoT, on a port of this machine; the page is ``web``,
    and ``extra`` further tables."""
    return f"""
[server]
listen = ["127.0.0.1:0"]
[[upstreams]]
url = "tls://127.0.0.1:{port}"
tls_name = "{name}"
[tls]
ca_file = "{ca_file}"
[web]
listen = "{web}"
{extra}
"""


@contextmanager
def program(*arguments: str) -> Iterator[Any]:
    """A Python program of this tree; killed at the end of the block."""
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def first_line(child: Any) -> str:
    """What the program says once it is ready."""
    with Timeout(_START_SECONDS):
        line: bytes = child.stdout.readline()
    return line.decode().strip()


@contextmanager
def peer(*arguments: str) -> Iterator[tuple[int, ListenAddress]]:
    """A program of tests.bench.peers: its process and where it listens."""
    with program("-m", "tests.bench.peers", *arguments) as child:
        yield child.pid, ListenAddress("127.0.0.1", int(first_line(child)))


@contextmanager
def forwarder(folder: Path, text: str) -> Iterator[tuple[int, ListenAddress]]:
    """``nxdns serve`` with this configuration: its process and where it listens."""
    file = folder / "nxdns.toml"
    file.write_text(text)
    with program("bin/nxdns", "serve", "--config", str(file)) as child:
        yield child.pid, parse_listen_address(first_line(child).split()[1])


def cpu_seconds(process: int) -> float:
    """User and system time that a process has used."""
    # Its clock, as clock_getcpuclockid(3) names it: /proc counts in steps of 10 ms, and a hundred
    # queries do not need that much.
    return time.clock_gettime(~process << 3 | _CPUCLOCK_SCHED)


def resident_mib(process: int, which: str = "VmRSS") -> float:
    """Memory that a process holds, or with ``VmHWM`` the most that it has ever held."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"a process has a {which}")


def descriptors(process: int) -> int:
    """Descriptors that a process has open."""
    return len(os.listdir(f"/proc/{process}/fd"))


class Load:
    """A closed loop of clients over UDP for some seconds; its figures are complete afterwards.

    Each asks for a name of its own, and at least once.
    """

    def __init__(self, server: ListenAddress, *, in_flight: int, seconds: float) -> None:
        self.answered = 0
        self.servfail = 0
        self.lost = 0
        self.latencies_ms: list[float] = []
        self._server = server
        self._ending = time.monotonic() + seconds
        clients = [gevent.spawn(self._client, number) for number in range(in_flight)]
        gevent.joinall(clients, raise_error=True)

    def _client(self, number: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((self._server.host, self._server.port))
            query = bytearray(make_query(f"n{number}.example.com", payload=1232))
            first = True
            while (started := time.monotonic()) < self._ending or first:
                first = False
                query[:2] = os.urandom(2)
                sock.send(query)
                reply = self._reply_to(sock, query)
                if reply is None:
                    self.lost += 1
                    continue
                self.latencies_ms.append((time.monotonic() - started) * 1000)
                if reply[3] & 0x0F == 2:
                    self.servfail += 1
                else:
                    self.answered += 1

    def _reply_to(self, sock: Any, query: bytearray) -> bytes | None:
        with Timeout(_LOST_SECONDS, False):
            while True:
                reply: bytes = sock.recv(4096)
                if reply[:2] == query[:2]:
                    return reply
        return None
