"""Entries as the frozen values that surfaces read."""

from dns.rcode import Rcode

from nxdns.snapshots import FlightSnapshot, UpstreamSnapshot
from nxdns.units import NS_PER_SECOND
from nxdns.upstream.entry import Entry
from nxdns.upstream.exchange import Phase
from nxdns.upstream.health import Config
from nxdns.upstream.history import Flight

# Looked up here, for dnspython makes up a name for each number that has none.
_RCODE_NAMES = {code.value: name for name, code in Rcode.__members__.items()}
_FLIGHT_MAX_AGE_NS = 60 * NS_PER_SECOND  # what is older did not lead to what happens now


def snapshot_of(
    entry: Entry, index: int, cfg: Config, now: int, wall_seconds: float
) -> UpstreamSnapshot:
    """``now`` is monotonic nanoseconds, ``wall_seconds`` the same moment since 1970."""

    def wall(at: int | None) -> float | None:
        return None if at is None else wall_seconds - (now - at) / NS_PER_SECOND

    history, state, slots = entry.history, entry.health, entry.slots
    sessions = history.sessions
    return UpstreamSnapshot(
        index=index,
        label=entry.label,
        url=entry.endpoint.redacted,
        enabled=entry.enabled,
        available=state.available(now),
        tripped=state.tripped(cfg),
        consecutive_failures=state.consecutive_failures,
        successes_total=state.total_successes,
        failures_total=state.total_failures,
        success_rate=state.success_rate(),
        window=state.strip(),
        last_success_at=wall(state.last_success_at),
        last_error_at=wall(state.last_error_at),
        last_error=state.last_error(),
        backoff_until=wall(state.backoff_until),
        in_flight=slots.in_flight,
        peak_in_flight=slots.peak_in_flight,
        slots=slots.capacity,
        serial=slots.is_serial,
        queued_total=history.queue.waited,
        queued_seconds_total=history.queue.waited_ns / NS_PER_SECOND,
        open_sessions=sessions.open,
        dials_total=sessions.dials,
        reuse_recoveries_total=sessions.recoveries,
        late_answers_total=sessions.late_answers,
        idle_seconds=sessions.idle_seconds,
        exchange_seconds=history.durations.snapshot(),
        phase_seconds={
            phase.label: nanoseconds / NS_PER_SECOND
            for phase, nanoseconds in zip(Phase, history.phases_ns, strict=True)
        },
        rcodes={rcode_name(code): count for code, count in enumerate(history.rcodes) if count},
    )


def rcode_name(code: int) -> str:
    """Such as ``NXDOMAIN``; ``RCODE11`` for one without a name."""
    return _RCODE_NAMES.get(code) or f"RCODE{code}"


def flight_of(entry: Entry, now: int) -> tuple[FlightSnapshot, ...]:
    """The last exchanges of ``entry``, the newest first, none older than a minute."""
    return tuple(
        _flight(record, now)
        for record in reversed(entry.history.flight)
        if now - record[0] <= _FLIGHT_MAX_AGE_NS
    )


def flight_record(flight: FlightSnapshot) -> dict[str, object]:
    """As it is stored: its fields, to the microsecond. Spelled out, for queries wait meanwhile."""
    session = flight.session_seconds
    return {
        "seconds_ago": round(flight.seconds_ago, 6),
        "slot": flight.slot,
        "session_seconds": None if session is None else round(session, 6),
        "reused": flight.reused,
        "phase_seconds": [round(seconds, 6) for seconds in flight.phase_seconds],
        "ended_in": flight.ended_in,
        "outcome": flight.outcome,
        "failed": flight.failed,
    }


def _flight(record: Flight, now: int) -> FlightSnapshot:
    ended, slot, opened_at, reused, *phases, phase, fault, rcode = record
    return FlightSnapshot(
        seconds_ago=(now - ended) / NS_PER_SECOND,
        slot=slot,
        session_seconds=(ended - opened_at) / NS_PER_SECOND if opened_at else None,
        reused=reused,
        phase_seconds=tuple(nanoseconds / NS_PER_SECOND for nanoseconds in phases),
        ended_in=Phase(phase).label,
        outcome=rcode_name(rcode) if fault is None else str(fault),
        failed=fault is not None,
    )
