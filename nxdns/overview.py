"""Everything that the page, the API and the metrics show, as frozen values."""

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import gevent

from nxdns import __version__
from nxdns.counters import counter_names
from nxdns.owner import Owner
from nxdns.platform.kernel_drops import datagrams_dropped
from nxdns.reloads import Reloads
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.server.listening import Missing
from nxdns.snapshots import (
    EpisodeSnapshot,
    FlightSnapshot,
    HandlerSnapshot,
    ListenerSnapshot,
    MissingSnapshot,
    Overview,
    StoreSnapshot,
    UpstreamSnapshot,
)
from nxdns.storage.database import Episode
from nxdns.storage.events import EventStore
from nxdns.units import TURN_SECONDS

_FLIGHT_FIELDS = frozenset(field.name for field in fields(FlightSnapshot))
_NOT_TOTALS = frozenset({"servfail_phases", "active"})


class Surface:
    """What surfaces ask. Only ``episodes`` waits."""

    def __init__(
        self,
        *,
        owner: Owner,
        handler: Handler,
        listeners: Sequence[Listener],
        missing: Callable[[], Sequence[Missing]],
        store: EventStore,
        reloads: Reloads,
    ) -> None:
        """``missing`` gives the addresses that somebody could ask at, and are not listened on."""
        self._owner = owner
        self._handler = handler
        self._listeners = listeners
        self._missing = missing
        self._store = store
        self._reloads = reloads
        self._started_at = time.time()

    def overview(self) -> Overview:
        """Everything, as it is now."""
        return Overview(
            version=__version__,
            python=platform.python_version(),
            at=time.time(),
            started_at=self._started_at,
            upstreams=self.upstreams(),
            listeners=tuple(_listener(each) for each in self._listeners),
            missing_listeners=tuple(
                MissingSnapshot(str(each.address), each.reason) for each in self._missing()
            ),
            handler=self._handler_snapshot(),
            store=StoreSnapshot(
                path=self._store.path,
                write_failures_total=self._store.write_failures,
                failing=self._store.failing,
                set_aside=self._store.set_aside,
            ),
            reload=self._reloads.snapshot(),
            open_episodes=tuple(_episode(each) for each in self._store.active()),
        )

    def upstreams(self) -> tuple[UpstreamSnapshot, ...]:
        """Those of the current generation, in the pool's order."""
        return tuple(self._owner.current.pool.snapshot(time.time()))

    def flight(self, index: int) -> tuple[FlightSnapshot, ...]:
        """The last exchanges of one upstream, at most a minute old, the newest first."""
        return self._owner.current.pool.flight(index)

    def episodes(self, limit: int) -> tuple[EpisodeSnapshot, ...]:
        """The open ones, then at most ``limit`` resolved ones, each the newest first. Waits."""
        resolved = self._store.recent(limit)
        told = [_episode(each) for each in self._store.active()]
        for each in resolved:
            told.append(_episode(each))
            gevent.sleep(TURN_SECONDS)  # a flight record takes a millisecond: queries go between
        return tuple(told)

    def _handler_snapshot(self) -> HandlerSnapshot:
        stats = self._handler.stats
        return HandlerSnapshot(
            totals=_totals(stats),
            servfail_phases={
                "none" if phase is None else phase.label: count
                for phase, count in stats.servfail_phases.items()
            },
            wait_seconds=self._owner.waits.snapshot(),
        )


def _totals(stats: object) -> dict[str, int]:
    """Every counter of a ``…Stats``."""
    names = counter_names(type(stats))
    return {name: getattr(stats, name) for name in names if name not in _NOT_TOTALS}


def _listener(listener: Listener) -> ListenerSnapshot:
    udp, tcp = listener.udp, listener.tcp
    return ListenerSnapshot(
        address=str(listener.bound),
        udp=_totals(udp.stats),
        udp_in_flight=udp.in_flight,
        udp_capacity=udp.capacity,
        udp_kernel_drops=datagrams_dropped(udp.inode),
        tcp=_totals(tcp.stats),
        tcp_active=tcp.stats.active,
        tcp_capacity=tcp.capacity,
    )


def _episode(episode: Episode) -> EpisodeSnapshot:
    return EpisodeSnapshot(
        code=episode.code,
        subject=episode.subject,
        detail=episode.detail,
        opened_at=episode.opened_at,
        last_seen=episode.last_seen,
        resolved_at=episode.resolved_at,
        occurrences=episode.occurrences,
        flight=_flights(episode.flight),
    )


# Those that are open are asked for with each scrape, and a household has few upstreams.
@lru_cache(maxsize=32)
def _flights(stored: str) -> tuple[FlightSnapshot, ...]:
    """A flight record as it was stored; of another version's, what this one understands."""
    records = json.loads(stored or "[]")
    return tuple(_flight(record) for record in records if record.keys() >= _FLIGHT_FIELDS)


def _flight(record: dict[str, Any]) -> FlightSnapshot:
    known = {name: record[name] for name in _FLIGHT_FIELDS}
    return FlightSnapshot(**{**known, "phase_seconds": tuple(known["phase_seconds"])})
