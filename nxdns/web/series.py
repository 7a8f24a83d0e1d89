"""A series of /metrics, described once: name, type, meaning, and where its value is read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from nxdns.snapshots import HistogramSnapshot

T = TypeVar("T")

Value = float | Mapping[str, float] | HistogramSnapshot | None


@dataclass(frozen=True, slots=True)
class Series(Generic[T]):
    """What is read of each T: one sample; one for each key of the label ``by``; or none, of None.

    A T is something that has labels of its own, such as an upstream.
    """

    make: Callable[..., Any]
    name: str
    """As it is exposed."""
    meaning: str
    """What ``# HELP`` says."""
    read: Callable[[T], Value]
    by: str = ""

    def family(self, labels: Sequence[str], each: Iterable[tuple[Sequence[str], T]]) -> Metric:
        """Its samples; ``each`` is a T behind the values of its ``labels``."""
        names = [*labels, self.by] if self.by else labels
        family: Metric = self.make(self.name, self.meaning, labels=names)
        add: Any = family.add_metric  # type: ignore[attr-defined]  # every family has its own
        for values, thing in each:
            value = self.read(thing)
            if isinstance(value, HistogramSnapshot):
                add(values, _cumulative(value), value.sum_seconds)
            elif isinstance(value, Mapping):
                for key, part in value.items():
                    add([*values, key], part)
            elif value is not None:
                add(values, value)
        return family


def gauge(name: str, meaning: str, read: Callable[[T], Value], by: str = "") -> Series[T]:
    """What rises and falls."""
    return Series(GaugeMetricFamily, name, meaning, read, by)


def counter(name: str, meaning: str, read: Callable[[T], Value], by: str = "") -> Series[T]:
    """What only rises, until the next start."""
    return Series(CounterMetricFamily, name, meaning, read, by)


def histogram(name: str, meaning: str, read: Callable[[T], Value]) -> Series[T]:
    """Durations in buckets."""
    return Series(HistogramMetricFamily, name, meaning, read)


def _cumulative(durations: HistogramSnapshot) -> list[tuple[str, int]]:
    """A bucket of Prometheus holds what the buckets below it hold, too."""
    bounds = [*map(str, durations.bounds_seconds), "+Inf"]
    return list(zip(bounds, accumulate(durations.counts), strict=True))
