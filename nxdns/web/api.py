"""The API: snapshots as JSON. See docs/reference/api.md."""

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore

from nxdns.snapshots import (
    EpisodeSnapshot,
    FlightSnapshot,
    HistogramSnapshot,
    HttpSnapshot,
    Overview,
    UpstreamSnapshot,
)
from nxdns.units import TURN_SECONDS
from nxdns.web.advice import Flights, advise
from nxdns.web.notes import Note
from nxdns.web.source import Source

RESOLVED_EPISODES = 20
"""How many the diagnostics tell of: a page of them, and at most 1.5 MB with their records."""

_PHASES = ("queue", "dial", "tls", "send", "first_byte", "rest")
_RECORDS_A_TURN = 32  # half a millisecond of a desktop's time, and some of a small computer's
_DIGITS = 6  # of seconds: microseconds

_Json = dict[str, Any]


class Api:
    """Makes the bodies.

    A big one costs some milliseconds. Between its pieces the event loop has its turn, and only one
    is made at a time: so whoever asks too often waits for others who do, and DNS for none.
    """

    def __init__(self, source: Source, troubles: Callable[[], HttpSnapshot]) -> None:
        self._source = source
        self._troubles = troubles
        self._turn = BoundedSemaphore(1)

    def health(self) -> tuple[bytes, bool]:
        """The body, and whether nothing works."""
        seen = self._source.overview()
        status = _status(seen)
        conditions = {
            "upstreams": _upstreams_status(seen.upstreams),
            "listeners": _listeners_status(seen),
        }
        return _encode({"status": status, "conditions": conditions}), status == "failing"

    def upstreams(self) -> bytes:
        """Without any fault text."""
        upstreams = self._source.overview().upstreams
        return _encode({"upstreams": [_upstream(each) for each in upstreams]})

    def diagnostics(self) -> bytes:
        """Episodes with what came before each, and the last minute of each upstream."""
        episodes = self._source.episodes(RESOLVED_EPISODES)  # may wait for the disk
        with self._turn:
            seen, flights = self._look()
            pieces = [
                *_array("episodes", (_episode(each) for each in episodes)),
                b", ",
                *_array("flights", (_flight(each, flights[each.index]) for each in seen.upstreams)),
            ]
        return b"{" + b"".join(pieces) + b"}"

    def overview(self) -> bytes:
        """Everything that the page shows all the time."""
        with self._turn:
            seen, flights = self._look()
            gevent.sleep(TURN_SECONDS)
            notes = advise(seen, flights)
            return _encode(_overview(seen, self._troubles(), notes))

    def _look(self) -> tuple[Overview, Flights]:
        """Both of one moment: between the two, a reload could replace the upstreams."""
        seen = self._source.overview()
        return seen, {each.index: self._source.flight(each.index) for each in seen.upstreams}


