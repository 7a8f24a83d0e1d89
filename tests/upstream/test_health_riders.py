"""Health under overlapping attempts: one event is one failure, however many met with it."""

import random

import pytest

from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.health import CLEAR, Config, Effect, State, Tripped

MS = 1_000_000
T0 = 1_000_000 * MS
ATTEMPT = 2_000 * MS
CFG = Config(failure_threshold=2, base_backoff_ms=500, max_backoff_ms=60_000)
CLOSED = Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM)
EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


def fail(state: State, began_ms: int, ended_ms: int, fault: Fault = CLOSED) -> Effect:
    """Times are milliseconds from the beginning of the test."""
    return state.record_failure(T0 + began_ms * MS, T0 + ended_ms * MS, fault, CFG, 0)


def succeed(state: State, at_ms: int) -> None:
    state.record_success(T0 + at_ms * MS, CFG)


@pytest.mark.parametrize("riders", [2, 32, 256])
def test_a_session_that_dies_under_many_is_one_failure_that_counts(riders: int) -> None:
    state = State()
    for rider in range(riders):
        effect = fail(state, began_ms=rider, ended_ms=1_000 + rider // 4)
        assert effect == Effect(rider + 1, CLEAR)
    assert state.consecutive_failures == 1
    assert state.available(T0)
    assert state.backoff_until is None


def test_all_of_them_are_in_the_totals_and_in_the_window() -> None:
    state = State()
    succeed(state, 0)
    for rider in range(40):
        fail(state, began_ms=1 + rider, ended_ms=1_000)
    assert (state.total_failures, state.total_successes) == (40, 1)
    assert state.strip() == "0" * 32
    assert state.success_rate() == 0.0


def test_an_a_and_an_aaaa_for_one_dead_name_do_not_trip() -> None:
    state = State()
    succeed(state, 0)
    for _ in range(2):
        fail(state, began_ms=10, ended_ms=10 + 2_000, fault=EXPIRED)
    assert not state.tripped(CFG)
    assert state.total_failures == 2


def test_the_second_of_two_that_did_not_overlap_trips() -> None:
    state = State()
    fail(state, began_ms=0, ended_ms=1_000)
    assert fail(state, began_ms=1_000, ended_ms=2_000).episode == Tripped(CLOSED)


def test_one_that_began_just_before_the_last_that_counted_does_not_count() -> None:
    state = State()
    fail(state, began_ms=0, ended_ms=1_000)
    assert fail(state, began_ms=999, ended_ms=2_000).episode == CLEAR


@pytest.mark.parametrize("apart_ms", [1, 10, 100, 500, 1_500])
def test_a_silent_upstream_under_steady_load_trips_within_two_attempts(apart_ms: int) -> None:
    """Attempts begin all the time, so each failure but the first began before another's end."""
    state = State()
    tripped_at = None
    for began in range(0, 20_000, apart_ms):
        if fail(state, began, began + ATTEMPT // MS, EXPIRED).episode != CLEAR:
            tripped_at = began + ATTEMPT // MS
            break
    assert tripped_at is not None
    assert tripped_at <= 2 * ATTEMPT // MS + apart_ms


def test_a_silent_upstream_trips_whatever_the_order_in_which_its_failures_are_told() -> None:
    chance = random.Random(7)
    state = State()
    attempts = [(began, began + 2_000) for began in range(0, 8_000, 50)]
    # Those that end within one sweep of the deadlines are told in any order.
    attempts.sort(key=lambda attempt: attempt[1] + chance.randrange(100))
    for began, ended in attempts:
        fail(state, began, ended, EXPIRED)
    assert state.tripped(CFG)
    assert state.total_failures == len(attempts)


def test_a_failure_that_began_before_the_last_success_does_not_count() -> None:
    state = State()
    fail(state, began_ms=0, ended_ms=100)
    succeed(state, 200)
    assert fail(state, began_ms=150, ended_ms=2_150, fault=EXPIRED).episode == CLEAR
    assert state.consecutive_failures == 0
    assert state.total_failures == 2


def test_one_that_began_after_the_last_success_counts() -> None:
    state = State()
    succeed(state, 200)
    fail(state, began_ms=200, ended_ms=400)
    assert state.consecutive_failures == 1


def test_names_that_time_out_beside_others_that_are_answered_never_trip() -> None:
    """A household with one dead name in it: its upstream is well."""
    state = State()
    for began in range(0, 60_000, 500):
        succeed(state, began + 499)
        assert fail(state, began, began + 500, EXPIRED).episode == CLEAR
    assert state.consecutive_failures <= 1
    assert state.last_error() == str(EXPIRED)


def test_those_who_rode_on_the_session_of_a_failure_that_tripped_do_not_lengthen_the_backoff() -> (
    None
):
    state = State()
    fail(state, began_ms=0, ended_ms=100)
    for _ in range(32):
        fail(state, began_ms=100, ended_ms=200)
    assert state.consecutive_failures == 2
    assert state.backoff_until == T0 + 200 * MS + 250 * MS


def test_a_probe_of_a_backed_off_upstream_that_fails_lengthens_it() -> None:
    state = State()
    fail(state, began_ms=0, ended_ms=100)
    fail(state, began_ms=100, ended_ms=200)
    fail(state, began_ms=1_000, ended_ms=1_100)
    assert state.consecutive_failures == 3
    assert state.backoff_until == T0 + 1_100 * MS + 500 * MS


def test_a_failure_that_does_not_count_is_still_the_last_error() -> None:
    state = State()
    fail(state, began_ms=0, ended_ms=100, fault=CLOSED)
    fail(state, began_ms=50, ended_ms=150, fault=EXPIRED)
    assert state.last_error() == str(EXPIRED)
    assert state.last_error_at == T0 + 150 * MS
    assert state.consecutive_failures == 1


def test_a_failure_that_is_told_late_never_moves_back_what_counts() -> None:
    state = State()
    fail(state, began_ms=500, ended_ms=1_000)
    fail(state, began_ms=1_000, ended_ms=900 + 300)
    before = state.consecutive_failures
    fail(state, began_ms=1_100, ended_ms=1_150)
    assert (before, state.consecutive_failures) == (2, 2)
