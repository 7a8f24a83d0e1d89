"""The ends of all attempts under way, in one watch.

A timer for each attempt costs a tenth of what a forwarded query costs otherwise. One coarse sweep
costs nothing that could be measured, and is at most ``SWEEP_SECONDS`` late, never early.
"""

from collections.abc import Callable
from typing import Any, Final

import gevent

from nxdns.upstream.expiry import AttemptExpired

# Late by a fortieth of an attempt's default budget, and well within the 0.2 s by which a reply may
# overstay the total budget.
SWEEP_SECONDS: Final = 0.05


class Deadlines:
    """At most one deadline for each greenlet. ``clock`` gives monotonic nanoseconds."""

    __slots__ = ("_clock", "_full", "_short", "_sweeping", "_timer")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        #: Full attempts, in the order of their start, which is that of their end.
        self._full: dict[Any, int] = {}
        #: Those that a client's budget cuts short, in no order. They are few.
        self._short: dict[Any, int] = {}
        self._timer = gevent.get_hub().loop.timer(SWEEP_SECONDS, SWEEP_SECONDS)
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._full) + len(self._short)

    def watch(self, greenlet: Any, budget_ns: int, *, cut_short: bool) -> None:
        """Throw AttemptExpired into ``greenlet`` in ``budget_ns`` from now.

        That is the same for all that are not ``cut_short``.
        """
        deadline = self._clock() + budget_ns
        if cut_short:
            self._short[greenlet] = deadline
        else:
            self._full[greenlet] = deadline
        if not self._sweeping:
            self._sweeping = True
            self._timer.start(self._sweep)

    def forget(self, greenlet: Any) -> None:
        """Throw nothing any more into ``greenlet``."""
        if self._full.pop(greenlet, None) is None:
            self._short.pop(greenlet, None)

    def _sweep(self) -> None:
        """Runs in the event loop, which goes on here when whoever was thrown at waits again."""
        now = self._clock()
        full = self._full
        while full:
            greenlet = next(iter(full))
            if full[greenlet] > now:
                break
            del full[greenlet]
            greenlet.throw(AttemptExpired())
        for greenlet in [g for g, deadline in self._short.items() if deadline <= now]:
            if self._short.pop(greenlet, None) is not None:
                greenlet.throw(AttemptExpired())
        if not full and not self._short:
            self._timer.stop()
            self._sweeping = False
