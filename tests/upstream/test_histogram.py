"""The histogram of durations: which bucket counts what, and that nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.upstream.histogram import Histogram

MS = 1_000_000
BOUNDS = Histogram().snapshot().bounds_seconds


def counted(*durations_ns: int) -> tuple[int, ...]:
    histogram = Histogram()
    for duration in durations_ns:
        histogram.observe(duration)
    return histogram.snapshot().counts


def test_the_bounds_rise_from_a_millisecond_to_five_seconds() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert (BOUNDS[0], BOUNDS[-1]) == (0.001, 5.0)


def test_an_empty_histogram_has_one_count_more_than_bounds_and_all_are_zero() -> None:
    snapshot = Histogram().snapshot()
    assert snapshot.counts == (0,) * (len(snapshot.bounds_seconds) + 1)
    assert snapshot.sum_seconds == 0.0


@pytest.mark.parametrize("index", range(len(BOUNDS)), ids=[f"{bound} s" for bound in BOUNDS])
def test_a_duration_equal_to_a_bound_falls_below_it_and_one_nanosecond_more_above(
    index: int,
) -> None:
    bound_ns = round(BOUNDS[index] * 1_000_000_000)
    assert counted(bound_ns)[index] == 1
    assert counted(bound_ns + 1)[index + 1] == 1


def test_the_smallest_and_the_largest_duration_are_counted_at_the_ends() -> None:
    assert counted(0)[0] == 1
    assert counted(10**15)[-1] == 1


@given(st.lists(st.integers(0, 8_000 * MS)))
def test_every_duration_is_counted_once_in_the_bucket_it_belongs_to(durations: list[int]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.observe(duration)
    snapshot = histogram.snapshot()
    below = [sum(duration <= bound * 1e9 for duration in durations) for bound in BOUNDS]
    cumulative = [sum(snapshot.counts[: index + 1]) for index in range(len(BOUNDS))]
    assert cumulative == below
    assert sum(snapshot.counts) == len(durations)
    assert snapshot.sum_seconds == pytest.approx(sum(durations) / 1e9)


def test_a_snapshot_does_not_change_with_what_is_counted_later() -> None:
    histogram = Histogram()
    histogram.observe(3 * MS)
    before = histogram.snapshot()
    histogram.observe(3 * MS)
    assert sum(before.counts) == 1
    assert sum(histogram.snapshot().counts) == 2
