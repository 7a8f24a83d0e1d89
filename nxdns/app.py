"""The composition root: the only module that knows every class."""

import logging
import time
from collections.abc import Callable, Sequence

from nxdns import logs
from nxdns.config import Config, ConfigError
from nxdns.overview import Surface
from nxdns.owner import Owner
from nxdns.platform.address import ListenAddress
from nxdns.platform.bind_errors import bind_reason
from nxdns.reloads import Reloads
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
        self.listening = Listening(self.handler, self._listeners_changed)
        self.surface = Surface(
            owner=self.owner,
            handler=self.handler,
            listeners=self.listeners,
            missing=self.listening.missing,
            store=self.store,
            reloads=self.reloads,
        )
        try:
            self._bind()
            self._bind_web()
        except BaseException:
            self.stop()
            raise

    @property
    def listeners(self) -> list[Listener]:
        """Those that answer, in the order of the configuration."""
        return self.listening.bound

    def _bind(self) -> None:
        self.listening.want(self.config.listen, self._budget_seconds)
        for missing in self.listening.missing:
            if not missing.is_not_here:
                raise StartError(str(missing))
            _log.warning("not listening on %s: %s", missing.address, missing.reason)
        if not self.listeners:
            raise StartError("none of the listen addresses exists on this machine")

    def _listeners_changed(
        self, opened: Sequence[ListenAddress], closed: Sequence[ListenAddress]
    ) -> None:
        for address in opened:
            _log.info("listening on %s", address)
        for address in closed:
            _log.info("no longer listening on %s", address)
        now = self._problems_of_listening()
        self.reloads.mended([each for each in self._listen_problems if each not in now])
        self.on_listeners(opened, closed)

    def _problems_of_listening(self) -> list[str]:
        problems = [str(missing) for missing in self.listening.missing]
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
        try:
            self.web = WebServer(listen.host, listen.port, self.surface, web.allowed_hosts)
        except OSError as exc:
            _log.warning("no web server on %s: %s", listen, bind_reason(exc, listen, "tcp"))

    def _reconcile(self, pool: UpstreamPool) -> None:
        self._episodes.reconcile(pool.entries, self.config.health)

    def start(self) -> None:
        """Begin to answer."""
        self.store.load()
        self._reconcile(self.owner.current.pool)
        self.listening.start()
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
                ("[web]", self._started.web, config.web),
                ("[storage]", self._started.storage_path, config.storage_path),
                ("[log] format", self._started.log.format, config.log.format),
            )
            if before != now
        ]
        logs.set_level(config.log.level)
        drain_seconds = self._budget_seconds  # of the queries that the listeners have
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
        self.listening.stop(self._budget_seconds)
        if self.web is not None:
            self.web.stop()
        self._generation.close()
        self.store.close()
