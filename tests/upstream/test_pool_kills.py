"""The pool over fake leaves: kills and timeouts at any moment cost no permit and no slot."""

import random
from collections import Counter
from time import monotonic_ns

import gevent
import pytest
from gevent.pool import Group

from nxdns.upstream import health
from nxdns.upstream.entry import Entry
from nxdns.upstream.health import Effect
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import LocalKind, LocalResource, PeerFault
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REPLY,
    RESET,
    DawdlingLeaf,
    GatedLeaf,
    ManualClock,
    ScriptedLeaf,
    SteadyLeaf,
    Step,
    assert_all_free,
    entry_of,
    pool_of,
)
from tests.support.waiting import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_kill_before_the_exchange_has_begun_touches_nothing(clock: ManualClock) -> None:
    entry = entry_of(ScriptedLeaf(), clock=clock)
    gevent.spawn(exchanged, pool_of(entry, clock=clock), QUERY).kill()
    assert entry.health.revision == 0
    assert_all_free(entry.slots)


def test_a_kill_while_waiting_for_a_slot_costs_none(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    holder = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    waiters = [gevent.spawn(exchanged, pool, QUERY) for _ in range(5)]
    gevent.idle()
    gevent.killall(waiters)
    assert entry.slots.in_flight == 1
    assert entry.slots.queue.waited == 5
    leaf.gate.set()
    assert holder.get(timeout=1) == REPLY
    assert len(leaf.queries) == 1
    assert entry.health.revision == 1
    assert_all_free(entry.slots)


def test_a_kill_during_an_attempt_frees_its_slot_for_who_waits(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    holder = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    waiter = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    holder.kill()
    leaf.gate.set()
    assert waiter.get(timeout=1) == REPLY
    assert entry.health.revision == 1
    assert_all_free(entry.slots)


@pytest.mark.parametrize("killed_first", [True, False], ids=["kill first", "release first"])
def test_a_kill_in_the_turn_in_which_the_slot_comes_free_costs_none(
    clock: ManualClock, killed_first: bool
) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    holder = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    waiter = gevent.spawn(exchanged, pool, QUERY)
    gevent.idle()
    if killed_first:
        waiter.kill(block=False)
        holder.kill(block=False)
    else:
        holder.kill(block=False)
        waiter.kill(block=False)
    gevent.joinall([holder, waiter])
    assert entry.health.revision == 0
    assert_all_free(entry.slots)


def test_a_kill_between_two_upstreams_keeps_what_the_first_has_proven(clock: ManualClock) -> None:
    first = entry_of(ScriptedLeaf(RESET), clock=clock)
    full_leaf = GatedLeaf()
    second = entry_of(full_leaf, clock=clock)
    third = entry_of(ScriptedLeaf(), clock=clock)
    holder = gevent.spawn(exchanged, pool_of(second, clock=clock), QUERY)
    full_leaf.entered.wait()
    asking = gevent.spawn(exchanged, pool_of(first, second, third, clock=clock), QUERY)
    gevent.idle()
    asking.kill()
    assert isinstance(asking.value, gevent.GreenletExit)
    assert [entry.health.revision for entry in (first, second, third)] == [1, 0, 0]
    full_leaf.gate.set()
    holder.join()
    for entry in (first, second, third):
        assert_all_free(entry.slots)


def one_client(pool: UpstreamPool, patience_seconds: float, ends: Counter[str]) -> None:
    """Ask once, and count how it ended."""
    try:
        with gevent.Timeout(patience_seconds):
            exchanged(pool, QUERY)
    except gevent.GreenletExit:
        ends["killed"] += 1
        raise
    except gevent.Timeout:
        ends["timed out"] += 1
    except PeerFault:
        ends["peer fault"] += 1
    except LocalResource:
        ends["local"] += 1
    else:
        ends["answered"] += 1


def test_after_a_thousand_kills_and_timeouts_at_random_permits_and_slots_are_intact() -> None:
    chance = random.Random(4152)
    steps: list[Step] = [REPLY, REPLY, RESET, LocalResource(LocalKind.SYSTEM_RESOURCES)]
    recorded = 0
    applied: dict[Entry, Effect] = {}

    def note(entry: Entry, effect: Effect) -> None:
        nonlocal recorded
        recorded += 1
        applied[entry] = effect

    def leaf() -> DawdlingLeaf:
        # The longest dawdle outlasts every timer there is here.
        return DawdlingLeaf(
            lambda: chance.choice([0, 1, 2, 3, 100_000]), lambda: chance.choice(steps)
        )

    entries = [
        entry_of(*(leaf() for _ in range(slots)), clock=monotonic_ns, label=f"{slots} slots")
        for slots in (1, 2, 3)
    ]
    pool = pool_of(
        *entries,
        clock=monotonic_ns,
        threshold=3,
        base_backoff_ms=1,
        attempt_ns=2 * MS,
        total_ns=5 * MS,
        on_effect=note,
    )
    ends: Counter[str] = Counter()
    clients = Group()
    while min(ends["killed"], ends["timed out"]) < 500:
        clients.spawn(one_client, pool, chance.choice([0.0005, 0.002, 1.0]), ends)
        if len(clients) > 4 and chance.random() < 0.7:
            chance.choice(list(clients)).kill(block=False)
        if chance.random() < 0.3:
            gevent.sleep(0)
    eventually(lambda: not len(clients))

    for entry in entries:
        assert entry.slots.peak_in_flight <= len(entry.slots.leaves)
        assert_all_free(entry.slots)
    assert entries[0].slots.queue.waited > 0
    # What was killed or cut short is in none of these.
    mutations = sum(entry.health.revision for entry in entries)
    failures = sum(entry.health.total_failures for entry in entries)
    assert failures <= recorded <= mutations
    # What was handed over last is what is desired.
    cfg = health.Config(3, 1, 60_000)
    assert all(effect.episode == e.health.effect(cfg).episode for e, effect in applied.items())
    assert sum(sum(entry.history.durations.snapshot().counts) for entry in entries) == mutations


def test_a_pool_serves_on_after_a_storm_of_kills(clock: ManualClock) -> None:
    gated = GatedLeaf()
    entries = [entry_of(gated, clock=clock), entry_of(SteadyLeaf(), clock=clock)]
    pool = pool_of(*entries, clock=clock)
    for _ in range(50):
        asking = [gevent.spawn(exchanged, pool, QUERY) for _ in range(3)]
        gevent.idle()
        gevent.killall(asking)
    assert entries[0].health.revision == 0
    gated.gate.set()
    assert exchanged(pool, QUERY) == REPLY
    assert entries[0].health.total_successes == 1
