"""The cells: each is a generator that measures its rows once, for one round."""

import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dns.message
import gevent

from nxdns.dns import packet
from nxdns.dns.edns import find_opt
from nxdns.platform.address import parse_listen_address
from nxdns.upstream.validate import validate_response
from tests.bench.features import features
from tests.bench.measure import Load, cpu_seconds, first_line, peer, program, resident_mib
from tests.bench.rig import Upstream
from tests.bench.steady import SteadyRate
from tests.bench.subjects import NXDNS_DOT, SUBJECTS, Bench, Subject, config, loop_figures
from tests.bench.table import Figures
from tests.support.messages import make_query, make_response

Rows = Iterator[tuple[str, Figures]]

_QUERY = make_query(payload=1232, dnssec_ok=True)
_RESPONSE = make_response(_QUERY, *(f"192.0.2.{host}" for host in range(1, 5)))
_SLOWER = 20  # dnspython needs about so many times as long, and gets so many calls less

_BURST_LATENCY_MS = 92  # of the line on which bursts were once a staircase
_SERIAL_LATENCY_MS = 20
_SERIAL_NAMES = 30
_ECHO_IN_FLIGHT = 32
_UPSTREAMS_IN_FLIGHT = 64
_MEMORY_SECONDS = 0.1  # so few that 10 000 queries are not far exceeded
_SETTLE_SECONDS = 0.3  # between bursts: late work of one is not to be in the next


@dataclass(frozen=True)
class Cell:
    """Something to measure; ``name`` has dots, and each part of it selects it."""

    name: str
    rows: Callable[[Bench], Rows]
    #: Whether it gives the same in every round, or would take too long.
    once: bool = False


