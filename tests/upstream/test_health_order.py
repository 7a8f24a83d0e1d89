"""Health of one upstream: outcomes that complete out of order."""

from itertools import pairwise

import pytest

from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.health import CLEAR, Config, Effect, State, Tripped

MS = 1_000_000
EARLY, T0, LATE = 900 * MS, 1_000 * MS, 1_100 * MS
TRIPS_AT_ONCE = Config(failure_threshold=1, base_backoff_ms=500, max_backoff_ms=60_000)
OLD = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)
NEW = Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED)
CFG = Config(failure_threshold=2, base_backoff_ms=500, max_backoff_ms=60_000)


def outcomes(*steps: tuple[str, int], cfg: Config = TRIPS_AT_ONCE) -> State:
    state = State()
    for outcome, at in steps:
        if outcome == "success":
            state.record_success(at, cfg)
        else:
            state.record_failure(at, at, NEW, cfg, 0)
    return state


@pytest.mark.parametrize(
    ("first", "second", "at", "tripped", "backoff_until", "success_at", "error_at"),
    [
        pytest.param("success", "success", EARLY, False, None, T0, None, id="S then older S"),
        pytest.param("success", "success", T0, False, None, T0, None, id="S then equal S"),
        pytest.param("success", "success", LATE, False, None, LATE, None, id="S then newer S"),
        pytest.param("success", "failure", EARLY, False, None, T0, EARLY, id="S then stale F"),
        pytest.param("success", "failure", T0, True, T0 + 250 * MS, T0, T0, id="S then equal F"),
        pytest.param(
            "success", "failure", LATE, True, LATE + 250 * MS, T0, LATE, id="S then newer F"
        ),
        pytest.param(
            "failure", "success", EARLY, True, T0 + 250 * MS, EARLY, T0, id="F then stale S"
        ),
        pytest.param("failure", "success", T0, False, None, T0, T0, id="F then equal S"),
        pytest.param("failure", "success", LATE, False, None, LATE, T0, id="F then newer S"),
        pytest.param(
            "failure", "failure", EARLY, True, T0 + 250 * MS, None, T0, id="F then older F"
        ),
        pytest.param("failure", "failure", T0, True, T0 + 500 * MS, None, T0, id="F then equal F"),
        pytest.param(
            "failure", "failure", LATE, True, LATE + 500 * MS, None, LATE, id="F then newer F"
        ),
    ],
)
def test_every_pair_of_outcomes_in_every_order(
    first: str,
    second: str,
    at: int,
    tripped: bool,
    backoff_until: int | None,
    success_at: int | None,
    error_at: int | None,
) -> None:
    state = outcomes((first, T0), (second, at))
    assert state.tripped(TRIPS_AT_ONCE) is tripped
    assert state.backoff_until == backoff_until
    assert state.last_success_at == success_at
    assert state.last_error_at == error_at
    assert [state.total_successes, state.total_failures] == [
        [first, second].count("success"),
        [first, second].count("failure"),
    ]
    assert state.strip() == "".join(
        "1" if outcome == "success" else "0" for outcome in (second, first)
    )
    assert state.revision == 2


def test_a_stale_success_behind_a_newer_failure_projects_nothing() -> None:
    state = outcomes(("failure", T0))
    assert state.record_success(T0 - 1, TRIPS_AT_ONCE) is None
    assert state.effect(TRIPS_AT_ONCE) == Effect(2, Tripped(NEW))


def test_a_stale_success_counts_and_changes_nothing_that_the_failure_decided() -> None:
    state = outcomes(("failure", T0), ("failure", T0), cfg=CFG)
    backoff_until = state.backoff_until
    assert state.record_success(EARLY, CFG) is None
    assert state.consecutive_failures == 2
    assert state.backoff_until == backoff_until
    assert state.last_success_at == EARLY
    assert state.total_successes == 1
    assert state.strip() == "100"


def test_a_stale_success_below_the_threshold_is_clear_and_forgives_nothing() -> None:
    state = outcomes(("failure", T0), cfg=CFG)
    assert state.record_success(EARLY, CFG) == Effect(2, CLEAR)
    assert state.consecutive_failures == 1
    assert state.record_failure(T0, T0, NEW, CFG, 0) == Effect(3, Tripped(NEW))


def test_a_stale_failure_returns_the_newer_fault() -> None:
    state = outcomes(("failure", T0))
    effect = state.record_failure(EARLY, EARLY, OLD, TRIPS_AT_ONCE, 0)
    assert effect == Effect(2, Tripped(NEW))
    assert state.last_error() == str(NEW)


def test_a_failure_at_an_equal_time_replaces_the_fault() -> None:
    state = outcomes(("failure", T0))
    assert state.record_failure(T0, T0, OLD, TRIPS_AT_ONCE, 0) == Effect(2, Tripped(OLD))


def test_a_failure_older_than_the_last_success_raises_no_count_and_no_backoff() -> None:
    state = outcomes(("success", T0))
    assert state.record_failure(EARLY, EARLY, NEW, TRIPS_AT_ONCE, 0) == Effect(2, CLEAR)
    assert state.consecutive_failures == 0
    assert state.backoff_until is None
    assert state.last_error_at == EARLY
    assert state.last_error() == str(NEW)
    assert state.total_failures == 1


def test_a_stale_failure_does_not_extend_the_backoff_of_a_tripped_upstream() -> None:
    # A success older than the last failure does not clear; a failure older than both counts not.
    state = outcomes(("failure", LATE), ("success", T0))
    backoff_until = state.backoff_until
    effect = state.record_failure(EARLY, EARLY, OLD, TRIPS_AT_ONCE, 2**32 - 1)
    assert effect == Effect(3, Tripped(NEW))
    assert state.consecutive_failures == 1
    assert state.backoff_until == backoff_until


def test_a_backoff_is_extended_and_never_shortened() -> None:
    state = State()
    state.record_failure(T0, T0, NEW, TRIPS_AT_ONCE, 250)
    assert state.backoff_until == T0 + 500 * MS
    # Begun after that failure, and established, as it came, before it.
    state.record_failure(T0, 0, OLD, TRIPS_AT_ONCE, 0)
    assert state.backoff_until == T0 + 500 * MS
    state.record_failure(T0 + 1, T0 + 1, NEW, TRIPS_AT_ONCE, 0)
    assert state.backoff_until == T0 + 1 + 1_000 * MS


def test_revisions_strictly_increase_whatever_comes() -> None:
    state = State()
    revisions = [state.revision]
    for at in (T0, EARLY, LATE, T0, 0):
        effect = state.record_failure(at, at, NEW, CFG, 0)
        assert effect.revision == state.revision
        revisions.append(state.revision)
        effect_or_none = state.record_success(at, CFG)
        assert effect_or_none is None or effect_or_none.revision == state.revision
        revisions.append(state.revision)
    assert all(one < other for one, other in pairwise(revisions))
