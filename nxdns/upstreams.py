"""A generation: everything that is built from the upstreams of one configuration."""

import logging
import random
import time
from functools import partial
from typing import Any

from OpenSSL import SSL

from nxdns.config import Config, UpstreamConfig
from nxdns.platform import tls_client
from nxdns.platform.resolver import Resolver
from nxdns.units import MS_PER_SECOND, NS_PER_MS
from nxdns.upstream import doh_connection
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.depth import PIPELINE_DEPTH, Depth
from nxdns.upstream.doh_client import DohClient, DohSite
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.dot_site import DotSite
from nxdns.upstream.entry import Entry
from nxdns.upstream.history import History
from nxdns.upstream.pool import Budgets, OnEffect, UpstreamPool
from nxdns.upstream.slots import DOH_CONNECTIONS, DOT_SESSIONS, Slots
from nxdns.upstream.transport import Identity, Scheme

_log = logging.getLogger(__name__)


class StartError(Exception):
    """Why nxdns cannot run; one line for its owner."""


class Upstreams:
    """Everything built from the upstreams of one configuration."""

    def __init__(
        self, pool: UpstreamPool, resolver: Resolver, histories: dict[Identity, History]
    ) -> None:
        self.pool = pool
        #: By identity; what the next generation goes on with.
        self.histories = histories
        self._resolver = resolver

    @classmethod
    def build(
        cls,
        config: Config,
        *,
        alone: bool = False,
        before: "Upstreams | None" = None,
        on_effect: OnEffect | None = None,
    ) -> "Upstreams":
        """Nothing is dialled yet. ``alone``: each upstream carries one exchange at a time.

        An upstream that was among those ``before`` goes on with its history. One that cannot be
        built is reported, and the others serve. Raises StartError when none of the enabled ones
        can.
        """
        resolver = Resolver()
        slots_of = _SlotsFactory(config, resolver, alone=alone)
        entries: list[Entry] = []
        reason = "no upstream is enabled"
        known = {} if before is None else before.histories
        histories: dict[Identity, History] = {}
        for upstream in config.upstreams:
            history = histories[upstream.identity] = known.get(upstream.identity) or History()
            try:
                slots = slots_of(upstream, history)
            except (OSError, SSL.Error, ValueError) as exc:
                reason = f"upstream '{upstream.label}' cannot be built: {exc}"
                _log.error("%s", reason)
                continue
            entries.append(
                Entry(
                    upstream.endpoint,
                    upstream.label,
                    slots,
                    priority=upstream.priority,
                    enabled=upstream.enabled,
                    history=history,
                )
            )
        if not any(entry.enabled for entry in entries):
            resolver.close()
            raise StartError(reason)
        pool = UpstreamPool(
            entries,
            config.health,
            Budgets(config.attempt_ms * NS_PER_MS, config.total_ms * NS_PER_MS),
            clock=time.monotonic_ns,
            rand=lambda: random.getrandbits(32),
            deadlines=Deadlines(time.monotonic_ns),
            on_effect=on_effect,
        )
        return cls(pool, resolver, histories)

    def close(self) -> None:
        """Close every session. Never waits."""
        self.pool.close()
        self._resolver.close()


class _SlotsFactory:
    """Builds slots and their leaves; each kind's TLS context, which loads all trust anchors, only
    when needed."""

    def __init__(self, config: Config, resolver: Resolver, *, alone: bool) -> None:
        self._config = config
        self._resolver = resolver
        self._alone = alone
        self._dot_context: SSL.Context | None = None
        self._doh_context: Any = None

    def __call__(self, upstream: UpstreamConfig, history: History) -> Slots:
        if upstream.endpoint.scheme is Scheme.DOT:
            return self._dot(upstream, history)
        return self._doh(upstream, history)

    def _dot(self, upstream: UpstreamConfig, history: History) -> Slots:
        if self._dot_context is None:
            self._dot_context = tls_client.client_context(self._config.ca_file)
        depth = Depth(1 if self._alone else PIPELINE_DEPTH)
        site = DotSite(
            upstream.endpoint,
            upstream.tls_name,
            self._dot_context,
            history.sessions,
            depth,
            attempt_ns=self._config.attempt_ms * NS_PER_MS,
            draw_id=partial(random.getrandbits, 16),
        )
        leaves = [DotClient(site) for _ in range(1 if self._alone else DOT_SESSIONS)]
        return Slots(leaves, time.monotonic_ns, depth, history.queue)

    def _doh(self, upstream: UpstreamConfig, history: History) -> Slots:
        if self._doh_context is None:
            self._doh_context = doh_connection.client_context(self._config.ca_file)
        connections = 1 if self._alone else DOH_CONNECTIONS
        site = DohSite(
            upstream.endpoint,
            upstream.tls_name,
            self._doh_context,
            self._resolver,
            history.sessions,
            attempt_seconds=self._config.attempt_ms / MS_PER_SECOND,
            leaves=connections,
        )
        leaves = [DohClient(site) for _ in range(connections)]
        return Slots(leaves, time.monotonic_ns, Depth(1), history.queue)
