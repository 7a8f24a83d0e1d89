"""Where the forwarder's queries come from and where they go: an upstream, and a load."""

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nxdns.platform.address import ListenAddress
from tests.bench.measure import Load, cpu_seconds, peer, resident_mib
from tests.support.authority import NAME, Authority


@dataclass(frozen=True)
class Loaded:
    """What a closed loop, or a burst, of clients saw."""

    answered: int
    servfail: int
    lost: int
    seconds: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Upstream:
    """Where an upstream answers over DoT, and over DoH if it does."""

    dot_ports: tuple[int, ...]
    doh_port: int | None


class Rig(Protocol):
    """One way to load a forwarder."""

    about: str
    ca_file: str
    tls_name: str

    def upstream(self, latency_ms: float, *, serial: bool = False, ports: int = 1) -> Upstream:
        """One that takes so long for each answer, from now on and until the next call.

        ``serial``: it answers one query at a time on each connection. ``ports`` is on how many it
        answers over DoT.
        """

    def loop(self, server: ListenAddress, in_flight: int, seconds: float) -> Loaded:
        """Keep so many queries in flight."""

    def burst(self, server: ListenAddress, names: int) -> Loaded:
        """Ask so many names at once."""

    def cpu_seconds(self, process: int) -> float:
        """Of a process and those that it has started."""

    def peak_mib(self, process: int) -> float:
        """The most memory that they held."""


def quantile(values: list[float], part: float) -> float:
    """0.0 of nothing."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


class OwnRig:
    """The upstream and the clients of this tree. They cost as much as what they measure."""

    about = "our own upstream and clients, which cost as much as what they measure"
    tls_name = NAME

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        """``ending`` ends what is started here."""
        authority = Authority(folder)
        self.ca_file = authority.ca_file
        self._pem = authority.issue(NAME, "127.0.0.1").pem
        self._ending = ending
        self._ports: dict[tuple[str, float, int], int] = {}

    def _port(self, kind: str, latency_ms: float, which: int = 0) -> int:
        known = self._ports.get((kind, latency_ms, which))
        if known is None:
            started = peer(kind, self._pem, self._pem, str(latency_ms))
            _, address = self._ending.enter_context(started)
            known = self._ports[kind, latency_ms, which] = address.port
        return known

    def upstream(self, latency_ms: float, *, serial: bool = False, ports: int = 1) -> Upstream:
        if serial:
            return Upstream((self._port("serial", latency_ms),), None)
        all_ports = tuple(self._port("upstream", latency_ms, which) for which in range(ports))
        return Upstream(all_ports, self._port("doh", latency_ms))

    def loop(self, server: ListenAddress, in_flight: int, seconds: float) -> Loaded:
        started = time.monotonic()
        return _loaded(Load(server, in_flight=in_flight, seconds=seconds), started)

    def burst(self, server: ListenAddress, names: int) -> Loaded:
        started = time.monotonic()
        return _loaded(Load(server, in_flight=names, seconds=0.0), started)

    def cpu_seconds(self, process: int) -> float:
        return cpu_seconds(process)

    def peak_mib(self, process: int) -> float:
        return resident_mib(process, "VmHWM")


def _loaded(load: Load, started: float) -> Loaded:
    took = time.monotonic() - started
    median = statistics.median(load.latencies_ms) if load.latencies_ms else 0.0
    return Loaded(
        load.answered, load.servfail, load.lost, took, median, quantile(load.latencies_ms, 0.99)
    )
