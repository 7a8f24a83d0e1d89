"""The web server, bound at the start, or as soon as its address can be had."""

import logging
from collections.abc import Callable
from typing import Any

import gevent

from nxdns.platform.address import ListenAddress
from nxdns.platform.bind_errors import bind_reason
from nxdns.web.server import WebServer

_log = logging.getLogger(__name__)

# As with the listeners of DNS: a bind that fails costs some microseconds.
RETRY_SECONDS = 1.0


class LateWeb:
    """Holds the server; a household's DNS does not wait for its page."""

    def __init__(
        self,
        listen: ListenAddress,
        bind: Callable[[], WebServer],
        on_late: Callable[[WebServer], None],
    ) -> None:
        """``bind`` makes the server at ``listen``, or raises OSError. ``on_late`` is told of one
        that came after the start; it must not wait."""
        self._listen = listen
        self._bind = bind
        self._on_late = on_late
        self._told: int | None = None
        self._retrying: Any = None
        #: None while its address cannot be had.
        self.server = self._try()

    def _try(self) -> WebServer | None:
        try:
            return self._bind()
        except OSError as exc:
            if exc.errno != self._told:
                self._told = exc.errno
                reason = bind_reason(exc, self._listen, "tcp")
                _log.warning("no web server on %s: %s", self._listen, reason)
            return None

    def start(self) -> None:
        """Begin to answer, or to try again."""
        if self.server is None:
            self._retrying = gevent.spawn(self._retry)
        else:
            self.server.start()

    def _retry(self) -> None:
        while self.server is None:
            gevent.sleep(RETRY_SECONDS)
            self.server = self._try()
        self.server.start()
        _log.info("web server on %s", self._listen)
        self._on_late(self.server)

    def give_up(self) -> None:
        """Try no more."""
        if self._retrying is not None:
            self._retrying.kill()

    def stop(self) -> None:
        """Close, and end what is under way."""
        self.give_up()
        if self.server is not None:
            self.server.stop()
