"""The pool over fake leaves: whose clock ran out, and what that proves."""

from dataclasses import dataclass, field

import gevent
import pytest

from nxdns.upstream import health
from nxdns.upstream.entry import Entry
from nxdns.upstream.transport import (
    Cause,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    PeerFault,
)
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REPLY,
    RESET,
    SECOND,
    GatedLeaf,
    ManualClock,
    ScriptedLeaf,
    assert_all_free,
    entry_of,
    pool_of,
)

EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


@dataclass
class Effects:
    """What the pool hands over."""

    seen: list[tuple[str, health.Effect]] = field(default_factory=list)

    def __call__(self, entry: Entry, effect: health.Effect) -> None:
        self.seen.append((entry.label, effect))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def effects() -> Effects:
    return Effects()


def assert_unrecorded(entry: Entry) -> None:
    assert entry.health.revision == 0
    assert entry.health.last_fault is None
    assert sum(entry.history.durations.snapshot().counts) == 0
    assert_all_free(entry.slots)


def test_the_expiry_of_an_attempt_is_recorded_as_a_timeout_of_the_peer(
    clock: ManualClock, effects: Effects
) -> None:
    entry = entry_of(GatedLeaf(), clock=clock)
    pool = pool_of(entry, clock=clock, threshold=1, attempt_ns=20 * MS, on_effect=effects)
    with pytest.raises(PeerFault) as raised:
        exchanged(pool, QUERY)
    assert raised.value.fault == EXPIRED
    assert entry.health.last_error() == "Timeout (cause Timeout)"
    assert entry.health.total_failures == 1
    assert effects.seen == [("one", health.Effect(1, health.Tripped(EXPIRED)))]
    assert_all_free(entry.slots)


def test_after_an_attempt_has_expired_the_next_upstream_is_asked(clock: ManualClock) -> None:
    stalled = entry_of(GatedLeaf(), clock=clock)
    good = entry_of(ScriptedLeaf(REPLY), clock=clock)
    assert exchanged(pool_of(stalled, good, clock=clock, attempt_ns=20 * MS), QUERY) == REPLY
    assert stalled.health.last_fault == EXPIRED


def test_an_attempt_as_long_as_what_is_left_is_a_full_one(clock: ManualClock) -> None:
    entry = entry_of(GatedLeaf(), clock=clock)
    pool = pool_of(entry, clock=clock, attempt_ns=20 * MS, total_ns=20 * MS)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    assert entry.health.last_fault == EXPIRED


def test_an_attempt_cut_short_by_earlier_attempts_proves_nothing(
    clock: ManualClock, effects: Effects
) -> None:
    def fail_late() -> Fault:
        clock.advance(10 * SECOND - 20 * MS)
        return RESET

    slow = entry_of(ScriptedLeaf(fail_late), clock=clock, label="slow")
    stalled_leaf = GatedLeaf()
    stalled = entry_of(stalled_leaf, clock=clock, label="stalled")
    idle = entry_of(ScriptedLeaf(), clock=clock, label="idle")
    pool = pool_of(
        slow,
        stalled,
        idle,
        clock=clock,
        threshold=1,
        attempt_ns=SECOND,
        total_ns=10 * SECOND,
        on_effect=effects,
    )
    with pytest.raises(LocalResource) as raised:
        exchanged(pool, QUERY)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert isinstance(stalled_leaf.interrupted_by, gevent.Timeout), "it was started"
    assert slow.health.total_failures == 1
    assert_unrecorded(stalled)
    assert [label for label, _ in effects.seen] == ["slow"]


def test_an_attempt_cut_short_that_is_answered_in_time_is_a_success(clock: ManualClock) -> None:
    def fail_late() -> Fault:
        clock.advance(10 * SECOND - MS)
        return RESET

    good = entry_of(ScriptedLeaf(REPLY), clock=clock)
    pool = pool_of(
        entry_of(ScriptedLeaf(fail_late), clock=clock), good, clock=clock, total_ns=10 * SECOND
    )
    assert exchanged(pool, QUERY) == REPLY
    assert good.health.total_successes == 1


@pytest.mark.parametrize("overrun_ns", [0, 1, SECOND], ids=["exactly", "just", "by far"])
def test_with_nothing_left_when_its_turn_comes_no_leaf_is_started(
    clock: ManualClock, overrun_ns: int
) -> None:
    def fail_at_the_deadline() -> Fault:
        clock.advance(10 * SECOND + overrun_ns)
        return RESET

    slow = entry_of(ScriptedLeaf(fail_at_the_deadline), clock=clock)
    unstarted = entry_of(ScriptedLeaf(), clock=clock)
    pool = pool_of(slow, unstarted, clock=clock, total_ns=10 * SECOND)
    with pytest.raises(LocalResource) as raised:
        exchanged(pool, QUERY)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert slow.health.last_fault == RESET
    assert_unrecorded(unstarted)


