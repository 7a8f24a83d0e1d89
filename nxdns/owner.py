"""The current generation: everything that was built from one configuration.

A reload puts another in its place at once. The displaced one is retired when its last exchange has
ended, so no reload ever breaks a query in flight.
"""

from collections.abc import Callable
from typing import Protocol

from nxdns.dns.packet import Packet
from nxdns.upstream.histogram import Histogram
from nxdns.upstream.pool import UpstreamPool


class Generation(Protocol):
    """What a configuration was made into."""

    @property
    def pool(self) -> UpstreamPool:
        """What answers its queries."""

    def close(self) -> None:
        """Close every session. Never waits."""


class _Pinned:
    __slots__ = ("generation", "pins")

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        #: Exchanges that run in it.
        self.pins = 0


class Owner:
    """A Client over whichever generation is the current one when an exchange begins."""

    def __init__(
        self,
        generation: Generation,
        clock: Callable[[], int],
        on_retired: Callable[[UpstreamPool], None],
    ) -> None:
        """``on_retired`` is called with the current pool, after a displaced one has closed its
        sessions; it must not switch greenlets. ``clock`` gives monotonic nanoseconds."""
        self._current = _Pinned(generation)
        self._clock = clock
        self._on_retired = on_retired
        #: How long clients waited for an answer or for its failure.
        self.waits = Histogram()

    @property
    def current(self) -> Generation:
        return self._current.generation

    def exchange(self, query: bytes) -> Packet:
        """See :class:`~nxdns.upstream.transport.Client`."""
        pinned = self._current
        pinned.pins += 1
        started = self._clock()
        try:
            return pinned.generation.pool.exchange(query)
        finally:
            self.waits.observe(self._clock() - started)
            pinned.pins -= 1
            if not pinned.pins and pinned is not self._current:
                self._retire(pinned)

    def replace(self, generation: Generation) -> None:
        """Let new exchanges go to ``generation``, from now on. Never waits."""
        displaced, self._current = self._current, _Pinned(generation)
        if not displaced.pins:
            self._retire(displaced)

    def _retire(self, displaced: _Pinned) -> None:
        displaced.generation.close()
        self._on_retired(self._current.generation.pool)
