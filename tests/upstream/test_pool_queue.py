"""The pool over fake leaves: who waits for a slot, for how long, and what it finds then."""

import gevent
import pytest
from gevent.event import Event

from nxdns.upstream.transport import Fault, FaultKind, PeerFault
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REFUSED,
    REPLY,
    RESET,
    SECOND,
    FakeLeaf,
    GatedLeaf,
    ManualClock,
    Outcome,
    ScriptedLeaf,
    SteadyLeaf,
    assert_all_free,
    entry_of,
    pool_of,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class OneByOneLeaf(FakeLeaf):
    """Each exchange has a gate of its own; ``arrived[n]`` is set when the n-th has begun."""

    def __init__(self, *script: Outcome) -> None:
        super().__init__()
        self.arrived = [Event() for _ in script]
        self.gates = [Event() for _ in script]
        self._script = script

    def outcome(self) -> Outcome:
        turn = len(self.queries) - 1
        self.arrived[turn].set()
        self.gates[turn].wait()
        return self._script[turn]


def test_two_slots_overlap_and_a_third_query_waits(clock: ManualClock) -> None:
    leaves = [GatedLeaf(), GatedLeaf()]
    entry = entry_of(*leaves, clock=clock)
    pool = pool_of(entry, clock=clock)
    asking = [gevent.spawn(exchanged, pool, QUERY) for _ in range(3)]
    gevent.idle()
    assert [len(leaf.queries) for leaf in leaves] == [1, 1], "two are on their way at once"
    assert entry.slots.in_flight == 2
    for leaf in leaves:
        leaf.gate.set()
    gevent.joinall(asking, raise_error=True)
    assert sum(len(leaf.queries) for leaf in leaves) == 3
    assert entry.slots.peak_in_flight == 2, "never above the number of slots"
    assert entry.slots.queue.waited == 1
    assert_all_free(entry.slots)


def test_thirty_queries_at_once_are_all_answered_through_eight_slots(clock: ManualClock) -> None:
    leaves = [GatedLeaf() for _ in range(8)]
    entry = entry_of(*leaves, clock=clock)
    pool = pool_of(entry, clock=clock)
    asking = [gevent.spawn(exchanged, pool, QUERY) for _ in range(30)]
    gevent.idle()
    assert entry.slots.in_flight == 8
    for leaf in leaves:
        leaf.gate.set()
    gevent.joinall(asking, raise_error=True)
    assert [greenlet.value for greenlet in asking] == [REPLY] * 30
    assert entry.slots.peak_in_flight == 8
    assert entry.slots.queue.waited == 22
    assert_all_free(entry.slots)


def test_a_waiter_that_got_in_one_that_ran_out_and_one_that_was_killed_are_all_counted(
    clock: ManualClock,
) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    patient = pool_of(entry, clock=clock)
    hasty = pool_of(entry, clock=clock, total_ns=20 * MS)
    holder = gevent.spawn(exchanged, patient, QUERY)
    leaf.entered.wait()
    got_in = gevent.spawn(exchanged, patient, QUERY)
    killed = gevent.spawn(exchanged, patient, QUERY)
    gevent.idle()
    clock.advance(10 * MS)
    killed.kill()
    assert (entry.slots.queue.waited, entry.slots.queue.waited_ns) == (1, 10 * MS)
    with pytest.raises(PeerFault) as raised:
        exchanged(hasty, QUERY)
    assert raised.value.fault.kind is FaultKind.TIMEOUT
    assert (entry.slots.queue.waited, entry.slots.queue.waited_ns) == (2, 10 * MS)
    clock.advance(30 * MS)
    leaf.gate.set()
    assert holder.get(timeout=1) == REPLY
    assert got_in.get(timeout=1) == REPLY
    assert (entry.slots.queue.waited, entry.slots.queue.waited_ns) == (3, 50 * MS)
    assert entry.health.total_successes == 2
    assert entry.health.total_failures == 0
    assert_all_free(entry.slots)


def test_the_duration_of_an_attempt_does_not_include_the_wait_for_its_slot(
    clock: ManualClock,
) -> None:
    leaf = OneByOneLeaf(REPLY, REPLY)
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    asking = [gevent.spawn(exchanged, pool, QUERY) for _ in range(2)]
    leaf.arrived[0].wait()
    gevent.idle()
    clock.advance(40 * MS)
    leaf.gates[0].set()
    leaf.arrived[1].wait()
    clock.advance(3 * MS)
    leaf.gates[1].set()
    gevent.joinall(asking, raise_error=True)
    assert entry.slots.queue.waited_ns == 40 * MS
    assert entry.history.durations.snapshot().sum_seconds == pytest.approx(0.043)


