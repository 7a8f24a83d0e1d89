"""The composition root: the only module that knows every class."""

import errno
import logging
import os
import time
from collections.abc import Callable

import gevent

from nxdns import logs
from nxdns.config import Config, ConfigError
from nxdns.overview import Surface
from nxdns.owner import Owner
from nxdns.platform.address import ListenAddress
from nxdns.platform.on_link import OnLink
from nxdns.platform.rtnetlink import Prefix
from nxdns.reloads import Reloads
from nxdns.server.allow import Allow, is_private
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.snapshots import UpstreamSnapshot
from nxdns.storage.events import EventStore
from nxdns.storage.location import locate
from nxdns.units import MS_PER_SECOND
from nxdns.upstream.episodes import Episodes
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstreams import StartError, Upstreams
from nxdns.web.server import WebServer

_log = logging.getLogger(__name__)

# What bind says of an address, a family or an interface that this machine does not have (yet).
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENODEV, errno.ENXIO})


class App:
    """The forwarder: upstreams, handler, listeners, the store of episodes and the web server."""

    def __init__(self, config: Config) -> None:
        """Build and bind everything. Raises StartError; then nothing is left open."""
        self.config = config
        #: What only a restart changes stays as it is here.
        self._started = config
        self.listeners: list[Listener] = []
        self.missing: list[ListenAddress] = []
        self.web: WebServer | None = None
        self.reloads = Reloads(time.time)
        self.store = EventStore(locate(config.storage_path), time.time)
        self._episodes = Episodes(self.store, time.monotonic_ns)
        try:
            self._generation = Upstreams.build(config, on_effect=self._episodes.apply)
        except BaseException:
            self.store.close()
            raise
        self.owner = Owner(self._generation, time.monotonic_ns, self._reconcile)
        self.handler = Handler(self.owner)
        self.allow = Allow(config.allow)
        self._on_link: OnLink | None = None
        self.surface = Surface(
            owner=self.owner,
            handler=self.handler,
            listeners=self.listeners,
            missing=self.missing,
            store=self.store,
            reloads=self.reloads,
        )
        try:
            for address in config.listen:
                self._bind(address)
            if not self.listeners:
                raise StartError("none of the listen addresses exists on this machine")
            self._bind_web()
            self._watch_interfaces()
        except BaseException:
            self.stop()
            raise

    def _bind(self, address: ListenAddress) -> None:
        try:
            self.listeners.append(Listener.bind(address, self.handler, self.allow.permits))
        except OSError as exc:
            if exc.errno not in _NOT_HERE:
                raise StartError(f"cannot listen on {address}: {_bind_reason(exc)}") from exc
            _log.warning("not listening on %s: %s", address, exc.strerror)
            self.missing.append(address)

    def _bind_web(self) -> None:
        web = self.config.web
        if web.listen is None:
            return
        try:
            listen = web.listen
            self.web = WebServer(listen.host, listen.port, self.surface, web.allowed_hosts)
        except OSError as exc:
            _log.warning("no web server on %s: %s", web.listen, _bind_reason(exc))

    def _watch_interfaces(self) -> None:
        """Learn what is on link, if that matters and is not known yet."""
        if self._on_link is not None or not self.allow.rules.on_link:
            return
        try:
            self._on_link = OnLink()
        except OSError as exc:
            _log.warning(
                "the kernel does not tell the prefixes of our interfaces (%s): clients at public "
                "addresses may ask only if [server] allow names them",
                exc.strerror,
            )
            return
        self.allow.set_on_link(self._on_link.prefixes)
        self._on_link.follow(self._on_link_changed)

    def _on_link_changed(self, prefixes: frozenset[Prefix]) -> None:
        self.allow.set_on_link(prefixes)
        _log.debug("the prefixes of our interfaces have changed")

    def _tell_reach(self) -> None:
        """Say of each listener that others than its household can reach who is answered there."""
        for listener in self.listeners:
            if is_private(listener.bound.host):  # no wildcard is
                continue
            if self.allow.rules.anybody:
                _log.warning(
                    "%s may be reached from the internet, and [server] allow lets anybody ask: "
                    "such a resolver is used to attack others",
                    listener.bound,
                )
            else:
                _log.info(
                    "%s may be reached from beyond this household; only who is in [server] allow "
                    "is answered",
                    listener.bound,
                )

    def _reconcile(self, pool: UpstreamPool) -> None:
        self._episodes.reconcile(pool.entries, self.config.health)

    def start(self) -> None:
        """Begin to answer."""
        self.store.load()
        self._reconcile(self.owner.current.pool)
        for listener in self.listeners:
            listener.start()
        self._tell_reach()
        if self.web is not None:
            self.web.start()

    def reload(self, load: Callable[[], Config]) -> None:
        """Go on with another configuration, or with this one if that cannot be. Never waits.

        ``load`` gives it, or raises ConfigError.
        """
        try:
            config = load()
            generation = Upstreams.build(
                config, before=self._generation, on_effect=self._episodes.apply
            )
        except (ConfigError, StartError) as exc:
            problems = str(exc).splitlines()
            self.reloads.failed(problems)
            for problem in problems:
                _log.error("reload: %s", problem)
            _log.error("reload: failed; going on as before")
            return
        wanting = [
            f"{table} has changed, which needs a restart"
            for table, before, now in (
                ("[server] listen", self._started.listen, config.listen),
                ("[web]", self._started.web, config.web),
                ("[storage]", self._started.storage_path, config.storage_path),
                ("[log] format", self._started.log.format, config.log.format),
            )
            if before != now
        ]
        logs.set_level(config.log.level)
        if config.allow != self.config.allow:
            self.allow.replace(config.allow)
            self._watch_interfaces()
            self._tell_reach()
        self.config = config
        self._generation = generation
        self.owner.replace(generation)
        self.reloads.succeeded(wanting)
        for line in wanting:
            _log.warning("reload: %s", line)
        _log.info("reload: done")

    def snapshot(self) -> tuple[UpstreamSnapshot, ...]:
        """The upstreams as they are now, in the pool's order."""
        return self.surface.upstreams()

    @property
    def in_flight(self) -> int:
        """Queries being answered."""
        return sum(each.udp.in_flight + each.tcp.in_flight for each in self.listeners)

    def stop(self) -> None:
        """Take no more queries, answer those in flight within the total budget, close."""
        budget_seconds = self.config.total_ms / MS_PER_SECOND
        gevent.joinall([gevent.spawn(each.stop, budget_seconds) for each in self.listeners])
        if self.web is not None:
            self.web.stop()
        if self._on_link is not None:
            self._on_link.close()
        self._generation.close()
        self.store.close()


def _bind_reason(exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return "the port is in use by another program"
    if exc.errno == errno.EACCES:
        return "ports below 1024 need root or CAP_NET_BIND_SERVICE"
    return exc.strerror or os.strerror(exc.errno or 0)
