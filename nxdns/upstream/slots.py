"""The slots of one upstream: how many exchanges it carries at once, where, and who has to wait.

The first exchanges get a leaf each. What comes beyond them rides along on the leaf that carries
least, and only what exceeds the capacity waits. So an upstream that answers everything at once is
asked everything at once, one that answers one query at a time on each session is asked on all of
them, and a session that is stuck is avoided by itself: its load does not fall.

Greenlets share one thread and switch only where they wait, so a plain ``+= 1`` needs no lock
anywhere in nxdns. Here only :meth:`Slots.acquire` waits, and only when there is no room.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gevent.lock import BoundedSemaphore

from nxdns.units import NS_PER_SECOND
from nxdns.upstream.depth import Depth
from nxdns.upstream.history import QueueStats
from nxdns.upstream.transport import Leaf

# A server that answers one query at a time on each session, as dnsdist and large providers do,
# clears a burst of thirty names on eight in four waves. They cost us 0.3 MiB, and it nothing.
DOT_SESSIONS: Final = 8

# HTTP/1.1 carries one exchange a connection, so this many are answered at once: a household's
# burst of thirty names. A connection of gevent's ssl costs 29 KiB, and is dialled only when needed.
DOH_CONNECTIONS: Final = 32


class Slots:
    """Lends leaves, each to as many at once as it is deep."""

    __slots__ = (
        "_clock",
        "_depth",
        "_idle",
        "_index",
        "_loads",
        "_room",
        "_waiting",
        "in_flight",
        "leaves",
        "peak_in_flight",
        "queue",
    )

    def __init__(
        self,
        leaves: Sequence[Leaf],
        clock: Callable[[], int],
        depth: Depth,
        queue: QueueStats,
    ) -> None:
        """``clock`` gives nanoseconds of the monotonic clock. Raises ValueError for no leaf."""
        if not leaves:
            raise ValueError("an upstream needs at least one slot")
        self.leaves = tuple(leaves)
        self.in_flight = 0
        self.peak_in_flight = 0
        self.queue = queue
        self._clock = clock
        self._depth = depth
        #: Those that carry nothing, the next one to be lent last.
        self._idle = list(leaves)
        self._index = {leaf: slot for slot, leaf in enumerate(leaves)}
        self._loads = [0] * len(leaves)
        self._waiting = 0
        #: A ticket for each time that somebody waits and a slot has become free. There is none at
        #: first: whoever finds room at once needs none, and pays for none.
        self._room = BoundedSemaphore(self.capacity)
        for _ in range(self.capacity):
            self._room.acquire()

    @property
    def capacity(self) -> int:
        """Exchanges that fit at once, unless the upstream is to be asked one at a time."""
        return len(self.leaves) * self._depth.limit

    @property
    def is_serial(self) -> bool:
        """Whether each leaf carries one exchange for the time being, though it could carry more."""
        return self._depth.at(self._clock()) < self._depth.limit

    def acquire(self, budget_ns: int) -> Leaf | None:
        """A leaf to carry one more exchange; None when there was none within ``budget_ns``.

        A query that had to wait is counted, however its wait ends. What is lent must go back
        through ``release``.
        """
        # The last one given back that is open: its session is the warmest, and under light load
        # the others are left to be closed by the upstream.
        leaf = self._idle.pop() if self._idle else self._least_loaded()
        if leaf is None:
            leaf = self._wait(budget_ns)
            if leaf is None:
                return None
        self._loads[self._index[leaf]] += 1
        self.in_flight += 1
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight
        # Room comes without a release when a stuck leaf answers, and when a serial minute ends:
        # whoever gets in lets the next one look.
        if self._waiting and (self._idle or self._least_loaded() is not None):
            self._give_ticket()
        return leaf

    def _least_loaded(self) -> Leaf | None:
        """The leaf with most room that is not stuck; None when no other has any."""
        depth = self._depth
        deepest = depth.limit if not depth.serial_until else depth.at(self._clock())
        loads = self._loads
        least = min(loads)
        if least >= deepest:
            return None
        leaf = self.leaves[loads.index(least)]
        if not leaf.is_stuck:
            return leaf
        # Rare: the least loaded one is stuck, and has room because others gave up on it.
        joinable = [
            (load, slot)
            for slot, load in enumerate(loads)
            if load < deepest and not self.leaves[slot].is_stuck
        ]
        return self.leaves[min(joinable)[1]] if joinable else None

    def _wait(self, budget_ns: int) -> Leaf | None:
        started = self._clock()
        self._waiting += 1
        try:
            left_ns = budget_ns
            while self._room.acquire(timeout=max(left_ns, 0) / NS_PER_SECOND):
                leaf = self._idle.pop() if self._idle else self._least_loaded()
                if leaf is not None:
                    return leaf
                # Somebody came later and was quicker, or every leaf with room is stuck.
                left_ns = budget_ns - (self._clock() - started)
            return None
        finally:
            self._waiting -= 1
            self.queue.waited += 1
            self.queue.waited_ns += self._clock() - started

    def slot_of(self, leaf: Leaf) -> int:
        """The number of the slot that ``leaf`` is in."""
        return self._index[leaf]

    def release(self, leaf: Leaf) -> None:
        """Take a leaf back from one exchange, whoever may wait for it. Never switches."""
        slot = self._index[leaf]
        self._loads[slot] -= 1
        self.in_flight -= 1
        if not self._loads[slot]:
            if leaf.is_open:
                self._idle.append(leaf)
            else:
                self._idle.insert(0, leaf)
        if self._waiting:
            self._give_ticket()

    def _give_ticket(self) -> None:
        """Let one more of those who wait look for a leaf. Never switches."""
        # Not more than there could be room for: those that have a ticket may not have run yet.
        if self._room.counter < self._waiting and self._room.counter < self.capacity:
            self._room.release()
