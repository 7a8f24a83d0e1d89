"""What a burst looked like: figures, bars, JSON. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_BAR_COLUMNS = 50
_FIGURE_COLUMNS = 20  # the time before a bar, and what may stand behind it


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one query of a burst."""

    milliseconds: float
    rcode: str
    """Such as ``NOERROR``; "" when nothing came."""
    refused: bool = False
    """Whether it is lost because nobody listens."""

    @property
    def outcome(self) -> str:
        if not self.rcode:
            return "lost"
        return "servfail" if self.rcode == "SERVFAIL" else "answered"


@dataclass(frozen=True, slots=True)
class Burst:
    """All queries of one burst, in the order they were sent."""

    answers: tuple[Answer, ...]
    wall_ms: float

    def count(self, outcome: str) -> int:
        return sum(answer.outcome == outcome for answer in self.answers)

    @property
    def ok(self) -> bool:
        """Whether every query was answered, and none with SERVFAIL."""
        return self.count("answered") == len(self.answers)

    @property
    def refused(self) -> bool:
        """Whether nobody listens at all."""
        return all(answer.refused for answer in self.answers)

    def summary(self) -> str:
        """``30 answered, 0 servfail, 0 lost, wall 384 ms, p50 206 ms, p95 384 ms, max 384 ms``"""
        counts = ", ".join(f"{self.count(o)} {o}" for o in ("answered", "servfail", "lost"))
        times = self._times()
        figures = (
            ("wall", self.wall_ms),
            ("p50", percentile(times, 50)),
            ("p95", percentile(times, 95)),
            ("max", times[-1] if times else 0.0),
        )
        return counts + "".join(f", {name} {value:.0f} ms" for name, value in figures)

    def bars(self, block: str, width: int) -> list[str]:
        """A line for each query, the quickest first: a staircase shows at a glance.

        A line has at most ``width`` columns, as far as its figures leave any.
        """
        most = max(min(_BAR_COLUMNS, width - _FIGURE_COLUMNS), 1)
        longest = max((answer.milliseconds for answer in self.answers), default=0.0) or 1.0
        lines = []
        for answer in sorted(self.answers, key=lambda a: a.milliseconds):
            columns = max(1, round(answer.milliseconds / longest * most))
            note = "" if answer.outcome == "answered" else f" {answer.outcome}"
            lines.append(f"{answer.milliseconds:6.0f} ms {block * columns}{note}")
        return lines

    def as_json(self) -> dict[str, object]:
        """The same, for programs."""
        times = self._times()
        return {
            "answered": self.count("answered"),
            "servfail": self.count("servfail"),
            "lost": self.count("lost"),
            "wall_ms": round(self.wall_ms, 3),
            "p50_ms": round(percentile(times, 50), 3),
            "p95_ms": round(percentile(times, 95), 3),
            "max_ms": round(times[-1], 3) if times else 0.0,
            "queries": [
                {"ms": round(answer.milliseconds, 3), "rcode": answer.rcode or None}
                for answer in self.answers
            ],
        }

    def _times(self) -> list[float]:
        """Of all that were answered, SERVFAIL included, ascending."""
        return sorted(answer.milliseconds for answer in self.answers if answer.rcode)


def percentile(ascending: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile; 0.0 of nothing."""
    if not ascending:
        return 0.0
    return ascending[math.ceil(len(ascending) * percent / 100) - 1]
