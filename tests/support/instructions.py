"""What a forwarded query costs, counted by callgrind; a busy machine counts the same.

The process is run twice, once with more queries than the other time. What starting and ending it
costs is in both, so the difference is the cost of the queries that only one of them had.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from gevent import Timeout, socket, subprocess

from nxdns.dns import packet
from nxdns.platform.address import ListenAddress, parse_listen_address
from tests.bench.measure import ROOT, config, peer
from tests.support import clockless
from tests.support.authority import NAME, Authority
from tests.support.messages import make_query

WARM_QUERIES = 128  # in both runs: every path taken once, every table at its size
FEW_QUERIES = 256
MANY_QUERIES = 1280
IN_FLIGHT = 1

_PATIENCE_SECONDS = 300.0  # valgrind needs up to a minute to start Python on a busy machine
_ALLOCATORS = frozenset({"malloc", "calloc", "realloc"})
_FUNCTION = re.compile(r"c?fn=\((\d+)\)(?: (.+))?")

_UNHURRIED = """
[storage]
path = ""
# Under valgrind, beside other work, an answer takes as long as it takes.
[budgets]
attempt_ms = 60000
total_ms = 120000
"""


def is_compiled() -> bool:
    """Whether the hot path of this nxdns is machine code; it then costs less."""
    return not str(packet.__file__).endswith(".py")


@dataclass(frozen=True)
class Counted:
    """What callgrind has counted in one run of a process, or what a part of it costs."""

    instructions: float
    allocations: float

    def per_query(self, less: "Counted", queries: int) -> "Counted":
        """The cost of each of the ``queries`` that this run had and ``less`` had not."""
        return Counted(
            (self.instructions - less.instructions) / queries,
            (self.allocations - less.allocations) / queries,
        )


def read_callgrind(text: str) -> Counted:
    """Sum up a callgrind.out file: all instructions, and all calls of the allocators.

    A name is written out where it first occurs and is only a number in brackets afterwards.
    """
    names: dict[str, str] = {}
    called = ""
    instructions = allocations = 0
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            number, name = match.groups()
            if name is not None:
                names[number] = name
            called = names[number]
        elif line.startswith("calls="):
            if called in _ALLOCATORS:
                allocations += int(line[6:].split()[0])
        elif line.startswith("totals: "):
            instructions = int(line.split()[1])
    return Counted(instructions, allocations)


@dataclass(frozen=True)
class Forwarding:
    """A way to serve: which Python, which program, how many queries at a time."""

    python: str = sys.executable
    program: tuple[str, ...] = ("bin/nxdns",)
    in_flight: int = IN_FLIGHT
    python_malloc: bool = True
    few: int = FEW_QUERIES
    many: int = MANY_QUERIES

    def per_query(self, folder: Path) -> Counted:
        """What a query costs that is forwarded over DoT, from datagram to datagram."""
        with self._configured(folder) as file:
            # What a first start compiles lies beside its source then: else one run would compile.
            self._forward_one(file)
            few, many = self._side_by_side(file, (self.few, self.many))
        return many.per_query(few, self.many - self.few)

    def forward_one(self, folder: Path) -> None:
        """Forward one query, and count nothing. Raises RuntimeError when it is not answered."""
        with self._configured(folder) as file:
            self._forward_one(file)

    @contextmanager
    def _configured(self, folder: Path) -> Iterator[Path]:
        authority = Authority(folder)
        pem = authority.issue(NAME).pem
        with peer("upstream", pem, pem, "0") as (_, upstream):
            file = folder / "nxdns.toml"
            file.write_text(config(upstream.port, NAME, authority.ca_file, extra=_UNHURRIED))
            yield file

    def _forward_one(self, file: Path) -> None:
        with self._serving(file, ()) as (_, address):
            _ask(address, 1, 1)

    def _side_by_side(self, file: Path, runs: tuple[int, ...]) -> list[Counted]:
        """Instructions do not depend on who else runs, so that all runs may be at once."""
        running = [gevent.spawn(self._run, file, queries) for queries in runs]
        try:
            gevent.joinall(running, raise_error=True)
        finally:
            gevent.killall(running)
        return [each.value for each in running]

    def _run(self, file: Path, queries: int) -> Counted:
        out = file.parent / f"callgrind.{queries}"
        valgrind = ("valgrind", "--tool=callgrind", "--vgdb=no", "--dump-line=no")
        with self._serving(file, (*valgrind, f"--callgrind-out-file={out}")) as (child, address):
            _ask(address, WARM_QUERIES + queries, self.in_flight)
            child.send_signal(signal.SIGTERM)
            with Timeout(_PATIENCE_SECONDS):
                child.wait()
        return read_callgrind(out.read_text())

    @contextmanager
    def _serving(self, file: Path, inside: tuple[str, ...]) -> Iterator[tuple[Any, ListenAddress]]:
        child = subprocess.Popen(
            [*inside, self.python, *self.program, "serve", "--config", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=self._environment(),
        )
        errors = gevent.spawn(child.stderr.read)
        try:
            with Timeout(_PATIENCE_SECONDS):
                line: bytes = child.stdout.readline()
            if not line:
                raise RuntimeError(f"it does not serve: {errors.get().decode()}")
            yield child, parse_listen_address(line.decode().split()[1])
        finally:
            child.kill()
            child.wait()
            errors.join()
            child.stdout.close()
            child.stderr.close()

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        # The order of a set of strings changes what is done, and with it the count.
        ours["PYTHONHASHSEED"] = "0"
        ours["GEVENT_LOOP"] = clockless.LOOP
        if not self.python_malloc:
            # Every block that Python allocates is then a call that callgrind sees.
            ours["PYTHONMALLOC"] = "malloc"
        return ours


def _ask(server: ListenAddress, queries: int, in_flight: int) -> None:
    """Ask so many queries, ``in_flight`` at a time and the next ones when all are answered."""
    query = bytearray(make_query(payload=1232))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, Timeout(_PATIENCE_SECONDS):
        sock.connect((server.host, server.port))
        for first in range(0, queries, in_flight):
            for number in range(first, first + in_flight):
                query[:2] = number.to_bytes(2, "big")
                sock.send(query)
            for _ in range(in_flight):
                reply: bytes = sock.recv(4096)
                if reply[3] & 0x0F:
                    raise RuntimeError("a query was not forwarded: its reply is no NOERROR")
