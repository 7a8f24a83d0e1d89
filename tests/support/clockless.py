"""An event loop for a process that is counted: nothing is done in it by the clock, again and again.

A slow machine answers fewer queries between two turns of such a timer, and each would seem to cost
more. ``GEVENT_LOOP`` names the class, so that it serves a compiled nxdns as well.
"""

from typing import Any

from gevent.libev.corecext import loop

LOOP = f"{__name__}.ClocklessLoop"

_LONGER_THAN_ANY_RUN_SECONDS = 86_400.0


class ClocklessLoop(loop):  # type: ignore[misc]  # gevent ships no types
    """gevent's own, whose timers fire once at most."""

    __slots__ = ()

    def timer(self, after: float, repeat: float = 0.0, *others: Any, **keywords: Any) -> Any:
        if repeat:
            after = repeat = _LONGER_THAN_ANY_RUN_SECONDS
        return super().timer(after, repeat, *others, **keywords)