def test_the_queue_of_one_upstream_is_not_that_of_another(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    full = entry_of(leaf, clock=clock)
    holder = gevent.spawn(exchanged, pool_of(full, clock=clock), QUERY)
    leaf.entered.wait()
    free = entry_of(SteadyLeaf(), clock=clock)
    assert exchanged(pool_of(free, full, clock=clock), QUERY) == REPLY
    assert full.slots.queue.waited == 0
    leaf.gate.set()
    holder.join()


def test_who_waited_behind_a_failure_that_tripped_the_upstream_goes_on_to_the_next(
    clock: ManualClock,
) -> None:
    leaf = OneByOneLeaf(RESET)
    sick = entry_of(leaf, clock=clock)
    good = entry_of(SteadyLeaf(), clock=clock)
    pool = pool_of(sick, good, clock=clock, threshold=1)
    asking = [gevent.spawn(exchanged, pool, QUERY) for _ in range(3)]
    leaf.arrived[0].wait()
    gevent.idle()
    leaf.gates[0].set()
    gevent.joinall(asking, raise_error=True)
    assert [greenlet.value for greenlet in asking] == [REPLY] * 3
    assert len(leaf.queries) == 1, "the wait outlived the health that admitted it"
    assert sick.health.total_failures == 1
    assert good.health.total_successes == 3
    assert sick.slots.queue.waited == 2
    assert_all_free(sick.slots)


def test_availability_is_checked_again_with_a_fresh_clock(clock: ManualClock) -> None:
    leaf = OneByOneLeaf(RESET, REPLY)
    entry = entry_of(leaf, clock=clock)
    other = entry_of(ScriptedLeaf(REPLY), clock=clock)
    pool = pool_of(entry, other, clock=clock, threshold=1, base_backoff_ms=1_000)

    def end_the_backoff(*_: object) -> None:
        clock.advance(500 * MS + 1)

    first = gevent.spawn(
        exchanged, pool_of(entry, clock=clock, threshold=1, on_effect=end_the_backoff), QUERY
    )
    leaf.arrived[0].wait()
    queued = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    leaf.gates[0].set()
    leaf.gates[1].set()
    assert queued.get(timeout=1) == REPLY
    with pytest.raises(PeerFault):
        first.get()
    assert len(leaf.queries) == 2, "the backoff had ended by the time the slot was free"
    assert other.health.total_successes == 0


def test_who_waited_alone_behind_a_failure_probes_all_the_same(clock: ManualClock) -> None:
    """Pass one has then attempted nothing, so pass two asks whoever is enabled."""
    leaf = OneByOneLeaf(RESET, REPLY)
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock, threshold=1)
    first = gevent.spawn(exchanged, pool, QUERY)
    leaf.arrived[0].wait()
    second = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    leaf.gates[0].set()
    leaf.gates[1].set()
    assert second.get(timeout=1) == REPLY
    with pytest.raises(PeerFault):
        first.get()
    assert_all_free(entry.slots)


def test_a_probe_that_waited_for_its_slot_is_not_turned_away(clock: ManualClock) -> None:
    leaf = OneByOneLeaf(RESET, REFUSED, REPLY)
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock, threshold=1)
    leaf.gates[0].set()
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    assert not entry.health.available(clock.now)
    failing_probe = gevent.spawn(exchanged, pool, QUERY)
    leaf.arrived[1].wait()
    queued_probe = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    leaf.gates[1].set()
    leaf.gates[2].set()
    assert queued_probe.get(timeout=1) == REPLY
    with pytest.raises(PeerFault):
        failing_probe.get()
    assert entry.health.available(clock.now)


def test_what_is_left_of_the_budget_is_counted_from_the_beginning_of_the_exchange(
    clock: ManualClock,
) -> None:
    """The wait in a queue after a slow failure ends with the total budget, not with a new one."""

    def fail_late() -> Fault:
        clock.advance(10 * SECOND - 20 * MS)
        return RESET

    leaf = GatedLeaf()
    full = entry_of(leaf, clock=clock)
    holder = gevent.spawn(exchanged, pool_of(full, clock=clock), QUERY)
    leaf.entered.wait()
    slow = entry_of(ScriptedLeaf(fail_late), clock=clock)
    pool = pool_of(slow, full, clock=clock, total_ns=10 * SECOND)
    with pytest.raises(PeerFault) as raised, gevent.Timeout(5):
        exchanged(pool, QUERY)
    assert raised.value.fault.kind is FaultKind.TIMEOUT
    assert full.health.revision == 0
    leaf.gate.set()
    holder.join()
    assert_all_free(full.slots)
