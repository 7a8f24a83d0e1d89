"""What is measured, and what all cells are given."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nxdns.platform.address import ListenAddress
from tests.bench import measure
from tests.bench.lab import FLOOR, PEERS, LabRig, NoLab
from tests.bench.measure import forwarder
from tests.bench.rig import Rig, Upstream
from tests.bench.table import Figures

Running = tuple[int, ListenAddress]


class Skip(Exception):
    """Why a cell cannot be measured here; one line."""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    seconds: float
    latencies_ms: tuple[int, ...] = (0, 20, 92)
    in_flight: tuple[int, ...] = (1, 32, 64)
    bursts: tuple[int, ...] = (30, 200)
    rates: tuple[int, ...] = (10, 100, 1_000, 5_000, 10_000, 20_000)
    upstreams: tuple[int, ...] = (1, 2, 4, 8, 16)
    memory: tuple[int, ...] = (10_000, 100_000)
    calls: int = 20_000


@dataclass(frozen=True)
class Bench:
    """One run: how much, with what, and a folder of its own."""

    plan: Plan
    rig: Rig
    folder: Path


Start = Callable[[Bench, Upstream], AbstractContextManager[Running]]


@dataclass(frozen=True)
class Subject:
    """A forwarder to measure. Started anew it is cold, and its peak memory is that of this load."""

    name: str
    start: Start


@contextmanager
def _nxdns_dot(bench: Bench, upstream: Upstream) -> Iterator[Running]:
    with forwarder(bench.folder, config(bench, upstream.dot_ports)) as running:
        yield running


@contextmanager
def _nxdns_doh(bench: Bench, upstream: Upstream) -> Iterator[Running]:
    if upstream.doh_port is None:
        raise Skip("this upstream does not speak DoH")
    text = config(bench, (upstream.doh_port,))
    text = text.replace("tls://127.0.0.1:", "https://127.0.0.1:")
    text = text.replace(f':{upstream.doh_port}"', f':{upstream.doh_port}/dns-query"')
    with forwarder(bench.folder, text) as running:
        yield running


def config(bench: Bench, ports: tuple[int, ...]) -> str:
    """nxdns with an upstream on each of these ports, the first one asked first."""
    first, *others = ports
    more = "".join(
        f'[[upstreams]]\nurl = "tls://127.0.0.1:{port}"\ntls_name = "{bench.rig.tls_name}"\n'
        for port in others
    )
    rig = bench.rig
    extra = f'{more}[storage]\npath = ""'
    return measure.config(first, rig.tls_name, rig.ca_file, extra=extra)


def _peer(name: str) -> Start:
    @contextmanager
    def start(bench: Bench, upstream: Upstream) -> Iterator[Running]:
        if not isinstance(bench.rig, LabRig):
            raise Skip("other forwarders are configured by the lab, which is not here")
        try:
            with bench.rig.peer(name) as running:
                yield running
        except NoLab as exc:
            raise Skip(str(exc)) from exc

    return start


NXDNS_DOT = Subject("dot", _nxdns_dot)
SUBJECTS = (
    NXDNS_DOT,
    Subject("doh", _nxdns_doh),
    *(Subject(name, _peer(name)) for name in (*PEERS, FLOOR)),
)


def loop_figures(bench: Bench, running: Running, in_flight: int) -> Figures:
    """What clients see that keep so many queries in flight, and what that costs the forwarder."""
    process, address = running
    before = bench.rig.cpu_seconds(process)
    seen = bench.rig.loop(address, in_flight, bench.plan.seconds)
    spent = bench.rig.cpu_seconds(process) - before
    return {
        "queries/s": seen.answered / seen.seconds,
        "CPU µs": spent / max(seen.answered, 1) * 1e6,
        "p50 ms": seen.p50_ms,
        "p99 ms": seen.p99_ms,
        "peak MiB": bench.rig.peak_mib(process),
        "lost": float(seen.lost),
        "SERVFAIL": float(seen.servfail),
    }