def test_with_nothing_left_when_its_turn_comes_a_query_does_not_queue(clock: ManualClock) -> None:
    def fail_at_the_deadline() -> Fault:
        clock.advance(10 * SECOND)
        return RESET

    leaf = GatedLeaf()
    full = entry_of(leaf, clock=clock)
    holder = gevent.spawn(exchanged, pool_of(full, clock=clock), QUERY)
    leaf.entered.wait()
    slow = entry_of(ScriptedLeaf(fail_at_the_deadline), clock=clock)
    with pytest.raises(LocalResource) as raised:
        exchanged(pool_of(slow, full, clock=clock, total_ns=10 * SECOND), QUERY)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert full.slots.queue.waited == 0
    leaf.gate.set()
    holder.join()


def test_a_total_budget_that_was_used_up_by_the_last_upstream_raises_its_fault(
    clock: ManualClock,
) -> None:
    def fail_at_the_deadline() -> Fault:
        clock.advance(10 * SECOND)
        return RESET

    pool = pool_of(
        entry_of(ScriptedLeaf(fail_at_the_deadline), clock=clock), clock=clock, total_ns=10 * SECOND
    )
    with pytest.raises(PeerFault) as raised:
        exchanged(pool, QUERY)
    assert raised.value.fault == RESET


@pytest.mark.parametrize("cause", [Cause.CONNECTION_TIMED_OUT, Cause.TIMEOUT, Cause.END_OF_STREAM])
def test_a_timeout_that_the_leaf_found_is_recorded_with_its_own_cause(
    clock: ManualClock, cause: Cause
) -> None:
    fault = Fault(FaultKind.TIMEOUT, cause)
    entry = entry_of(ScriptedLeaf(fault), clock=clock)
    with pytest.raises(PeerFault) as raised:
        exchanged(pool_of(entry, clock=clock), QUERY)
    assert raised.value.fault == fault
    assert entry.health.last_error() == f"Timeout (cause {cause})"


def test_a_timeout_that_the_leaf_found_in_an_attempt_cut_short_is_recorded_too(
    clock: ManualClock,
) -> None:
    fault = Fault(FaultKind.TIMEOUT, Cause.CONNECTION_TIMED_OUT)
    entry = entry_of(ScriptedLeaf(fault), clock=clock)
    pool = pool_of(entry, clock=clock, attempt_ns=2 * SECOND, total_ns=SECOND)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    assert entry.health.last_fault == fault


def test_somebody_elses_timeout_passes_through_and_is_recorded_against_nobody(
    clock: ManualClock, effects: Effects
) -> None:
    entry = entry_of(GatedLeaf(), clock=clock)
    untouched = entry_of(ScriptedLeaf(), clock=clock)
    pool = pool_of(entry, untouched, clock=clock, threshold=1, on_effect=effects)
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.01) as somebody_elses:
        exchanged(pool, QUERY)
    assert caught.value is somebody_elses
    assert_unrecorded(entry)
    assert effects.seen == []


def test_a_query_that_waits_for_a_slot_all_its_budget_times_out_unrecorded(
    clock: ManualClock, effects: Effects
) -> None:
    holder_leaf = GatedLeaf()
    full = entry_of(holder_leaf, clock=clock)
    untouched = entry_of(ScriptedLeaf(), clock=clock)
    patient = pool_of(full, clock=clock, on_effect=effects)
    holder = gevent.spawn(exchanged, patient, QUERY)
    holder_leaf.entered.wait()
    hasty = pool_of(full, untouched, clock=clock, total_ns=20 * MS, on_effect=effects)
    with pytest.raises(PeerFault) as raised:
        exchanged(hasty, QUERY)
    assert raised.value.fault == EXPIRED
    assert full.health.revision == 0
    assert effects.seen == []
    assert full.slots.queue.waited == 1
    holder_leaf.gate.set()
    assert holder.get(timeout=1) == REPLY
    assert_all_free(full.slots)


def test_an_attempt_cut_short_by_queueing_proves_nothing(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock, attempt_ns=2 * SECOND, total_ns=10 * SECOND)
    holder = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    queued = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    clock.advance(10 * SECOND - 20 * MS)
    leaf.gate.set()
    leaf.gate.clear()  # the holder is let through, who comes behind it is not
    assert holder.get(timeout=1) == REPLY
    with pytest.raises(LocalResource) as raised:
        queued.get(timeout=1)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert len(leaf.queries) == 2
    assert entry.health.revision == 1, "the success of the holder alone"
    assert_all_free(entry.slots)


def test_a_slot_that_comes_when_nothing_is_left_starts_no_leaf(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock, total_ns=10 * SECOND)
    holder = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    queued = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    clock.advance(10 * SECOND)
    leaf.gate.set()
    assert holder.get(timeout=1) == REPLY
    with pytest.raises(LocalResource) as raised:
        queued.get(timeout=1)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert len(leaf.queries) == 1
    assert_all_free(entry.slots)
