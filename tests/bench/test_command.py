"""The command itself, in the default run: what it makes of figures, and one small cell for real."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench import without
from tests.bench.__main__ import main, measure, select
from tests.bench.cells import CELLS, Cell
from tests.bench.features import LAUNCHER, features
from tests.bench.measure import ROOT
from tests.bench.rig import OwnRig, quantile
from tests.bench.subjects import Bench, Plan, Skip
from tests.bench.table import Figures, Results, number
from tests.bench.without import FEATURES
from tests.support.instructions import Forwarding, is_compiled


class _NoRig(OwnRig):
    def __init__(self) -> None:
        """Nothing is started."""


def _bench(folder: Path, rounds: int) -> Bench:
    return Bench(Plan(rounds=rounds, seconds=1.0), _NoRig(), folder)


def test_each_figure_of_a_row_is_the_median_of_its_rounds() -> None:
    results = Results()
    for value in (1.0, 9.0, 2.0):
        results.add("a", {"µs": value, "lost": 0.0})
    assert results.medians() == {"a": {"µs": 2.0, "lost": 0.0}}


def test_a_ratio_is_taken_within_each_round() -> None:
    results = Results()
    for above, below in ((10.0, 5.0), (30.0, 10.0), (8.0, 2.0)):
        results.add("above", {"µs": above})
        results.add("below", {"µs": below})
    results.add_ratio("ratio", "above", "below", "µs")
    assert results.rows["ratio"] == {"µs, times": [2.0, 3.0, 4.0]}


def test_a_ratio_to_what_was_not_measured_is_no_row() -> None:
    results = Results()
    results.add("above", {"µs": 1.0})
    results.add_ratio("ratio", "above", "below", "µs")
    assert list(results.rows) == ["above"]


def test_rows_of_the_same_figures_share_a_head() -> None:
    results = Results()
    results.add("one", {"µs": 1.234})
    results.add("another", {"µs": 12345.6})
    results.add("third", {"lost": 0.0})
    results.skipped["stubby"] = "stubby is not installed"
    assert results.render() == (
        "             µs\n"
        "one        1.23\n"
        "another  12 346\n"
        "\n"
        "       lost\n"
        "third     0\n"
        "\n"
        "skipped stubby: stubby is not installed\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.126, "0.13"), (12.34, "12.3"), (123.4, "123"), (1234567.0, "1 234 567")],
)
def test_a_number_is_shown_with_three_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text


def test_json_has_every_round() -> None:
    results = Results()
    results.add("a", {"µs": 1.0})
    results.add("a", {"µs": 3.0})
    results.failed["b"] = "OSError: no"
    assert json.loads(results.as_json({"rounds": 2})) == {
        "rounds": 2,
        "rows": {"a": {"µs": {"median": 2.0, "rounds": [1.0, 3.0]}}},
        "skipped": {},
        "failed": {"b": "OSError: no"},
    }


def test_a_quantile_of_nothing_is_nothing() -> None:
    assert quantile([], 0.99) == 0.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_a_cell_is_selected_by_each_part_of_its_name() -> None:
    assert [cell.name for cell in select(["walker"])] == ["walker"]
    assert [cell.name for cell in select(["burst.dot"])] == ["burst.dot"]
    assert {cell.name for cell in select(["unbound"])} == {
        "throughput.unbound",
        "burst.unbound",
        "serial.unbound",
        "rate.unbound",
    }
    assert select([]) == list(CELLS)


def test_a_name_of_no_cell_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "walker,wlaker"]) == 2
    told = capsys.readouterr().err
    assert "no cell is wlaker" in told
    assert "walker" in told


def test_rounds_are_interleaved_and_what_cannot_be_measured_is_tried_once(tmp_path: Path) -> None:
    order: list[str] = []
    ended: list[str] = []

    @contextmanager
    def started(name: str) -> Iterator[None]:
        order.append(name)
        try:
            yield
        finally:
            ended.append(name)

    def good(_bench: Bench) -> Iterator[tuple[str, Figures]]:
        with started("good"):
            yield "good", {"µs": 1.0}

    def absent(_bench: Bench) -> Iterator[tuple[str, Figures]]:
        with started("absent"):
            raise Skip("it is not installed")
        yield "absent", {}

    def broken(_bench: Bench) -> Iterator[tuple[str, Figures]]:
        with started("broken"):
            yield "broken", {"µs": 1.0}
            raise OSError("it has gone")

    results = Results()
    cells = [
        Cell("good", good),
        Cell("once", good, once=True),
        Cell("absent", absent),
        Cell("broken", broken),
    ]
    measure(_bench(tmp_path, 2), cells, results)
    assert order == ["good", "good", "absent", "broken", "good"]
    assert ended == order
    assert results.skipped == {"absent": "it is not installed"}
    assert results.failed == {"broken": "OSError: it has gone"}


def test_the_command_measures_the_walker_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    assert main(["--quick", "--only", "walker", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["rounds"] == 1
    assert found["failed"] == {}
    figures = found["rows"]["walker: validate"]
    assert set(figures) == {"µs", "dnspython µs", "times"}
    assert all(each["median"] > 0 for each in figures.values())
    assert "walker: validate" in capsys.readouterr().out


def test_a_signal_handler_of_the_callers_is_there_again_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--quick", "--only", "walker"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_every_cell_is_documented() -> None:
    text = (ROOT / "docs/how-to/benchmark.md").read_text(encoding="utf-8")
    for cell in CELLS:
        kind, _, subject = cell.name.partition(".")
        assert (f"`{kind}.NAME`" if subject else f"`{kind}`") in text
        assert subject in text


@pytest.mark.parametrize("feature", FEATURES)
def test_what_takes_the_place_of_a_feature_finds_it(
    feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def note(owner: object, name: str, instead: object) -> None:
        assert hasattr(owner, name)
        found.append(name)

    monkeypatch.setattr(without, "_replace", note)
    FEATURES[feature]()
    assert found


@pytest.mark.parametrize("feature", FEATURES)
def test_without_a_feature_a_query_is_answered_all_the_same(feature: str, tmp_path: Path) -> None:
    if is_compiled():  # what calls what is then settled, and a feature cannot be replaced
        with pytest.raises(Skip):
            next(features(_bench(tmp_path, 1)))
        return
    Forwarding(program=(LAUNCHER, feature)).forward_one(tmp_path)
