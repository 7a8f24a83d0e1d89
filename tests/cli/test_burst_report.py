"""The figures, the bars and the JSON of a burst."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.cli.burst_report import Answer, Burst, percentile

_ANSWERS = st.builds(
    Answer,
    st.floats(0, 6000, allow_nan=False),
    st.sampled_from(["", "NOERROR", "NXDOMAIN", "REFUSED", "SERVFAIL"]),
)
_BURSTS = st.builds(Burst, st.lists(_ANSWERS, max_size=40).map(tuple), st.floats(0, 6000))


@pytest.mark.parametrize(
    ("rcode", "outcome"),
    [
        pytest.param("NOERROR", "answered", id="noerror"),
        pytest.param("NXDOMAIN", "answered", id="nxdomain"),
        pytest.param("REFUSED", "answered", id="refused"),
        pytest.param("FORMERR", "answered", id="formerr"),
        pytest.param("SERVFAIL", "servfail", id="servfail"),
        pytest.param("", "lost", id="nothing"),
    ],
)
def test_any_rcode_but_servfail_is_an_answer(rcode: str, outcome: str) -> None:
    assert Answer(1.0, rcode).outcome == outcome
    assert Burst((Answer(1.0, "NOERROR"), Answer(1.0, rcode)), 1.0).ok is (outcome == "answered")


@pytest.mark.parametrize(
    ("times", "percent", "expected"),
    [
        pytest.param([], 50, 0.0, id="of-nothing"),
        pytest.param([7.0], 1, 7.0, id="of-one"),
        pytest.param([15.0, 20.0, 35.0, 40.0, 50.0], 30, 20.0, id="between-ranks"),
        pytest.param([15.0, 20.0, 35.0, 40.0, 50.0], 40, 20.0, id="on-a-rank"),
        pytest.param([15.0, 20.0, 35.0, 40.0, 50.0], 50, 35.0, id="median"),
        pytest.param([15.0, 20.0, 35.0, 40.0, 50.0], 100, 50.0, id="maximum"),
        pytest.param([1.0, 2.0, 3.0, 4.0], 50, 2.0, id="even"),
        pytest.param([float(i) for i in range(1, 31)], 95, 29.0, id="of-thirty"),
    ],
)
def test_a_percentile_is_of_the_nearest_rank(
    times: list[float], percent: int, expected: float
) -> None:
    assert percentile(times, percent) == expected


def test_the_summary_tells_counts_and_whole_milliseconds() -> None:
    answers = [Answer(206.4, "NOERROR")] * 16 + [Answer(384.2, "NXDOMAIN")] * 14
    assert Burst(tuple(answers), 384.4).summary() == (
        "30 answered, 0 servfail, 0 lost, wall 384 ms, p50 206 ms, p95 384 ms, max 384 ms"
    )


def test_the_figures_leave_out_what_was_lost_and_keep_servfail() -> None:
    burst = Burst((Answer(10, "NOERROR"), Answer(30, "SERVFAIL"), Answer(6000, "")), 6000)
    assert burst.summary() == (
        "1 answered, 1 servfail, 1 lost, wall 6000 ms, p50 10 ms, p95 30 ms, max 30 ms"
    )


def test_a_burst_of_which_nothing_came_back_still_has_a_summary() -> None:
    assert Burst((Answer(6000, ""),) * 2, 6000).summary() == (
        "0 answered, 0 servfail, 2 lost, wall 6000 ms, p50 0 ms, p95 0 ms, max 0 ms"
    )


def test_the_bars_are_a_staircase_with_a_note_where_no_answer_came() -> None:
    burst = Burst((Answer(100, "SERVFAIL"), Answer(50, "NOERROR"), Answer(200, "")), 200)
    assert burst.bars("#", 80) == [
        f"    50 ms {'#' * 12}",
        f"   100 ms {'#' * 25} servfail",
        f"   200 ms {'#' * 50} lost",
    ]


def test_json_has_the_figures_and_every_query_in_the_order_of_sending() -> None:
    burst = Burst((Answer(2.00049, "NOERROR"), Answer(1, "SERVFAIL"), Answer(6000, "")), 6001.5)
    assert burst.as_json() == {
        "answered": 1,
        "servfail": 1,
        "lost": 1,
        "wall_ms": 6001.5,
        "p50_ms": 1,
        "p95_ms": 2.0,
        "max_ms": 2.0,
        "queries": [
            {"ms": 2.0, "rcode": "NOERROR"},
            {"ms": 1, "rcode": "SERVFAIL"},
            {"ms": 6000, "rcode": None},
        ],
    }


@given(_BURSTS)
def test_every_query_is_counted_once_and_has_its_bar(burst: Burst) -> None:
    counts = [burst.count(outcome) for outcome in ("answered", "servfail", "lost")]
    assert sum(counts) == len(burst.answers)
    assert burst.ok is (counts[1:] == [0, 0])
    bars = burst.bars("#", 80)
    assert len(bars) == len(burst.answers)
    widths = [bar.count("#") for bar in bars]
    assert widths == sorted(widths)
    assert all(1 <= width <= 50 for width in widths)
    assert all(len(bar) <= 80 for bar in bars)


@given(st.lists(st.floats(0, 6000), min_size=1).map(sorted), st.integers(1, 100))
def test_at_least_so_many_percent_are_at_or_below_a_percentile(
    times: list[float], percent: int
) -> None:
    value = percentile(times, percent)
    assert value in times
    assert sum(time <= value for time in times) >= math.ceil(len(times) * percent / 100)
    assert sum(time < value for time in times) < math.ceil(len(times) * percent / 100)


@pytest.mark.parametrize("width", [0, 20, 40, 79, 80, 200])
def test_a_bar_fits_the_terminal(width: int) -> None:
    burst = Burst((Answer(1.0, "NOERROR"), Answer(6000.0, ""), Answer(92.0, "SERVFAIL")), 6000.0)
    for line in burst.bars("#", width):
        assert len(line) <= max(width, 21)
