"""Everything that the page, the API and the metrics show, as frozen values."""

import json
import platform
import time
from collections.abc import Sequence
from functools import lru_cache

import gevent

from nxdns import __version__
from nxdns.owner import Owner
from nxdns.platform.address import ListenAddress
from nxdns.platform.kernel_drops import datagrams_dropped
from nxdns.reloads import Reloads
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.snapshots import (
    EpisodeSnapshot,
    FlightSnapshot,
    HandlerSnapshot,
    ListenerSnapshot,
    Overview,
    StoreSnapshot,
    UpstreamSnapshot,
)
from nxdns.storage.database import Episode
from nxdns.storage.events import EventStore

_OPEN_EPISODES = 16  # flight records kept as values; more upstreams than a household has
_NOT_TOTALS = frozenset({"servfail_phases", "active"})


class Surface:
    """What surfaces ask. Only ``episodes`` waits."""

    def __init__(
        self,
        *,
        owner: Owner,
        handler: Handler,
        listeners: Sequence[Listener],
        missing: Sequence[ListenAddress],
        store: EventStore,
        reloads: Reloads,
    ) -> None:
        """``missing`` are the addresses that this machine does not have."""
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
            missing_listeners=tuple(str(address) for address in self._missing),
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
        shown = []
        for each in self._store.active() + self._store.recent(limit):
            shown.append(_episode(each))
            # A flight record takes milliseconds to read: queries have their turn in between.
            gevent.sleep(0)
        return tuple(shown)

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
    names: tuple[str, ...] = type(stats).__slots__  # type: ignore[attr-defined]
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
        flight=_flight_record(episode.flight),
    )


# The open ones are shown with every look at the page and every scrape.
@lru_cache(maxsize=_OPEN_EPISODES)
def _flight_record(text: str) -> tuple[FlightSnapshot, ...]:
    return tuple(_flight(record) for record in json.loads(text or "[]"))


def _flight(record: dict[str, object]) -> FlightSnapshot:
    return FlightSnapshot(**{**record, "phase_seconds": tuple(record["phase_seconds"])})  # type: ignore[arg-type]
