"""The slots of one upstream: who gets one, who waits, and what is counted."""

import random
from time import monotonic_ns

import gevent
import pytest
from gevent.pool import Group

from nxdns.upstream.depth import Depth
from nxdns.upstream.history import QueueStats
from nxdns.upstream.slots import Slots
from nxdns.upstream.transport import Leaf
from tests.support.fake_leaves import MS, SECOND, FakeLeaf, ManualClock, assert_all_free
from tests.support.waiting import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def slots_of(number: int, clock: ManualClock) -> Slots:
    return Slots([FakeLeaf() for _ in range(number)], clock, Depth(1), QueueStats())


def take(slots: Slots, budget_ns: int = SECOND) -> Leaf:
    leaf = slots.acquire(budget_ns)
    assert leaf is not None
    return leaf


def test_an_upstream_without_a_slot_is_refused(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="slot"):
        Slots([], clock, Depth(1), QueueStats())


def test_each_slot_is_lent_to_one_at_a_time(clock: ManualClock) -> None:
    slots = slots_of(3, clock)
    lent = [take(slots) for _ in range(3)]
    assert {id(leaf) for leaf in lent} == {id(leaf) for leaf in slots.leaves}
    assert slots.acquire(0) is None
    slots.release(lent[1])
    assert take(slots) is lent[1]


def test_the_most_recently_used_slot_is_lent_first(clock: ManualClock) -> None:
    slots = slots_of(3, clock)
    one, other = take(slots), take(slots)
    slots.release(one)
    slots.release(other)
    assert take(slots) is other
    assert take(slots) is one


def test_one_query_at_a_time_keeps_to_one_slot(clock: ManualClock) -> None:
    slots = slots_of(8, clock)
    used = set()
    for _ in range(20):
        leaf = take(slots)
        used.add(id(leaf))
        slots.release(leaf)
    assert len(used) == 1
    assert slots.peak_in_flight == 1


def test_in_flight_and_its_peak_are_counted(clock: ManualClock) -> None:
    slots = slots_of(3, clock)
    seen = [(slots.in_flight, slots.peak_in_flight)]
    one, other = take(slots), take(slots)
    seen.append((slots.in_flight, slots.peak_in_flight))
    slots.release(one)
    seen.append((slots.in_flight, slots.peak_in_flight))
    slots.release(other)
    seen.append((slots.in_flight, slots.peak_in_flight))
    take(slots)
    seen.append((slots.in_flight, slots.peak_in_flight))
    assert seen == [(0, 0), (2, 2), (1, 2), (0, 2), (1, 2)]


def test_who_finds_a_free_slot_is_not_counted_as_queued(clock: ManualClock) -> None:
    slots = slots_of(2, clock)
    for _ in range(2):
        take(slots)
    assert (slots.queue.waited, slots.queue.waited_ns) == (0, 0)


def test_who_waits_and_gets_in_is_counted_with_its_wait(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)
    waiter = gevent.spawn(take, slots)
    gevent.idle()
    assert slots.queue.waited == 0, "a wait is counted when it ends"
    clock.advance(7 * MS)
    slots.release(leaf)
    assert waiter.get(timeout=1) is leaf
    assert (slots.queue.waited, slots.queue.waited_ns) == (1, 7 * MS)
    assert slots.peak_in_flight == 1


def test_who_waits_in_vain_is_counted_with_its_wait(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)
    waiter = gevent.spawn(slots.acquire, 20 * MS)
    gevent.idle()
    clock.advance(20 * MS)
    assert waiter.get(timeout=1) is None
    assert (slots.queue.waited, slots.queue.waited_ns) == (1, 20 * MS)
    slots.release(leaf)
    assert_all_free(slots)


def test_who_is_killed_while_it_waits_is_counted_with_its_wait(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)
    waiter = gevent.spawn(take, slots)
    gevent.idle()
    clock.advance(5 * MS)
    waiter.kill()
    assert (slots.queue.waited, slots.queue.waited_ns) == (1, 5 * MS)
    slots.release(leaf)
    assert_all_free(slots)


def test_the_timeout_of_somebody_else_ends_a_wait_and_is_counted(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.01) as somebody_elses:
        slots.acquire(SECOND)
    assert caught.value is somebody_elses
    assert slots.queue.waited == 1
    slots.release(leaf)
    assert_all_free(slots)


def test_a_budget_that_is_used_up_takes_a_free_slot_and_never_waits(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    assert take(slots, budget_ns=0) is slots.leaves[0]
    assert slots.acquire(0) is None
    assert slots.acquire(-1) is None


@pytest.mark.parametrize("killed_first", [True, False], ids=["kill first", "release first"])
def test_a_kill_and_a_release_in_the_same_turn_lose_no_permit(
    clock: ManualClock, killed_first: bool
) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)

    def wait_and_give_back() -> None:
        slots.release(take(slots))

    waiter = gevent.spawn(wait_and_give_back)
    gevent.idle()
    if killed_first:
        waiter.kill(block=False)
        slots.release(leaf)
    else:
        slots.release(leaf)
        waiter.kill(block=False)
    waiter.join()
    assert_all_free(slots)


def test_a_killed_waiter_leaves_its_turn_to_the_next(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)
    first, second = gevent.spawn(take, slots), gevent.spawn(take, slots)
    gevent.idle()
    first.kill(block=False)
    slots.release(leaf)
    assert second.get(timeout=1) is leaf


def test_who_overtakes_a_waiter_makes_it_wait_on_and_not_fail(clock: ManualClock) -> None:
    slots = slots_of(1, clock)
    leaf = take(slots)
    waiter = gevent.spawn(take, slots)
    gevent.idle()
    slots.release(leaf)
    assert take(slots) is leaf, "the waiter has not run yet"
    gevent.idle()
    assert not waiter.ready()
    slots.release(leaf)
    assert waiter.get(timeout=1) is leaf
    assert slots.peak_in_flight == 1


def test_after_a_thousand_kills_and_timeouts_at_random_every_slot_is_still_there() -> None:
    chance = random.Random(20251130)
    slots = Slots([FakeLeaf() for _ in range(3)], monotonic_ns, Depth(1), QueueStats())
    borrowers = Group()
    held: set[int] = set()
    finished = 0

    def borrow() -> None:
        nonlocal finished
        with gevent.Timeout(chance.uniform(0, 0.003), False):
            leaf = slots.acquire(chance.randrange(3 * MS))
            if leaf is None:
                return
            try:
                assert id(leaf) not in held
                held.add(id(leaf))
                for _ in range(chance.randrange(4)):
                    gevent.sleep(0)
            finally:
                held.discard(id(leaf))
                slots.release(leaf)
            finished += 1

    kills = 0
    while kills < 1_000:
        borrowers.spawn(borrow)
        if chance.random() < 0.6 and len(borrowers) > 2:
            chance.choice(list(borrowers)).kill(block=False)
            kills += 1
        if chance.random() < 0.4:
            gevent.sleep(0)
    eventually(lambda: not len(borrowers))
    assert finished, "most were ended early, but not all"
    assert slots.queue.waited
    assert slots.peak_in_flight == 3
    assert_all_free(slots)
