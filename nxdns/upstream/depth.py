"""How many exchanges one session of an upstream may carry at once. Pure.

A server may close a session after every answer, or after every third: whoever rides behind the
last answer is then thrown off, again and again. It is served as well as it can be, one exchange to
a session, for as long as it is likely to stay so.
"""

from typing import Final

from nxdns.units import NS_PER_SECOND

# Eight sessions carry 256, more than any household asks at once; that many parked greenlets cost
# 2 MiB. More on one session would only lose more when it dies.
PIPELINE_DEPTH: Final = 32

# Long enough that the second visit of a burst is not paid for again and again; short enough that a
# server which was only restarted gets its riders back within the same minute of a user's patience.
SERIAL_NS: Final = 60 * NS_PER_SECOND


class Depth:
    """The depth of one upstream, shared by its leaves and by its slots."""

    __slots__ = ("limit", "serial_until")

    def __init__(self, limit: int) -> None:
        """``limit`` is at least 1, which raises ValueError otherwise."""
        if limit < 1:
            raise ValueError(f"a session carries at least one exchange, not {limit}")
        self.limit = limit
        #: Until when it is 1, on the monotonic clock in nanoseconds.
        self.serial_until = 0

    def at(self, now: int) -> int:
        """The depth at ``now``."""
        return self.limit if now >= self.serial_until else 1

    def be_serial(self, now: int) -> None:
        """Carry one exchange a session for the next ``SERIAL_NS``."""
        self.serial_until = max(self.serial_until, now + SERIAL_NS)
