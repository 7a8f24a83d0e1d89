"""What surfaces read: frozen copies of what the pool and the server know. Imports nothing of ours.

Nothing here holds a query name, a client's address, or a URL that was not redacted. Wall-clock
times are seconds since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Durations. ``counts[i]`` are those of at most ``bounds_seconds[i]``, and above the bound
    before; one count more than bounds, for what is above them all."""

    bounds_seconds: tuple[float, ...]
    counts: tuple[int, ...]
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class UpstreamSnapshot:
    """One upstream, as it was when it was asked for."""

    index: int
    """Position in the pool's order, from 0."""
    label: str
    url: str
    """Redacted."""
    enabled: bool
    available: bool
    tripped: bool
    consecutive_failures: int
    successes_total: int
    failures_total: int
    success_rate: float
    window: str
    """Newest outcome first, ``1`` for a success."""
    last_success_at: float | None
    last_error_at: float | None
    last_error: str
    """``<Kind> (cause <Cause>)``, or "" before the first."""
    backoff_until: float | None
    in_flight: int
    peak_in_flight: int
    slots: int
    """Exchanges that fit at once."""
    serial: bool
    """Whether it is asked one exchange a session, for it closes its sessions behind answers."""
    queued_total: int
    queued_seconds_total: float
    open_sessions: int
    dials_total: int
    """Sessions begun, whether or not they opened."""
    reuse_recoveries_total: int
    late_answers_total: int
    """Answers that came when nobody waited for them any more."""
    idle_seconds: float | None
    """How long a session may stay idle, as the server has stated; None while it has not."""
    exchange_seconds: HistogramSnapshot
    phase_seconds: Mapping[str, float]
    """Where the time of its exchanges went: queue, dial, tls, send, first_byte, rest."""
    rcodes: Mapping[str, int]
    """Answers by RCODE; those that have occurred."""


@dataclass(frozen=True, slots=True)
class FlightSnapshot:
    """One exchange of the flight record of an upstream."""

    seconds_ago: float
    slot: int
    session_seconds: float | None
    """Age of its session when it ended; None when none was open."""
    reused: bool
    phase_seconds: tuple[float, ...]
    """Queue, dial, tls, send, first_byte, rest."""
    ended_in: str
    """The phase that it ended in."""
    outcome: str
    """An RCODE, or ``<Kind> (cause <Cause>)``."""
    failed: bool


@dataclass(frozen=True, slots=True)
class EpisodeSnapshot:
    """An upstream was not trusted from ``opened_at`` on, until ``resolved_at``."""

    code: str
    subject: str
    """The upstream's label."""
    detail: str
    opened_at: float
    last_seen: float
    resolved_at: float | None
    occurrences: int
    flight: tuple[FlightSnapshot, ...]
    """What came before it, newest first; ``seconds_ago`` counts back from ``opened_at``."""


@dataclass(frozen=True, slots=True)
class ListenerSnapshot:
    """One listen address. Totals by name, as ``received``; they are never reset."""

    address: str
    udp: Mapping[str, int]
    udp_in_flight: int
    udp_capacity: int
    udp_kernel_drops: int | None
    """Datagrams that the kernel dropped before they were read; None where it does not tell."""
    tcp: Mapping[str, int]
    tcp_active: int
    tcp_capacity: int


@dataclass(frozen=True, slots=True)
class MissingSnapshot:
    """A configured address that is not listened on; it is tried again every second."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class HandlerSnapshot:
    """What became of the queries."""

    totals: Mapping[str, int]
    """As ``queries``, ``servfail``."""
    servfail_phases: Mapping[str, int]
    """SERVFAILs by the phase in which the query's time, or its last upstream, ran out; ``none``
    for those that never reached one."""
    wait_seconds: HistogramSnapshot
    """How long clients waited for what needed an upstream, failed attempts included."""


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The store of episodes."""

    path: str
    """"" when it is in memory only."""
    write_failures_total: int
    failing: str
    """Why what is pending cannot be written; "" when all is well."""
    set_aside: str
    """The name under which a damaged file was put away; "" when none was."""


@dataclass(frozen=True, slots=True)
class ReloadSnapshot:
    """Reloads since the start, which counts as neither."""

    ok_total: int
    failed_total: int
    last_ok: bool
    last_at: float
    """Of the last reload, or of the start."""
    problems: tuple[str, ...]
    """Why the last one failed, or what of it does not apply; a line each."""


@dataclass(frozen=True, slots=True)
class HttpSnapshot:
    """The web server's own troubles."""

    rejected_at_capacity_total: int
    errors: Mapping[str, int]
    """By reason."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at one moment."""

    version: str
    python: str
    at: float
    started_at: float
    upstreams: tuple[UpstreamSnapshot, ...]
    listeners: tuple[ListenerSnapshot, ...]
    missing_listeners: tuple[MissingSnapshot, ...]
    handler: HandlerSnapshot
    store: StoreSnapshot
    reload: ReloadSnapshot
    open_episodes: tuple[EpisodeSnapshot, ...]
