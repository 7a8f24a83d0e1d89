"""The composition root: the only module that knows every class."""

import errno
import logging
import os
import random
import time
from functools import partial
from typing import Any

import gevent
from OpenSSL import SSL

from nxdns.config import Config, UpstreamConfig
from nxdns.platform import tls_client
from nxdns.platform.address import ListenAddress
from nxdns.platform.resolver import Resolver
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.snapshots import UpstreamSnapshot
from nxdns.units import MS_PER_SECOND, NS_PER_MS
from nxdns.upstream import doh_connection
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.depth import PIPELINE_DEPTH, Depth
from nxdns.upstream.doh_client import DohClient, DohSite
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.dot_site import DotSite
from nxdns.upstream.pool import Budgets, Entry, OnEffect, UpstreamPool
from nxdns.upstream.slots import DOH_CONNECTIONS, DOT_SESSIONS, Slots
from nxdns.upstream.transitions import TransitionLog
from nxdns.upstream.transport import Scheme, SessionStats

_log = logging.getLogger(__name__)


# What bind says of an address, a family or an interface that this machine does not have (yet).
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENODEV, errno.ENXIO})


class StartError(Exception):
    """Why nxdns cannot run; one line for its owner."""


class Upstreams:
    """Everything built from the upstreams of one configuration."""

    def __init__(self, pool: UpstreamPool, resolver: Resolver) -> None:
        self.pool = pool
        self._resolver = resolver

    @classmethod
    def build(
        cls, config: Config, *, alone: bool = False, on_effect: OnEffect | None = None
    ) -> "Upstreams":
        """Nothing is dialled yet. ``alone``: each upstream carries one exchange at a time.

        One that cannot be built is reported, and the others serve. Raises StartError when none
        of the enabled ones can.
        """
        resolver = Resolver()
        slots_of = _SlotsFactory(config, resolver, alone=alone)
        entries: list[Entry] = []
        reason = "no upstream is enabled"
        for upstream in config.upstreams:
            sessions = SessionStats()
            try:
                slots = slots_of(upstream, sessions)
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
                    sessions=sessions,
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
        return cls(pool, resolver)

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

    def __call__(self, upstream: UpstreamConfig, sessions: SessionStats) -> Slots:
        if upstream.endpoint.scheme is Scheme.DOT:
            return self._dot(upstream, sessions)
        return self._doh(upstream, sessions)

    def _dot(self, upstream: UpstreamConfig, sessions: SessionStats) -> Slots:
        if self._dot_context is None:
            self._dot_context = tls_client.client_context(self._config.ca_file)
        depth = Depth(1 if self._alone else PIPELINE_DEPTH)
        site = DotSite(
            upstream.endpoint,
            upstream.tls_name,
            self._dot_context,
            sessions,
            depth,
            attempt_ns=self._config.attempt_ms * NS_PER_MS,
            draw_id=partial(random.getrandbits, 16),
        )
        leaves = [DotClient(site) for _ in range(1 if self._alone else DOT_SESSIONS)]
        return Slots(leaves, time.monotonic_ns, depth)

    def _doh(self, upstream: UpstreamConfig, sessions: SessionStats) -> Slots:
        if self._doh_context is None:
            self._doh_context = doh_connection.client_context(self._config.ca_file)
        connections = 1 if self._alone else DOH_CONNECTIONS
        site = DohSite(
            upstream.endpoint,
            upstream.tls_name,
            self._doh_context,
            self._resolver,
            sessions,
            attempt_seconds=self._config.attempt_ms / MS_PER_SECOND,
            leaves=connections,
        )
        return Slots([DohClient(site) for _ in range(connections)], time.monotonic_ns, Depth(1))


class App:
    """The forwarder: upstreams, handler, listeners."""

    def __init__(self, config: Config) -> None:
        """Build and bind everything. Raises StartError; then nothing is left open."""
        self._config = config
        self.upstreams = Upstreams.build(config, on_effect=TransitionLog().note)
        self.handler = Handler(self.upstreams.pool)
        self.listeners: list[Listener] = []
        try:
            for address in config.listen:
                self._bind(address)
            if not self.listeners:
                raise StartError("none of the listen addresses exists on this machine")
        except BaseException:
            self.stop()
            raise

    def _bind(self, address: ListenAddress) -> None:
        try:
            self.listeners.append(Listener.bind(address, self.handler))
        except OSError as exc:
            if exc.errno not in _NOT_HERE:
                raise StartError(f"cannot listen on {address}: {_bind_reason(exc)}") from exc
            _log.warning("not listening on %s: %s", address, exc.strerror)

    def start(self) -> None:
        """Begin to answer."""
        for listener in self.listeners:
            listener.start()

    @property
    def in_flight(self) -> int:
        """Queries being answered."""
        return sum(each.udp.in_flight + each.tcp.in_flight for each in self.listeners)

    def snapshot(self) -> list[UpstreamSnapshot]:
        """The upstreams as they are now, in the pool's order."""
        return self.upstreams.pool.snapshot(time.time())

    def stop(self) -> None:
        """Take no more queries, answer those in flight within the total budget, close."""
        budget_seconds = self._config.total_ms / MS_PER_SECOND
        gevent.joinall([gevent.spawn(each.stop, budget_seconds) for each in self.listeners])
        self.upstreams.close()


def _bind_reason(exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return "the port is in use by another program"
    if exc.errno == errno.EACCES:
        return "ports below 1024 need root or CAP_NET_BIND_SERVICE"
    return exc.strerror or os.strerror(exc.errno or 0)
