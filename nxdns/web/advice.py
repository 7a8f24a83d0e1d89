"""What is wrong, why, and what its owner can do about it: in words, for the page. Pure.

Each note says what it is certain of. What is only counted since the start, and may be long over,
is never more than an ``info``, unless it is much.
"""

from collections.abc import Mapping, Sequence

from nxdns.snapshots import (
    FlightSnapshot,
    MissingSnapshot,
    Overview,
    ReloadSnapshot,
    StoreSnapshot,
)
from nxdns.web.listener_notes import notes_on_listener
from nxdns.web.notes import Note, Severity
from nxdns.web.upstream_notes import notes_on_upstream

Flights = Mapping[int, Sequence[FlightSnapshot]]
"""The last exchanges by an upstream's index, at most a minute old."""

_ORDER: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}


def advise(overview: Overview, flights: Flights) -> tuple[Note, ...]:
    """Everything worth knowing now, the worst first."""
    notes = [
        *_all_down(overview),
        *_reload(overview.reload),
        *_store(overview.store),
        *_missing(overview.missing_listeners),
    ]
    for upstream in overview.upstreams:
        if upstream.enabled:
            notes += notes_on_upstream(upstream, overview, flights.get(upstream.index, ()))
    for listener in overview.listeners:
        notes += notes_on_listener(listener)
    return tuple(sorted(notes, key=lambda note: _ORDER[note.severity]))


def _all_down(overview: Overview) -> list[Note]:
    enabled = [each for each in overview.upstreams if each.enabled]
    if not enabled or not all(each.tripped for each in enabled):
        return []
    return [
        Note(
            "all-down",
            "critical",
            "No name is resolved: every upstream fails",
            "None of the upstreams that are enabled is trusted now. Clients get SERVFAIL, unless "
            "one of them answers when it is tried again, which happens with every query.",
            "If all fail in the same way, it is this machine's line, clock or firewall; what is "
            "wrong with each stands below.",
        )
    ]


def _reload(reload: ReloadSnapshot) -> list[Note]:
    if not reload.last_ok:
        return [
            Note(
                "reload",
                "warning",
                "The last reload failed",
                "The configuration cannot be used as it is written, so nothing of it was: nxdns "
                "goes on with the one before.",
                "Correct the lines below, let nxdns check try the file, and reload again.",
                reload.problems,
            )
        ]
    if reload.problems:
        return [
            Note(
                "reload",
                "info",
                "A part of the configuration does not apply yet",
                "It was reloaded; what of it could not be applied while nxdns runs stands below.",
                "Restart nxdns when it suits for what needs that.",
                reload.problems,
            )
        ]
    return []


def _store(store: StoreSnapshot) -> list[Note]:
    notes = []
    if store.failing:
        notes.append(
            Note(
                "store",
                "warning",
                "Episodes cannot be stored",
                f"The store at {store.path} cannot be written: {store.failing}. DNS does not need "
                "it: what is open is kept in memory, and would be lost with a restart.",
                "Make room on its file system, mount it writable, or let path under [storage] name "
                "a file in a folder that nxdns may write. It is tried again by itself.",
            )
        )
    if store.set_aside:
        notes.append(
            Note(
                "store-damaged",
                "info",
                "The store of episodes was damaged",
                f"It was put away as {store.set_aside}, and a new one begun.",
                "Nothing, unless it happens again: then look at the card or disk below it.",
            )
        )
    return notes


def _missing(missing: Sequence[MissingSnapshot]) -> list[Note]:
    return [
        Note(
            f"missing {each.address}",
            "warning",
            f"Not listening on {each.address}",
            f"It cannot be had now: {each.reason}.",
            "Nothing, if that passes: it is tried again every second. Otherwise correct it under "
            "[server] listen, and reload nxdns.",
        )
        for each in missing
    ]
