"""A bounded pool of greenlets that park between jobs.

To be born costs a greenlet 20 µs on CPython 3.11, three times what a datagram costs otherwise; to
be handed the next job costs it less than one.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import gevent
from gevent import Timeout
from gevent.pool import Pool
from greenlet import getcurrent

from nxdns.logs.bugs import log_bug_once
from nxdns.server import stopping

_log: Final = logging.getLogger(__name__)


class Workers:
    """At most ``size`` jobs at once; there is no queue."""

    def __init__(self, size: int, run: Callable[..., None], keep: int | None = None) -> None:
        """``keep`` bounds how many park, where all of them would be more than is often needed."""
        self.size = size
        self._run = run
        self._keep = size if keep is None else keep
        self._pool = Pool(size)
        self._parked: list[Any] = []
        self._stopping = False
        self._hub = gevent.get_hub()

    @property
    def busy(self) -> int:
        """Jobs under way."""
        return len(self._pool) - len(self._parked)

    def submit(self, *job: Any) -> bool:
        """Run ``job`` until it first waits; False when all workers are busy.

        Only to be called by the event loop: the job runs on top of it, and comes back to it.
        """
        if self._parked:
            self._parked.pop().switch(job)
            return True
        if self._stopping or self._pool.full():
            return False
        self._pool.spawn(self._work, [job])
        return True

    def _work(self, first: list[tuple[Any, ...]]) -> None:
        me = getcurrent()
        # A greenlet keeps its arguments as long as it lives: the job is taken out of this one.
        job: tuple[Any, ...] | None = first.pop()
        while job is not None:
            try:
                self._run(*job)
            except (Exception, Timeout) as exc:  # noqa: BLE001
                # An escaped one would end this worker, and nobody waits here to hear of it.
                log_bug_once(_log, exc)
            if self._stopping or len(self._parked) >= self._keep:
                return
            job = None  # or what it was about would live for as long as this worker is parked
            self._parked.append(me)
            try:
                job = self._hub.switch()
            except BaseException:
                self._parked.remove(me)
                raise

    def drain(self, timeout_seconds: float) -> None:
        """Let jobs under way end, kill what has not ended in time, and take no more."""
        self._stopping = True
        self._hub.loop.run_callback(self._dismiss_parked)
        stopping.end(self._pool, timeout_seconds)

    def _dismiss_parked(self) -> None:
        while self._parked:
            self._parked.pop().switch(None)
