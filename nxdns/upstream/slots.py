"""The slots of one upstream: how many exchanges it carries at once, who waits, and for how long.

Greenlets share one thread and switch only where they wait, so a plain ``+= 1`` needs no lock
anywhere in nxdns. Here only :meth:`Slots.acquire` waits.
"""

import logging
from collections.abc import Callable, Sequence

from gevent.lock import BoundedSemaphore

from nxdns.units import NS_PER_SECOND
from nxdns.upstream.transport import Leaf, LocalKind, LocalResource

_log = logging.getLogger(__name__)


class Slots:
    """Lends leaves, at most as many as there are, the most recently used one first."""

    __slots__ = (
        "_clock",
        "_free",
        "_permits",
        "in_flight",
        "leaves",
        "peak_in_flight",
        "queued_ns_total",
        "queued_total",
    )

    def __init__(self, leaves: Sequence[Leaf], clock: Callable[[], int]) -> None:
        """``clock`` gives nanoseconds of the monotonic clock. Raises ValueError for no leaf."""
        if not leaves:
            raise ValueError("an upstream needs at least one slot")
        self.leaves = tuple(leaves)
        self.in_flight = 0
        self.peak_in_flight = 0
        #: Approximate: whether a query must wait is sampled at its admission, before it waits.
        self.queued_total = 0
        self.queued_ns_total = 0
        self._free = list(leaves)
        self._permits = BoundedSemaphore(len(leaves))
        self._clock = clock

    def acquire(self, budget_ns: int) -> Leaf | None:
        """Wait at most ``budget_ns`` for a leaf; None when there was none in time.

        A query that had to wait is counted, however its wait ends. What is lent must go back
        through ``release``.
        """
        if self.in_flight < len(self.leaves):
            admitted = self._permits.acquire(timeout=budget_ns / NS_PER_SECOND)
        else:
            started = self._clock()
            try:
                admitted = self._permits.acquire(timeout=budget_ns / NS_PER_SECOND)
            finally:
                self.queued_total += 1
                self.queued_ns_total += self._clock() - started
        if not admitted:
            return None
        # Nothing from here on switches, so a permit always finds a leaf.
        if not self._free:
            self._permits.release()
            _log.error("a permit without a free slot; this is a bug of nxdns")
            raise LocalResource(LocalKind.UNEXPECTED)
        self.in_flight += 1
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight
        # The last one given back: its session is the warmest, and under light load the others
        # are left to be closed by the upstream.
        return self._free.pop()

    def release(self, leaf: Leaf) -> None:
        """Take a leaf back: the slot first, then its permit. Never switches."""
        self._free.append(leaf)
        self.in_flight -= 1
        self._permits.release()
