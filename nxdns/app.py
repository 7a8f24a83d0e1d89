"""The composition root: the only module that knows every class."""

import logging
import time
from collections.abc import Callable, Sequence

from nxdns import logs
from nxdns.config import Config, ConfigError
from nxdns.late_web import LateWeb
from nxdns.overview import Surface
from nxdns.owner import Owner
from nxdns.platform.address import ListenAddress
from nxdns.platform.on_link import OnLink
from nxdns.platform.rtnetlink import Prefix
from nxdns.reloads import Reloads
from nxdns.server.allow import Allow, is_private
from nxdns.server.handler import Handler
from nxdns.server.listener import Listener
from nxdns.server.listening import Listening, OnChange
from nxdns.snapshots import UpstreamSnapshot
from nxdns.storage.events import EventStore
from nxdns.storage.location import locate
from nxdns.units import MS_PER_SECOND
from nxdns.upstream.episodes import Episodes
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstreams import StartError, Upstreams
from nxdns.web.server import WebServer

_log = logging.getLogger(__name__)


class App:
    """The forwarder: upstreams, handler, listeners, the store of episodes and the web server."""

    def __init__(self, config: Config) -> None:
        """Build and bind everything. Raises StartError; then nothing is left open."""
        self.config = config
        #: What only a restart changes stays as it is here.
        self._started = config
        #: Told after the start of addresses that are listened on, and of those that are no more.
        self.on_listeners: OnChange = lambda *_: None
        #: Of the last reload; those that go away by themselves are not told any longer.
        self._listen_problems: list[str] = []
        #: Told after the start of a web server whose address came late.
        self.on_web: Callable[[WebServer], None] = lambda _: None
        self._web: LateWeb | None = None
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
        self.listening = Listening(self.handler, self._listeners_changed, self.allow.permits)
        self._on_link: OnLink | None = None
        self.surface = Surface(
            owner=self.owner,
            handler=self.handler,
            listeners=self.listeners,
            missing=lambda: self.listening.awaited,
            store=self.store,
            reloads=self.reloads,
        )
        try:
            self._bind()
            self._bind_web()
            self._watch_interfaces()
        except BaseException:
            self.stop()
            raise

    @property
    def listeners(self) -> list[Listener]:
        """Those that answer, in the order of the configuration."""
        return self.listening.bound

    @property
    def web(self) -> WebServer | None:
        """None when there is to be none, or while its address cannot be had."""
        return None if self._web is None else self._web.server

    def _bind(self) -> None:
        self.listening.want(self.config.listen, self._budget_seconds)
        awaited = self.listening.awaited
        for missing in self.listening.missing:
            if not missing.is_not_here:
                raise StartError(str(missing))
            level = logging.WARNING if missing in awaited else logging.INFO
            _log.log(level, "not listening on %s: %s", missing.address, missing.reason)
        if not self.listeners:
            raise StartError("none of the listen addresses exists on this machine")

    def _listeners_changed(
        self, opened: Sequence[ListenAddress], closed: Sequence[ListenAddress]
    ) -> None:
        for address in opened:
            _log.info("listening on %s", address)
        self._tell_reach(opened)
        for address in closed:
            _log.info("no longer listening on %s", address)
        now = self._problems_of_listening()
        self.reloads.mended([each for each in self._listen_problems if each not in now])
        self.on_listeners(opened, closed)

    def _problems_of_listening(self) -> list[str]:
        problems = [str(missing) for missing in self.listening.awaited]
        problems += [
            f"still listening on {address}, until what is to take its place can be had"
            for address in self.listening.unwanted
        ]
        return problems

    def _bind_web(self) -> None:
        web = self.config.web
        if web.listen is None:
            return
        listen = web.listen
        self._web = LateWeb(
            listen,
            lambda: WebServer(listen.host, listen.port, self.surface, web.allowed_hosts),
            lambda server: self.on_web(server),
        )

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

    def _tell_reach(self, addresses: Sequence[ListenAddress]) -> None:
        """Say of each that others than its household can reach who is answered there."""
        for address in addresses:
            if is_private(address.host):  # no wildcard is
                continue
            if self.allow.rules.anybody:
                _log.warning(
                    "%s may be reached from the internet, and [server] allow lets anybody ask: "
                    "such a resolver is used to attack others",
                    address,
                )
            else:
                _log.info(
                    "%s may be reached from beyond this household; only who is in [server] allow "
                    "is answered",
                    address,
                )

    def _reconcile(self, pool: UpstreamPool) -> None:
        self._episodes.reconcile(pool.entries, self.config.health)

    def start(self) -> None:
        """Begin to answer."""
        self.store.load()
        self._reconcile(self.owner.current.pool)
        self.listening.start()
        self._tell_reach([each.bound for each in self.listeners])
        if self._web is not None:
            self._web.start()

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
                ("[web]", self._started.web, config.web),
                ("[storage]", self._started.storage_path, config.storage_path),
                ("[log] format", self._started.log.format, config.log.format),
            )
            if before != now
        ]
        logs.set_level(config.log.level)
        drain_seconds = self._budget_seconds  # of the queries that the listeners have
        if config.allow != self.config.allow:
            self.allow.replace(config.allow)
            self._watch_interfaces()
            self._tell_reach([each.bound for each in self.listeners])
        self.config = config
        self._generation = generation
        self.owner.replace(generation)
        self.listening.want(config.listen, drain_seconds)
        self._listen_problems = self._problems_of_listening()
        wanting += self._listen_problems
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
        return self.listening.in_flight

    @property
    def _budget_seconds(self) -> float:
        return self.config.total_ms / MS_PER_SECOND

    def stop(self) -> None:
        """Take no more queries, answer those in flight within the total budget, close."""
        if self._web is not None:
            self._web.give_up()
        self.listening.stop(self._budget_seconds)
        if self._web is not None:
            self._web.stop()
        if self._on_link is not None:
            self._on_link.close()
        self._generation.close()
        self._episodes.close()
        self.store.close()