def _array(name: str, values: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """A field that is an array of ``values``, each in pieces."""
    yield f'"{name}": ['.encode()
    for number, value in enumerate(values):
        if number:
            yield b", "
        yield from value
    yield b"]"


def _with_records(fields: _Json, name: str, records: Iterable[FlightSnapshot]) -> Iterator[bytes]:
    """An object with one field more, an array of ``records``; others have their turn within."""
    yield _encode(fields)[:-1] + b", "
    pieces = []
    for number, record in enumerate(records, start=1):
        pieces.append([_encode(_record(record))])
        if number % _RECORDS_A_TURN == 0:
            gevent.sleep(TURN_SECONDS)
    yield from _array(name, pieces)
    yield b"}"
    gevent.sleep(TURN_SECONDS)


def _encode(value: _Json) -> bytes:
    return json.dumps(value).encode()  # ASCII: a path may hold what is no text


def _status(seen: Overview) -> str:
    """The worst of the conditions."""
    of_both = _upstreams_status(seen.upstreams), _listeners_status(seen)
    return max(of_both, key=("ok", "degraded", "failing").index)


def _listeners_status(seen: Overview) -> str:
    if not seen.missing_listeners:
        return "ok"
    return "degraded" if seen.listeners else "failing"


def _upstreams_status(upstreams: Sequence[UpstreamSnapshot]) -> str:
    tripped = [each.tripped for each in upstreams if each.enabled]
    if not any(tripped):
        return "ok"
    return "failing" if all(tripped) else "degraded"


def _upstream(upstream: UpstreamSnapshot) -> _Json:
    return {
        "index": upstream.index,
        "name": upstream.label,
        "url": upstream.url,
        "enabled": upstream.enabled,
        "available": upstream.available,
        "tripped": upstream.tripped,
        "consecutive_failures": upstream.consecutive_failures,
        "successes_total": upstream.successes_total,
        "failures_total": upstream.failures_total,
        "success_rate": upstream.success_rate,
        "window": upstream.window,
        "last_success_at": _time(upstream.last_success_at),
        "last_error_at": _time(upstream.last_error_at),
        "backoff_until": _time(upstream.backoff_until),
        "in_flight": upstream.in_flight,
        "slots": upstream.slots,
        "serial": upstream.serial,
        "queued_total": upstream.queued_total,
        "queued_seconds_total": round(upstream.queued_seconds_total, _DIGITS),
        "open_sessions": upstream.open_sessions,
        "idle_seconds": upstream.idle_seconds,
        "dials_total": upstream.dials_total,
        "reuse_recoveries_total": upstream.reuse_recoveries_total,
        "late_answers_total": upstream.late_answers_total,
        "phase_seconds": {
            phase: round(seconds, _DIGITS) for phase, seconds in upstream.phase_seconds.items()
        },
        "rcodes": dict(upstream.rcodes),
    }


def _overview(seen: Overview, http: HttpSnapshot, notes: Iterable[Note]) -> _Json:
    return {
        "version": seen.version,
        "python": seen.python,
        "at": _time(seen.at),
        "started_at": _time(seen.started_at),
        "status": _status(seen),
        "notes": [asdict(note) for note in notes],
        "upstreams": [
            _upstream(each)
            | {
                "last_error": each.last_error,
                "peak_in_flight": each.peak_in_flight,
                "exchange_seconds": _histogram(each.exchange_seconds),
            }
            for each in seen.upstreams
        ],
        "listeners": [
            {
                "address": each.address,
                "udp": dict(each.udp),
                "udp_in_flight": each.udp_in_flight,
                "udp_capacity": each.udp_capacity,
                "udp_kernel_drops": each.udp_kernel_drops,
                "tcp": dict(each.tcp),
                "tcp_active": each.tcp_active,
                "tcp_capacity": each.tcp_capacity,
            }
            for each in seen.listeners
        ],
        "missing_listeners": [asdict(each) for each in seen.missing_listeners],
        "handler": {
            "totals": dict(seen.handler.totals),
            "servfail_phases": dict(seen.handler.servfail_phases),
            "wait_seconds": _histogram(seen.handler.wait_seconds),
        },
        "store": asdict(seen.store),
        "reload": {
            "ok_total": seen.reload.ok_total,
            "failed_total": seen.reload.failed_total,
            "last_ok": seen.reload.last_ok,
            "last_at": _time(seen.reload.last_at),
            "problems": list(seen.reload.problems),
        },
        "http": {
            "rejected_at_capacity_total": http.rejected_at_capacity_total,
            "errors": dict(http.errors),
        },
        "open_episodes": [_episode_without_flight(each) for each in seen.open_episodes],
    }


def _histogram(histogram: HistogramSnapshot) -> _Json:
    return {
        "bounds_seconds": list(histogram.bounds_seconds),
        "counts": list(histogram.counts),
        "sum_seconds": round(histogram.sum_seconds, _DIGITS),
    }


def _episode_without_flight(episode: EpisodeSnapshot) -> _Json:
    return {
        "code": episode.code,
        "subject": episode.subject,
        "detail": episode.detail,
        "opened_at": _time(episode.opened_at),
        "last_seen": _time(episode.last_seen),
        "resolved_at": _time(episode.resolved_at),
        "occurrences": episode.occurrences,
    }


def _episode(episode: EpisodeSnapshot) -> Iterator[bytes]:
    return _with_records(_episode_without_flight(episode), "flight", episode.flight)


def _flight(upstream: UpstreamSnapshot, records: Iterable[FlightSnapshot]) -> Iterator[bytes]:
    fields = {"index": upstream.index, "name": upstream.label}
    return _with_records(fields, "records", records)


def _record(record: FlightSnapshot) -> _Json:
    age = record.session_seconds
    return {
        "seconds_ago": round(record.seconds_ago, _DIGITS),
        "slot": record.slot,
        "session_seconds": None if age is None else round(age, _DIGITS),
        "reused": record.reused,
        "phase_seconds": {
            phase: round(seconds, _DIGITS)
            for phase, seconds in zip(_PHASES, record.phase_seconds, strict=True)
        },
        "ended_in": record.ended_in,
        "outcome": record.outcome,
        "failed": record.failed,
    }


def _time(seconds: float | None) -> str | None:
    """RFC 3339, in UTC."""
    if seconds is None:
        return None
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
