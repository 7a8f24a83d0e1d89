"""LogLimit: one line of a kind for each interval."""

from hypothesis import given
from hypothesis import strategies as st

from nxdns.logs.limit import MINUTE_NS, LogLimit


def test_the_first_event_of_a_kind_is_logged_whatever_the_time_is() -> None:
    assert LogLimit().allows("full", 0)
    assert LogLimit().allows("full", 10**18)


def test_a_kind_is_silent_until_a_minute_has_passed() -> None:
    limit = LogLimit()
    assert limit.allows("full", 1_000)
    assert not limit.allows("full", 1_000)
    assert not limit.allows("full", 1_000 + MINUTE_NS - 1)
    assert limit.allows("full", 1_000 + MINUTE_NS)


def test_an_event_that_is_not_logged_does_not_prolong_the_silence() -> None:
    limit = LogLimit(interval_ns=100)
    assert limit.allows("full", 0)
    assert not any(limit.allows("full", now) for now in range(1, 100))
    assert limit.allows("full", 100)


def test_one_kind_does_not_silence_another() -> None:
    limit = LogLimit()
    assert limit.allows("full", 0)
    assert limit.allows("oversize", 0)
    assert not limit.allows("full", 1)


def test_limits_know_nothing_of_each_other() -> None:
    assert LogLimit().allows("full", 0)
    assert LogLimit().allows("full", 0)


def test_what_it_remembers_is_bounded_however_many_kinds_there_are() -> None:
    limit = LogLimit()
    assert limit.allows("first", 0)
    assert all(limit.allows(f"kind {number}", 0) for number in range(10_000))
    assert limit.allows("first", 1), "nothing that old can still be remembered"


@given(st.lists(st.integers(0, 40), max_size=50), st.integers(1, 30))
def test_two_lines_of_a_kind_are_an_interval_apart_and_none_is_withheld_longer(
    steps: list[int], interval: int
) -> None:
    limit = LogLimit(interval_ns=interval)
    now, logged = 0, list[int]()
    for step in steps:
        now += step
        due = not logged or now - logged[-1] >= interval
        assert limit.allows("full", now) is due
        if due:
            logged.append(now)