def walker(bench: Bench) -> Rows:
    """The walker against dnspython, on the same bytes."""
    calls = bench.plan.calls
    assert isinstance(validate_response(_QUERY, _RESPONSE), packet.Packet)
    for name, ours, wire in (
        ("walker: query with OPT", lambda: find_opt(packet.parse(_QUERY)), _QUERY),
        ("walker: response", lambda: packet.parse(_RESPONSE), _RESPONSE),
        ("walker: validate", lambda: validate_response(_QUERY, _RESPONSE), _RESPONSE),
    ):
        our_us = _us(ours, calls)
        their_us = _us(lambda wire=wire: dns.message.from_wire(wire), calls // _SLOWER)  # type: ignore[misc]
        yield name, {"µs": our_us, "dnspython µs": their_us, "times": their_us / our_us}


def _us(function: Callable[[], object], calls: int) -> float:
    return timeit.timeit(function, number=calls) / calls * 1e6


def echo(bench: Bench) -> Rows:
    """The bare floor of a datagram, always by our own clients: the lab's want a DNS reply."""
    with peer("echo") as (process, address):
        before = cpu_seconds(process)
        load = Load(address, in_flight=_ECHO_IN_FLIGHT, seconds=bench.plan.seconds)
        spent = cpu_seconds(process) - before
    yield (
        f"echo, {_ECHO_IN_FLIGHT} in flight",
        {
            "queries/s": load.answered / bench.plan.seconds,
            "CPU µs": spent / max(load.answered, 1) * 1e6,
            "lost": float(load.lost),
        },
    )


def _throughput(subject: Subject) -> Callable[[Bench], Rows]:
    def rows(bench: Bench) -> Rows:
        for latency_ms in bench.plan.latencies_ms:
            upstream = bench.rig.upstream(latency_ms)
            with subject.start(bench, upstream) as running:
                # Warm: sessions open, every path once taken.
                bench.rig.burst(running[1], max(bench.plan.in_flight))
                for in_flight in bench.plan.in_flight:
                    figures = loop_figures(bench, running, in_flight)
                    yield f"{subject.name}, {latency_ms} ms, {in_flight} in flight", figures

    return rows


def _burst(subject: Subject) -> Callable[[Bench], Rows]:
    def rows(bench: Bench) -> Rows:
        for names in bench.plan.bursts:
            upstream = bench.rig.upstream(_BURST_LATENCY_MS)
            yield from _bursts(bench, subject, f"{names} names at once", names, upstream)

    return rows


def _serial(subject: Subject) -> Callable[[Bench], Rows]:
    def rows(bench: Bench) -> Rows:
        upstream = bench.rig.upstream(_SERIAL_LATENCY_MS, serial=True)
        what = f"{_SERIAL_NAMES} names, serial upstream"
        yield from _bursts(bench, subject, what, _SERIAL_NAMES, upstream)

    return rows


def _bursts(bench: Bench, subject: Subject, what: str, names: int, upstream: Upstream) -> Rows:
    """One burst at a process that has done nothing yet, and one on its open sessions."""
    with subject.start(bench, upstream) as (_, address):
        figures: dict[str, float] = {}
        lost = servfail = 0
        for which in ("cold", "warm"):
            seen = bench.rig.burst(address, names)
            figures[f"{which} ms"] = seen.seconds * 1000
            lost, servfail = lost + seen.lost, servfail + seen.servfail
            gevent.sleep(_SETTLE_SECONDS)
    yield f"{subject.name}, {what}", {**figures, "lost": lost, "SERVFAIL": servfail}


def _rate(subject: Subject) -> Callable[[Bench], Rows]:
    """From a household's to far too many, whoever may have answered those before."""

    def rows(bench: Bench) -> Rows:
        with subject.start(bench, bench.rig.upstream(0)) as (process, address):
            bench.rig.burst(address, _ECHO_IN_FLIGHT)
            for per_second in bench.plan.rates:
                before = bench.rig.cpu_seconds(process)
                load = SteadyRate(address, per_second, bench.plan.seconds)
                spent = bench.rig.cpu_seconds(process) - before
                yield (
                    f"{subject.name}, {per_second} queries/s",
                    {
                        "sent/s": load.sent / load.seconds,
                        "CPU %": spent / load.seconds * 100,
                        "CPU µs": spent / max(load.answered, 1) * 1e6,
                        "p99 ms": load.p99_ms,
                        "lost": float(load.lost),
                        "SERVFAIL": float(load.servfail),
                    },
                )

    return rows


def upstreams(bench: Bench) -> Rows:
    """Whether upstreams that are not needed cost anything."""
    for count in bench.plan.upstreams:
        upstream = bench.rig.upstream(0, ports=count)
        with NXDNS_DOT.start(bench, upstream) as running:
            bench.rig.burst(running[1], _UPSTREAMS_IN_FLIGHT)
            figures = loop_figures(bench, running, _UPSTREAMS_IN_FLIGHT)
            yield f"{count} upstreams, {_UPSTREAMS_IN_FLIGHT} in flight", figures


def memory(bench: Bench) -> Rows:
    """What a process holds after so many queries."""
    with NXDNS_DOT.start(bench, bench.rig.upstream(0)) as (process, address):
        answered = 0
        for wanted in bench.plan.memory:
            while answered < wanted:
                seen = bench.rig.loop(address, _UPSTREAMS_IN_FLIGHT, _MEMORY_SECONDS)
                if not seen.answered:
                    raise RuntimeError("nothing is answered any more")
                answered += seen.answered
            held = resident_mib(process)
            yield f"after {wanted} queries", {"RSS MiB": held, "answered": float(answered)}


def start(bench: Bench) -> Rows:
    """From the start of the process to the first answer, the dial of its session included."""
    file = bench.folder / "start.toml"
    file.write_text(config(bench, bench.rig.upstream(0).dot_ports))
    started = time.monotonic()
    with program("bin/nxdns", "serve", "--config", str(file)) as child:
        address = parse_listen_address(first_line(child).split()[1])
        ready = time.monotonic() - started
        bench.rig.burst(address, 1)
        yield "start", {"listening s": ready, "first answer s": time.monotonic() - started}


CELLS = (
    Cell("walker", walker),
    Cell("echo", echo),
    *(Cell(f"throughput.{subject.name}", _throughput(subject)) for subject in SUBJECTS),
    *(Cell(f"burst.{subject.name}", _burst(subject)) for subject in SUBJECTS),
    *(Cell(f"serial.{subject.name}", _serial(subject)) for subject in SUBJECTS),
    *(Cell(f"rate.{subject.name}", _rate(subject)) for subject in SUBJECTS),
    Cell("upstreams", upstreams),
    Cell("start", start),
    Cell("memory", memory, once=True),
    Cell("features", features, once=True),
)
