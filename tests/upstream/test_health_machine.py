"""Health of one upstream: random interleavings against a model that remembers everything."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.health import CLEAR, WINDOW, Config, Effect, State, Tripped

MS = 1_000_000
# Coarse and few, so that equal and reversed times are common and backoffs overlap.
TIMES = st.integers(0, 12).map(lambda step: step * 250 * MS)
RANDS = st.integers(0, 2**32 - 1)
FAULTS = st.sampled_from(
    [
        Fault(FaultKind.TIMEOUT, Cause.TIMEOUT),
        Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED),
        Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER),
    ]
)


@dataclass(frozen=True)
class Recorded:
    at: int
    fault: Fault | None
    """None for a success."""


class Health(RuleBasedStateMachine):
    """Every rule records one outcome, then checks what it did; invariants look at the whole."""

    @initialize(threshold=st.integers(1, 4), base_ms=st.integers(1, 900), room=st.integers(0, 4000))
    def configure(self, threshold: int, base_ms: int, room: int) -> None:
        self.cfg = Config(threshold, base_ms, base_ms + room)
        self.state = State()
        self.history: list[Recorded] = []
        self.consecutive = 0
        self.counted_at: int | None = None
        self.revision = 0

    def newest(self, *, successes: bool) -> int | None:
        return max((r.at for r in self.history if (r.fault is None) is successes), default=None)

    def newest_fault(self) -> Fault | None:
        """Of the failure with the highest time; the one recorded last, of equal ones."""
        found: Recorded | None = None
        for recorded in self.history:
            is_newer = found is None or recorded.at >= found.at
            if recorded.fault is not None and is_newer:
                found = recorded
        return None if found is None else found.fault

    @rule(at=TIMES)
    def succeed(self, at: int) -> None:
        newest_error = self.newest(successes=False)
        stale = newest_error is not None and at < newest_error
        was_tripped = self.state.tripped(self.cfg)
        backoff_before = self.state.backoff_until
        effect = self.state.record_success(at, self.cfg)
        self.history.append(Recorded(at, None))
        if stale:
            assert self.state.backoff_until == backoff_before
        else:
            self.consecutive = 0
            assert self.state.backoff_until is None
        assert (effect is None) == (stale and was_tripped)
        assert effect is None or effect == Effect(self.state.revision, CLEAR)

    @rule(at=TIMES, took=TIMES, fault=FAULTS, rand=RANDS)
    def fail(self, at: int, took: int, fault: Fault, rand: int) -> None:
        began = at - took
        newest_success = self.newest(successes=True)
        stale = newest_success is not None and began < newest_success
        if self.counted_at is not None and began < self.counted_at:
            stale = True
        backoff_before = self.state.backoff_until
        effect = self.state.record_failure(began, at, fault, self.cfg, rand)
        self.history.append(Recorded(at, fault))
        if not stale:
            self.consecutive += 1
            self.counted_at = max(at, self.counted_at or at)
        backoff = self.state.backoff_until
        if stale or self.consecutive < self.cfg.failure_threshold:
            assert backoff == backoff_before
        else:
            assert backoff is not None
            assert backoff >= (backoff_before or 0)
            shift = min(self.consecutive - self.cfg.failure_threshold, 20)
            delay_ms = min(self.cfg.max_backoff_ms, self.cfg.base_backoff_ms << shift)
            assert backoff >= at + delay_ms // 2 * MS
            assert backoff == backoff_before or backoff <= at + delay_ms * MS
        assert effect == self.state.effect(self.cfg)

    @invariant()
    def revisions_strictly_increase_with_each_mutation(self) -> None:
        assert self.state.revision == len(self.history)

    @invariant()
    def time_fields_are_those_of_the_newest_outcomes_so_they_only_move_forward(self) -> None:
        assert self.state.last_success_at == self.newest(successes=True)
        assert self.state.last_error_at == self.newest(successes=False)

    @invariant()
    def tripped_means_that_the_threshold_is_reached(self) -> None:
        assert self.state.consecutive_failures == self.consecutive
        assert self.state.tripped(self.cfg) == (self.consecutive >= self.cfg.failure_threshold)

    @invariant()
    def only_a_tripped_upstream_is_backed_off_and_only_until_then(self) -> None:
        until = self.state.backoff_until
        assert (until is not None) == self.state.tripped(self.cfg)
        if until is None:
            assert self.state.available(0)
        else:
            assert not self.state.available(until)
            assert self.state.available(until + 1)

    @invariant()
    def window_fill_and_totals_tell_the_same_story(self) -> None:
        successes = [recorded.fault is None for recorded in self.history]
        recent = successes[-WINDOW:]
        assert self.state.total_successes == sum(successes)
        assert self.state.total_failures == len(successes) - sum(successes)
        assert self.state.fill == len(recent)
        assert self.state.window < 1 << self.state.fill
        assert self.state.strip() == "".join(str(int(good)) for good in reversed(recent))
        assert self.state.success_rate() == (sum(recent) / len(recent) if recent else 1.0)

    @invariant()
    def the_effect_is_the_whole_desired_state(self) -> None:
        fault = self.newest_fault()
        assert self.state.last_error() == ("" if fault is None else str(fault))
        if self.state.tripped(self.cfg):
            assert fault is not None
            assert self.state.effect(self.cfg) == Effect(self.state.revision, Tripped(fault))
        else:
            assert self.state.effect(self.cfg) == Effect(self.state.revision, CLEAR)


TestHealth = Health.TestCase
TestHealth.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
