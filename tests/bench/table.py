"""What was measured, round by round, and how it is shown. Pure."""

import json
import statistics
from collections.abc import Iterable, Mapping

Figures = Mapping[str, float]
"""What one round gave for one row: a value for each name, which has its unit."""

_GAP = "  "


class Results:
    """The figures of all rounds, by row, in the order in which rows first came."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, list[float]]] = {}
        #: What was left out, and why.
        self.skipped: dict[str, str] = {}
        #: What went wrong half-way, and how.
        self.failed: dict[str, str] = {}

    @property
    def without(self) -> set[str]:
        """Cells that are not worth another round."""
        return {*self.skipped, *self.failed}

    def add(self, row: str, figures: Figures) -> None:
        """Note one round of ``row``."""
        known = self.rows.setdefault(row, {})
        for name, value in figures.items():
            known.setdefault(name, []).append(value)

    def add_ratio(self, row: str, dividend: str, divisor: str, figure: str) -> None:
        """A row for how many times ``divisor`` a row costs; by rounds, for these are neighbours in
        time: what else the machine does is much the same for both."""
        if dividend not in self.rows or divisor not in self.rows:
            return
        pairs = zip(self.rows[dividend][figure], self.rows[divisor][figure], strict=False)
        for above, below in pairs:
            if below:
                self.add(row, {f"{figure}, times": above / below})

    def medians(self) -> dict[str, dict[str, float]]:
        """Of each figure of each row."""
        return {
            row: {name: statistics.median(values) for name, values in figures.items()}
            for row, figures in self.rows.items()
        }

    def render(self) -> str:
        """A table for a terminal; rows of the same figures share a head."""
        lines: list[str] = []
        block: list[tuple[str, dict[str, float]]] = []
        for row, figures in self.medians().items():
            if block and list(block[0][1]) != list(figures):
                lines += [*_block(block), ""]
                block = []
            block.append((row, figures))
        if block:
            lines += [*_block(block), ""]
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        lines += [f"FAILED {name}: {reason}" for name, reason in self.failed.items()]
        return "\n".join(lines).rstrip() + "\n"

    def as_json(self, about: Mapping[str, object]) -> str:
        """All of it, each value of each round included."""
        medians = self.medians()
        rows = {
            row: {
                name: {"median": medians[row][name], "rounds": values}
                for name, values in figures.items()
            }
            for row, figures in self.rows.items()
        }
        left_out = {"skipped": self.skipped, "failed": self.failed}
        return json.dumps({**about, "rows": rows, **left_out}, indent=2, ensure_ascii=False) + "\n"


def _block(rows: Iterable[tuple[str, dict[str, float]]]) -> list[str]:
    rows = list(rows)
    cells = [["", *rows[0][1]]]
    cells += [[row, *map(number, figures.values())] for row, figures in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        _GAP.join(
            [line[0].ljust(widths[0])]
            + [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        )
        for line in cells
    ]


def number(value: float) -> str:
    """Three digits that matter, and no fewer than stand before the point."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
