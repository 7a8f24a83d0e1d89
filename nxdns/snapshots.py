"""What surfaces read: frozen copies of what the pool and the server know. Imports nothing of ours.

Nothing here holds a query name, a client's address, or a URL that was not redacted. Wall-clock
times are seconds since 1970.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Durations of exchanges. ``counts[i]`` are those of at most ``bounds_seconds[i]``, and above
    the bound before; one count more than bounds, for what is above them all."""

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
    queued_total: int
    queued_seconds_total: float
    open_sessions: int
    dials_total: int
    """Sessions begun, whether or not they opened."""
    reuse_recoveries_total: int
    late_answers_total: int
    """Answers that came when nobody waited for them any more."""
    exchange_seconds: HistogramSnapshot
