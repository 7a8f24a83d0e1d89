"""``GET /metrics``: one collector over snapshots, for Prometheus.

Nothing here is touched by a query. The path of a query adds to plain integers; they are read, and
made into text, when somebody asks.
"""

from collections.abc import Callable, Iterator
from time import monotonic_ns

import gevent
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client import exposition as text
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

from nxdns.snapshots import HttpSnapshot
from nxdns.units import NS_PER_MS, TURN_SECONDS
from nxdns.web import all_series
from nxdns.web.source import Source

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# All in one go would hold a small machine's queries up for tens of milliseconds. A turn for each
# family would make a scrape under load ten times as long, and each query that comes meanwhile wait
# for one more family.
_AT_ONCE_NS = NS_PER_MS


class Metrics:
    """What a scrape gets. One for the life of the process; it outlives every reload."""

    def __init__(
        self,
        source: Source,
        http: Callable[[], HttpSnapshot],
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        """``http`` gives the web server's own troubles, ``clock`` monotonic nanoseconds."""
        self._registry = CollectorRegistry()
        self._registry.register(_Everything(source, http, clock))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body and its Content-Type, in the format that ``Accept`` prefers.

        Queries have their turn while it is made, but it is of one moment.
        """
        if _prefers(accept, "application/openmetrics-text", "text/plain"):
            return openmetrics.generate_latest(self._registry), OPENMETRICS  # type: ignore[no-untyped-call]
        return text.generate_latest(self._registry), TEXT


class _Everything(Collector):
    def __init__(
        self, source: Source, http: Callable[[], HttpSnapshot], clock: Callable[[], int]
    ) -> None:
        self._source = source
        self._http = http
        self._clock = clock

    def describe(self) -> list[Metric]:
        """Nothing: it need not be asked for everything before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See :mod:`nxdns.web.all_series`."""
        began = self._clock()
        for family in all_series.families(self._source.overview(), self._http()):
            yield family
            if self._clock() - began > _AT_ONCE_NS:
                gevent.sleep(TURN_SECONDS)
                began = self._clock()


def _prefers(accept: str, first: str, second: str) -> bool:
    """Whether ``first`` is named in ``accept`` and wanted at least as much as ``second``.

    ``second`` is what a client gets that says nothing, or nothing that can be read.
    See RFC 9110 §12.5.1.
    """
    wanted: dict[str, float] = {}
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        wanted[media_type] = max(_quality(parameters), wanted.get(media_type, 0.0))
    return 0.0 < wanted.get(first, 0.0) >= wanted.get(second, 0.0)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
