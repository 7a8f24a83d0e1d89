"""Health, projected onto the store: an episode is open exactly while an upstream is not trusted."""

import json
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from nxdns.logs.rarely import Rarely
from nxdns.upstream import health
from nxdns.upstream.describe import flight_of, flight_record
from nxdns.upstream.entry import Entry
from nxdns.upstream.health import Effect, Tripped

_log: Final = logging.getLogger(__name__)

UPSTREAM_EXCHANGE: Final = "upstream_exchange"
"""The code of these episodes."""


class Store(Protocol):
    """What this needs of a store of episodes. None of it may switch greenlets."""

    def report(self, code: str, subject: str, detail: str, flight: Callable[[], str]) -> bool:
        """Open an episode, which gives True, or count an occurrence of the open one."""

    def ensure_open(self, code: str, subject: str, detail: str) -> None:
        """Open an episode if none is open."""

    def resolve(self, code: str, subject: str) -> bool:
        """Close the open episode, which gives True; with none open, nothing happens."""

    def resolve_except(self, code: str, kept: Collection[str]) -> None:
        """Close every open episode of ``code`` whose subject is not kept."""


class Episodes:
    """Applies effects in the order of their revisions, and reconciles after a change of pools."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        """``clock`` gives monotonic nanoseconds."""
        self._store = store
        self._clock = clock
        self._rarely = Rarely(_log)
        #: Labels of upstreams whose failure the log has told, and whose recovery it owes.
        self._told: set[str] = set()

    def apply(self, entry: Entry, effect: Effect) -> None:
        """Project one effect, unless a later one has been. Never switches greenlets."""
        history = entry.history
        if effect.revision < history.applied_revision:
            return
        history.applied_revision = effect.revision
        label = entry.label
        episode = effect.episode
        if isinstance(episode, Tripped):
            detail = _detail(label, episode)
            opened = self._store.report(
                UPSTREAM_EXCHANGE, label, detail, lambda: self._flight(entry)
            )
            if opened and self._rarely.warning(label, "%s", detail):
                self._told.add(label)
        elif self._store.resolve(UPSTREAM_EXCHANGE, label) and label in self._told:
            self._told.discard(label)
            _log.info("upstream '%s' has recovered", label)

    def reconcile(self, entries: Sequence[Entry], cfg: health.Config) -> None:
        """Make the store say what ``entries`` say, and nothing of any other upstream.

        To assert again what is open is no occurrence.
        """
        enabled = [entry for entry in entries if entry.enabled]
        self._store.resolve_except(UPSTREAM_EXCHANGE, {entry.label for entry in enabled})
        for entry in enabled:
            effect = entry.health.effect(cfg)
            entry.history.applied_revision = effect.revision
            if isinstance(effect.episode, Tripped):
                detail = _detail(entry.label, effect.episode)
                self._store.ensure_open(UPSTREAM_EXCHANGE, entry.label, detail)
            else:
                self._store.resolve(UPSTREAM_EXCHANGE, entry.label)

    def close(self) -> None:
        """What the log has not been told of by now, it is not told."""
        self._rarely.close()

    def _flight(self, entry: Entry) -> str:
        return json.dumps([flight_record(each) for each in flight_of(entry, self._clock())])


def _detail(label: str, episode: Tripped) -> str:
    return f"upstream '{label}' failed: {episode.fault}"
