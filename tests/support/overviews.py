"""Overviews of a forwarder that is well, and what a test wants to be otherwise."""

from collections.abc import Callable, Mapping
from typing import Any

from nxdns.counters import counter_names
from nxdns.server.datagrams import UdpStats
from nxdns.server.handler import HandlerStats
from nxdns.server.tcp_server import TcpStats
from nxdns.snapshots import (
    EpisodeSnapshot,
    FlightSnapshot,
    HandlerSnapshot,
    HistogramSnapshot,
    ListenerSnapshot,
    MissingSnapshot,
    Overview,
    ReloadSnapshot,
    StoreSnapshot,
    UpstreamSnapshot,
)

AT = 1_800_000_000.0
"""When every overview here was taken: 2027-01-15T08:00:00Z."""

NO_TIMES = HistogramSnapshot((0.01, 0.1, 1.0), (0, 0, 0, 0), 0.0)


def _nothing(stats: type) -> dict[str, int]:
    """Each counter of a ``…Stats`` at 0."""
    return dict.fromkeys(counter_names(stats), 0)


def upstream_of(index: int = 0, **fields: Any) -> UpstreamSnapshot:
    """An upstream that has answered whatever it was asked."""
    well: dict[str, Any] = {
        "index": index,
        "label": f"upstream-{index}",
        "url": f"tls://192.0.2.{index + 1}",
        "enabled": True,
        "available": True,
        "tripped": False,
        "consecutive_failures": 0,
        "successes_total": 40,
        "failures_total": 0,
        "success_rate": 1.0,
        "window": "1" * 32,
        "last_success_at": AT - 1,
        "last_error_at": None,
        "last_error": "",
        "backoff_until": None,
        "in_flight": 0,
        "peak_in_flight": 3,
        "slots": 8,
        "serial": False,
        "queued_total": 0,
        "queued_seconds_total": 0.0,
        "open_sessions": 1,
        "dials_total": 2,
        "reuse_recoveries_total": 0,
        "late_answers_total": 0,
        "idle_seconds": None,
        "exchange_seconds": HistogramSnapshot((0.01, 0.1, 1.0), (30, 9, 1, 0), 1.25),
        "phase_seconds": {
            "queue": 0.0,
            "dial": 0.1,
            "tls": 0.2,
            "send": 0.0,
            "first_byte": 0.9,
            "rest": 0.05,
        },
        "rcodes": {"NOERROR": 40},
    }
    return UpstreamSnapshot(**(well | fields))


def tripped_of(last_error: str, index: int = 0, **fields: Any) -> UpstreamSnapshot:
    """An upstream that is not trusted, for its ``last_error``."""
    failed: dict[str, Any] = {
        "available": False,
        "tripped": True,
        "consecutive_failures": 2,
        "failures_total": 2,
        "success_rate": 0.0,
        "window": "00",
        "successes_total": 0,
        "last_success_at": None,
        "last_error_at": AT - 2,
        "last_error": last_error,
        "backoff_until": AT + 30,
        "rcodes": {},
    }
    return upstream_of(index, **(failed | fields))


def listener_of(**fields: Any) -> ListenerSnapshot:
    """A listener that has dropped nothing."""
    well: dict[str, Any] = {
        "address": "127.0.0.1:5300",
        "udp": {**_nothing(UdpStats), "received": 40},
        "udp_in_flight": 0,
        "udp_capacity": 64,
        "udp_kernel_drops": 0,
        "tcp": _nothing(TcpStats),
        "tcp_active": 0,
        "tcp_capacity": 64,
    }
    return ListenerSnapshot(**(well | fields))


def missing_of(
    address: str = "192.0.2.1:53", reason: str = "this machine does not have that address"
) -> MissingSnapshot:
    """An address that is waited for."""
    return MissingSnapshot(address, reason)


def overview_of(*upstreams: UpstreamSnapshot, **fields: Any) -> Overview:
    """Everything is well but what the arguments say."""
    well: dict[str, Any] = {
        "version": "1.2.3",
        "python": "3.11.9",
        "at": AT,
        "started_at": AT - 3600,
        "upstreams": upstreams or (upstream_of(),),
        "listeners": (listener_of(),),
        "missing_listeners": (),
        "handler": HandlerSnapshot(
            {**_nothing(HandlerStats), "queries": 40}, {"queue": 0}, NO_TIMES
        ),
        "store": StoreSnapshot("/var/lib/nxdns/events.db", 0, "", ""),
        "reload": ReloadSnapshot(0, 0, True, AT - 3600, ()),
        "open_episodes": (),
    }
    return Overview(**(well | fields))


def flight_of(outcome: str = "NOERROR", **fields: Any) -> FlightSnapshot:
    """One exchange that was answered quickly."""
    well: dict[str, Any] = {
        "seconds_ago": 1.5,
        "slot": 3,
        "session_seconds": 12.0,
        "reused": True,
        "phase_seconds": (0.0, 0.0, 0.0, 0.001, 0.02, 0.0),
        "ended_in": "rest",
        "outcome": outcome,
        "failed": "(cause" in outcome,
    }
    return FlightSnapshot(**(well | fields))


def episode_of(subject: str = "upstream-0", **fields: Any) -> EpisodeSnapshot:
    """An open episode."""
    fault = "ConnectFailed (cause ConnectionRefused)"
    well: dict[str, Any] = {
        "code": "upstream_exchange",
        "subject": subject,
        "detail": f"upstream '{subject}' failed: {fault}",
        "opened_at": AT - 60,
        "last_seen": AT - 5,
        "resolved_at": None,
        "occurrences": 3,
        "flight": (flight_of(fault, ended_in="dial"),),
    }
    return EpisodeSnapshot(**(well | fields))


class ScriptedSource:
    """Shows what the test has put here, and does what it says when it is asked."""

    def __init__(self, overview: Overview | None = None) -> None:
        self.shown = overview or overview_of()
        self.stored: tuple[EpisodeSnapshot, ...] = ()
        self.flights: Mapping[int, tuple[FlightSnapshot, ...]] = {}
        #: Called when the episodes are asked for, as a slow disk would be.
        self.on_episodes: Callable[[], object] = lambda: None

    def overview(self) -> Overview:
        return self.shown

    def flight(self, index: int) -> tuple[FlightSnapshot, ...]:
        return self.flights.get(index, ())

    def episodes(self, limit: int) -> tuple[EpisodeSnapshot, ...]:
        self.on_episodes()
        resolved = [each for each in self.stored if each.resolved_at is not None]
        return (*self.shown.open_episodes, *resolved[:limit])
