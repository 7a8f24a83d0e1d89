"""Health of one upstream: threshold, backoff, and when it is trusted again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.health import CLEAR, Config, Effect, State, Tripped

MS = 1_000_000
T0 = 1_000_000 * MS
CFG = Config(failure_threshold=2, base_backoff_ms=500, max_backoff_ms=60_000)
RESET = Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER)
REFUSED = Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED)
HIGHEST_RAND = 2**32 - 1


def failed(times: int, cfg: Config = CFG, *, at: int = T0, rand: int = 0) -> State:
    """An upstream whose last ``times`` exchanges failed, all at one time."""
    state = State()
    for _ in range(times):
        state.record_failure(at, at, RESET, cfg, rand)
    return state


def delay_ms(failures: int, cfg: Config, rand: int) -> float:
    """The backoff behind that many failures."""
    until = failed(failures, cfg, rand=rand).backoff_until
    assert until is not None
    return (until - T0) / MS


@pytest.mark.parametrize(
    ("threshold", "base_ms", "max_ms"),
    [
        pytest.param(0, 500, 60_000, id="threshold of 0"),
        pytest.param(-1, 500, 60_000, id="negative threshold"),
        pytest.param(2, 0, 60_000, id="no base backoff"),
        pytest.param(2, 500, 499, id="a maximum below the base"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    threshold: int, base_ms: int, max_ms: int
) -> None:
    with pytest.raises(ValueError, match="must"):
        Config(threshold, base_ms, max_ms)


def test_the_defaults_are_two_failures_half_a_second_and_a_minute() -> None:
    assert Config() == Config(2, 500, 60_000)


def test_an_upstream_never_asked_is_trusted() -> None:
    state = State()
    assert state.available(0)
    assert not state.tripped(CFG)
    assert state.success_rate() == 1.0
    assert state.strip() == ""
    assert state.last_error() == ""
    assert state.effect(CFG) == Effect(0, CLEAR)
    assert state.last_success_at is None
    assert state.last_error_at is None
    assert state.backoff_until is None


@pytest.mark.parametrize("threshold", [2, 3, 7])
def test_below_the_threshold_an_upstream_stays_available(threshold: int) -> None:
    cfg = Config(threshold, 500, 60_000)
    state = failed(threshold - 1, cfg)
    assert state.available(T0)
    assert not state.tripped(cfg)
    assert state.backoff_until is None
    assert state.effect(cfg).episode == CLEAR


@pytest.mark.parametrize("threshold", [1, 2, 3, 7])
def test_at_the_threshold_an_upstream_is_unavailable_until_exactly_backoff_until(
    threshold: int,
) -> None:
    cfg = Config(threshold, 500, 60_000)
    state = failed(threshold, cfg)
    until = T0 + 250 * MS
    assert state.tripped(cfg)
    assert state.backoff_until == until
    assert not state.available(T0)
    assert not state.available(until - 1)
    assert not state.available(until)
    assert state.available(until + 1)


def test_the_end_of_a_backoff_is_no_recovery() -> None:
    state = failed(2)
    assert state.available(T0 + 3_600_000 * MS)
    assert state.tripped(CFG)
    assert state.effect(CFG) == Effect(2, Tripped(RESET))


def test_a_backoff_doubles_with_each_failure_and_saturates_at_its_maximum() -> None:
    grown = [delay_ms(n, CFG, rand=250 * 2 ** min(n - 2, 7)) for n in range(2, 9)]
    assert grown == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    assert [delay_ms(n, CFG, rand=30_000) for n in range(9, 42)] == [60_000] * 33


def test_a_backoff_never_shrinks_over_40_failures() -> None:
    state, before = State(), 0
    for _ in range(40):
        state.record_failure(T0, T0, RESET, CFG, 0)
        now = state.backoff_until or 0
        assert now >= before
        before = now
    assert before == T0 + 30_000 * MS


def test_a_backoff_grows_by_2_to_the_20th_at_most() -> None:
    cfg = Config(1, 1, 2**40)
    assert delay_ms(21, cfg, rand=0) == 2**19
    assert delay_ms(22, cfg, rand=0) == 2**19
    assert delay_ms(60, cfg, rand=0) == 2**19


@pytest.mark.parametrize(
    ("base_ms", "rand", "expected"),
    [
        pytest.param(500, 0, 250, id="lowest"),
        pytest.param(500, 250, 500, id="highest"),
        pytest.param(500, 251, 250, id="round the corner"),
        pytest.param(501, 250, 500, id="odd delay"),
        pytest.param(1, HIGHEST_RAND, 0, id="a single millisecond"),
        pytest.param(2, HIGHEST_RAND, 2, id="two milliseconds"),
    ],
)
def test_jitter_draws_from_the_upper_half_of_the_delay(
    base_ms: int, rand: int, expected: int
) -> None:
    assert delay_ms(2, Config(2, base_ms, 60_000), rand) == expected


@given(st.integers(1, 3_600_000), st.integers(2, 45), st.integers(0, HIGHEST_RAND))
def test_jitter_stays_between_half_the_delay_and_all_of_it(
    base_ms: int, failures: int, rand: int
) -> None:
    cfg = Config(2, base_ms, max(base_ms, 60_000))
    state = failed(failures - 1, cfg)
    alone = State()
    alone.consecutive_failures = failures - 1
    alone.record_failure(T0, T0, RESET, cfg, rand)
    delay = min(cfg.max_backoff_ms, base_ms * 2 ** min(failures - 2, 20))
    until = alone.backoff_until
    assert until is not None
    assert delay // 2 * MS <= until - T0 <= delay * MS
    state.record_failure(T0, T0, RESET, cfg, rand)
    assert (state.backoff_until or 0) >= until


def test_a_success_clears_failures_and_backoff() -> None:
    state = failed(5)
    effect = state.record_success(T0, CFG)
    assert effect == Effect(6, CLEAR)
    assert state.consecutive_failures == 0
    assert state.backoff_until is None
    assert state.available(T0)
    assert not state.tripped(CFG)


def test_after_a_success_the_threshold_and_the_growth_begin_anew() -> None:
    state = failed(9)
    state.record_success(T0, CFG)
    assert state.record_failure(T0 + 1, T0 + 1, RESET, CFG, 0).episode == CLEAR
    assert state.record_failure(T0 + 1, T0 + 1, RESET, CFG, 0).episode == Tripped(RESET)
    assert state.backoff_until == T0 + 1 + 250 * MS


def test_the_last_error_outlives_the_success_that_cleared_it() -> None:
    state = failed(2)
    state.record_success(T0 + 1, CFG)
    assert state.last_error() == "ReceiveFailed (cause ConnectionResetByPeer)"
    assert state.last_error_at == T0


def test_one_failure_is_clear_the_second_tripped_and_a_success_clear() -> None:
    state = State()
    assert state.record_failure(T0, T0, RESET, CFG, 0) == Effect(1, CLEAR)
    assert state.record_failure(T0 + 1, T0 + 1, REFUSED, CFG, 0) == Effect(2, Tripped(REFUSED))
    assert state.record_success(T0 + 2, CFG) == Effect(3, CLEAR)


def test_an_upstream_that_fails_every_other_exchange_never_trips() -> None:
    state = State()
    for at in range(T0, T0 + 100, 2):
        assert state.record_failure(at, at, RESET, CFG, 0).episode == CLEAR
        assert state.record_success(at + 1, CFG) is not None
    assert not state.tripped(CFG)
    assert state.success_rate() == 0.5


def test_the_current_effect_changes_nothing() -> None:
    state = failed(2)
    assert state.effect(CFG) == state.effect(CFG) == Effect(2, Tripped(RESET))
    assert state.revision == 2


def test_an_effect_is_judged_by_the_configuration_of_the_day() -> None:
    """A reload may change the threshold and keeps the state."""
    state = failed(2)
    assert state.effect(Config(3, 500, 60_000)).episode == CLEAR
    assert state.effect(Config(1, 500, 60_000)).episode == Tripped(RESET)


@pytest.mark.parametrize(
    ("outcomes", "rate", "strip"),
    [
        pytest.param("S", 1.0, "1", id="one success"),
        pytest.param("F", 0.0, "0", id="one failure"),
        pytest.param("FS", 0.5, "10", id="newest first"),
        pytest.param("SFF", 1 / 3, "001", id="a third"),
        pytest.param("FS" * 16, 0.5, "10" * 16, id="a full window at half"),
        pytest.param("S" * 16 + "F" * 16, 0.5, "0" * 16 + "1" * 16, id="half, the newest bad"),
        pytest.param("F" * 32 + "S" * 16, 0.5, "1" * 16 + "0" * 16, id="the oldest fall out"),
        pytest.param("F" * 100 + "S" * 32, 1.0, "1" * 32, id="all bad ones have fallen out"),
        pytest.param("S" * 33, 1.0, "1" * 32, id="never more than 32"),
    ],
)
def test_the_window_holds_the_newest_32_outcomes(outcomes: str, rate: float, strip: str) -> None:
    state = State()
    for at, outcome in enumerate(outcomes, start=T0):
        if outcome == "S":
            state.record_success(at, CFG)
        else:
            state.record_failure(at, at, RESET, CFG, 0)
    assert state.success_rate() == pytest.approx(rate)
    assert state.strip() == strip
    assert state.total_successes == outcomes.count("S")
    assert state.total_failures == outcomes.count("F")
