"""What is wrong with an upstream, or could be better. Pure."""

import re
from collections.abc import Sequence

from nxdns.snapshots import FlightSnapshot, Overview, UpstreamSnapshot
from nxdns.web.fault_words import words_for
from nxdns.web.notes import Note

# Of the last minute's exchanges. Fewer say little: two names looked up at once may be all.
_ENOUGH_EXCHANGES = 10
_MOST = 0.5
# One wait in a burst of a phone that wakes up is what the queue is for.
_ENOUGH_WAITS = 5
_SHARE_WAITING = 0.1
_WAITED_SECONDS = 0.001  # below, a slot was free and the clock ran on

# Of the last 32 outcomes, and only while the last failure is news.
_ENOUGH_FAILURES = 3
_NEWS_SECONDS = 600.0

_CHURN = 0.2  # recoveries an exchange
_ENOUGH_RECOVERIES = 20

_FAULT = re.compile(r"(\w+) \(cause (\w+)\)")


def notes_on_upstream(
    upstream: UpstreamSnapshot, overview: Overview, flight: Sequence[FlightSnapshot]
) -> list[Note]:
    """Of one that is enabled; ``flight`` are its last exchanges."""
    notes = []
    if upstream.tripped:
        notes.append(_tripped(upstream, overview))
    else:
        notes += _flapping(upstream, overview.at)
    notes += _refusing(upstream, flight)
    notes += _queueing(upstream, flight)
    if upstream.serial:
        notes.append(
            Note(
                f"serial {upstream.url}",
                "info",
                f"{upstream.label} is asked one query a session",
                "It closes its sessions behind its answers, so each of them carries one query at a "
                "time. That is slower in a burst, and nothing is lost.",
                "Nothing; an upstream that keeps its sessions open is quicker.",
            )
        )
    notes += _churning(upstream)
    return notes


def _tripped(upstream: UpstreamSnapshot, overview: Overview) -> Note:
    fault = _FAULT.fullmatch(upstream.last_error)
    kind, cause = fault.groups() if fault else ("", "")
    words = words_for(
        kind,
        cause,
        last_phase=_last_phase(upstream, overview),
        is_https=upstream.url.startswith("https://"),
    )
    others = [
        each.label
        for each in overview.upstreams
        if each.enabled and not each.tripped and each.index != upstream.index
    ]
    meanwhile = f" Meanwhile queries go to {others[0]}." if others else ""
    return Note(
        f"tripped {upstream.url}",
        "warning" if others else "critical",
        f"{upstream.label} {words.title}",
        f"{upstream.last_error}: {words.cause}{meanwhile}"
        if upstream.last_error
        else words.cause + meanwhile,
        words.what_to_do,
    )


def _last_phase(upstream: UpstreamSnapshot, overview: Overview) -> str:
    """Where its last failure before its episode ended, or ""."""
    for episode in overview.open_episodes:
        if episode.subject == upstream.label:
            return next((each.ended_in for each in episode.flight if each.failed), "")
    return ""


def _flapping(upstream: UpstreamSnapshot, at: float) -> list[Note]:
    failures = upstream.window.count("0")
    last = upstream.last_error_at
    if failures < _ENOUGH_FAILURES or last is None or at - last > _NEWS_SECONDS:
        return []
    often = failures >= _MOST * len(upstream.window)
    return [
        Note(
            f"flapping {upstream.url}",
            "info",  # a warning about an upstream means that it is not trusted
            f"{upstream.label} fails {'often' if often else 'now and then'}",
            f"{failures} of its last {len(upstream.window)} exchanges failed, the last with "
            f"{upstream.last_error}. Too few in a row to pass it over; each costs a client time.",
            "If it goes on, give another upstream a lower priority number, so that it is asked "
            "first.",
        )
    ]


def _refusing(upstream: UpstreamSnapshot, flight: Sequence[FlightSnapshot]) -> list[Note]:
    answers = [each.outcome for each in flight if not each.failed]
    if len(answers) < _ENOUGH_EXCHANGES:
        return []
    for rcode, why in (
        ("SERVFAIL", "It cannot resolve them itself: it, or the line behind it, is broken."),
        ("REFUSED", "It does not serve this client."),
    ):
        count = answers.count(rcode)
        if count >= _MOST * len(answers):
            return [
                Note(
                    f"rcode {upstream.url}",
                    "warning",
                    f"{upstream.label} answers {rcode} to most queries",
                    f"{count} of its last {len(answers)} answers were {rcode}. {why} An answer is "
                    "an answer, so it stays trusted, and clients get these.",
                    "Set enabled = false for it, or give another upstream a lower priority number, "
                    "and reload; tell its operator.",
                )
            ]
    return []


def _queueing(upstream: UpstreamSnapshot, flight: Sequence[FlightSnapshot]) -> list[Note]:
    waits = [each.phase_seconds[0] for each in flight if each.phase_seconds[0] > _WAITED_SECONDS]
    full = upstream.in_flight >= upstream.slots > 0
    many = len(waits) >= max(_ENOUGH_WAITS, _SHARE_WAITING * len(flight))
    if not (full or many):
        return []
    waited = (
        f" {len(waits)} of the last {len(flight)} waited, {sum(waits) / len(waits):.1f} s on "
        "average."
        if waits
        else ""
    )
    return [
        Note(
            f"queueing {upstream.url}",
            "warning",
            f"{upstream.label} is saturated: queries wait in line for it",
            f"All of its {upstream.slots} places were in use at once.{waited} It answers more "
            "slowly than clients ask.",
            "See below where its time goes. If it is slow, give a nearer upstream a lower priority "
            "number; if one device asks without end, find it.",
        )
    ]


def _churning(upstream: UpstreamSnapshot) -> list[Note]:
    recoveries = upstream.reuse_recoveries_total
    if recoveries < _ENOUGH_RECOVERIES or recoveries < _CHURN * upstream.successes_total:
        return []
    return [
        Note(
            f"churn {upstream.url}",
            "info",
            f"{upstream.label} closes idle sessions early",
            f"{recoveries} of {upstream.successes_total} exchanges found their session closed, and "
            "opened another, which costs a handshake each. Nothing was lost.",
            "Nothing; a router that forgets connections too soon can often be set to wait longer.",
        )
    ]
