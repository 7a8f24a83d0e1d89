"""Slots deeper than one: who gets a leaf to itself, who rides along, and who has to wait."""

import random
from collections import Counter
from time import monotonic_ns
from typing import Any

import gevent
import pytest
from gevent.pool import Group

from nxdns.upstream.depth import SERIAL_NS, Depth
from nxdns.upstream.history import QueueStats
from nxdns.upstream.slots import Slots
from nxdns.upstream.transport import Leaf
from tests.support.fake_leaves import MS, SECOND, FakeLeaf, ManualClock, assert_all_free
from tests.support.waiting import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Upstream:
    """Slots over fake leaves, and who holds what."""

    def __init__(self, clock: ManualClock, *, leaves: int, depth: int) -> None:
        self.depth = Depth(depth)
        self.leaves = [FakeLeaf() for _ in range(leaves)]
        self.slots = Slots(self.leaves, clock, self.depth, QueueStats())

    def take(self, number: int = 1) -> list[Leaf]:
        """That many exchanges begin, none of which has to wait."""
        lent = [self.slots.acquire(0) for _ in range(number)]
        taken = [leaf for leaf in lent if leaf is not None]
        assert len(taken) == number
        return taken

    def loads(self, lent: list[Leaf]) -> list[int]:
        """How many of the exchanges are on each leaf."""
        count = Counter(id(leaf) for leaf in lent)
        return [count[id(leaf)] for leaf in self.leaves]

    def full(self) -> bool:
        return self.slots.acquire(0) is None

    def waiters(self, number: int, budget_ns: int = SECOND) -> list[Any]:
        """Greenlets that wait for a slot, and keep it."""
        waiters = [gevent.spawn(self.slots.acquire, budget_ns) for _ in range(number)]
        gevent.idle()
        return waiters


def ready(waiters: list[Any]) -> int:
    """How many wait no longer, once everyone has run who can."""
    gevent.idle()
    return sum(waiter.ready() for waiter in waiters)


def test_the_first_exchanges_get_a_leaf_each(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=8, depth=32)
    assert upstream.loads(upstream.take(8)) == [1] * 8


def test_of_idle_leaves_the_last_one_given_back_that_is_open_is_lent_first(
    clock: ManualClock,
) -> None:
    upstream = Upstream(clock, leaves=4, depth=32)
    lent = upstream.take(4)
    upstream.leaves[1].is_open = upstream.leaves[3].is_open = False
    for slot in (0, 1, 2, 3):
        upstream.slots.release(upstream.leaves[slot])
    assert len(lent) == 4
    again = upstream.take(4)
    assert again[:2] == [upstream.leaves[2], upstream.leaves[0]]
    assert {id(leaf) for leaf in again[2:]} == {id(upstream.leaves[1]), id(upstream.leaves[3])}


def test_an_idle_leaf_that_is_closed_goes_before_a_ride_along(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=32)
    one, other = upstream.take(2)
    assert isinstance(other, FakeLeaf)
    other.is_open = False
    upstream.slots.release(other)
    assert upstream.take() == [other]
    assert one is not other


def test_a_leaf_that_still_carries_somebody_is_not_idle(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=32)
    lent = upstream.take(3)
    shared = upstream.leaves[upstream.loads(lent).index(2)]
    alone = upstream.leaves[upstream.loads(lent).index(1)]
    upstream.slots.release(shared)
    upstream.slots.release(alone)
    assert upstream.take() == [alone]


def test_what_comes_beyond_the_leaves_rides_along_on_all_of_them_alike(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=8, depth=32)
    lent = upstream.take(8)
    for each in range(2, 33):
        lent += upstream.take(8)
        assert upstream.loads(lent) == [each] * 8
    assert upstream.full()
    assert upstream.slots.in_flight == upstream.slots.peak_in_flight == 256


def test_who_rides_along_does_so_on_the_leaf_that_carries_least(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=3, depth=32)
    lent = upstream.take(9)
    for slot in (1, 1, 2):
        upstream.slots.release(upstream.leaves[slot])
        lent.remove(upstream.leaves[slot])
    assert upstream.loads(lent) == [3, 1, 2]
    assert upstream.take() == [upstream.leaves[1]]


@pytest.mark.parametrize(("leaves", "depth"), [(1, 1), (1, 32), (8, 1), (3, 5), (8, 32)])
def test_the_capacity_is_that_of_all_leaves_together(
    clock: ManualClock, leaves: int, depth: int
) -> None:
    upstream = Upstream(clock, leaves=leaves, depth=depth)
    assert upstream.slots.capacity == leaves * depth
    assert_all_free(upstream.slots)
    assert_all_free(upstream.slots)


# Leaves that are stuck.


def test_nobody_rides_along_on_a_stuck_leaf_though_it_carries_least(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=3, depth=32)
    lent = upstream.take(9)
    for _ in range(2):
        upstream.slots.release(upstream.leaves[0])
        lent.remove(upstream.leaves[0])
    upstream.leaves[0].is_stuck = True
    lent += upstream.take(10)
    assert upstream.loads(lent) == [1, 8, 8]


def test_a_leaf_that_answers_again_is_ridden_on_again(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=32)
    upstream.take(2)
    upstream.leaves[0].is_stuck = True
    assert upstream.take() == [upstream.leaves[1]]
    upstream.leaves[0].is_stuck = False
    assert upstream.take() == [upstream.leaves[0]]


def test_with_room_on_stuck_leaves_only_one_has_to_wait(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=3)
    upstream.take(2)
    for leaf in upstream.leaves:
        leaf.is_stuck = True
    assert upstream.full()
    [waiter] = upstream.waiters(1)
    assert not waiter.ready()
    assert upstream.slots.in_flight == 2
    upstream.slots.release(upstream.leaves[1])
    assert waiter.get(timeout=1) is upstream.leaves[1], "it carries nothing any more: it is idle"


def test_nobody_rides_along_on_a_full_leaf_because_the_other_is_stuck(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=3)
    upstream.take(6)
    for _ in range(2):
        upstream.slots.release(upstream.leaves[0])
    upstream.leaves[0].is_stuck = True
    assert upstream.full()
    upstream.leaves[0].is_stuck = False
    assert upstream.take(2) == [upstream.leaves[0]] * 2


def test_a_stuck_leaf_that_others_give_up_on_takes_nobody_in(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=1, depth=3)
    upstream.take(3)
    upstream.leaves[0].is_stuck = True
    [waiter] = upstream.waiters(1)
    upstream.slots.release(upstream.leaves[0])
    assert ready([waiter]) == 0, "there is room, on a leaf that answers nobody"
    upstream.leaves[0].is_stuck = False
    upstream.slots.release(upstream.leaves[0])
    assert waiter.get(timeout=1) is upstream.leaves[0]


def test_when_a_stuck_leaf_answers_all_get_in_for_whom_there_is_room(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=1, depth=8)
    upstream.take(8)
    upstream.leaves[0].is_stuck = True
    waiters = upstream.waiters(10)
    for _ in range(5):
        upstream.slots.release(upstream.leaves[0])
    assert ready(waiters) == 0
    upstream.leaves[0].is_stuck = False
    upstream.slots.release(upstream.leaves[0])
    assert ready(waiters) == 6
    assert upstream.slots.in_flight == 8


# Upstreams that carry one exchange a session for a while.


def test_a_serial_upstream_gets_one_exchange_a_leaf(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=3, depth=32)
    upstream.depth.be_serial(clock())
    assert upstream.loads(upstream.take(3)) == [1, 1, 1]
    assert upstream.full()
    assert upstream.slots.capacity == 96, "what it is when all is well"


def test_what_had_boarded_before_an_upstream_became_serial_goes_first(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=32)
    upstream.take(6)
    upstream.depth.be_serial(clock())
    [waiter] = upstream.waiters(1)
    for _ in range(2):
        upstream.slots.release(upstream.leaves[0])
        assert ready([waiter]) == 0
    upstream.slots.release(upstream.leaves[0])
    assert waiter.get(timeout=1) is upstream.leaves[0]


def test_when_the_minute_is_over_all_get_in_for_whom_there_is_room(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=4)
    upstream.depth.be_serial(clock())
    upstream.take(2)
    waiters = upstream.waiters(9)
    upstream.slots.release(upstream.leaves[0])
    assert ready(waiters) == 1
    clock.advance(SERIAL_NS)
    upstream.slots.release(upstream.leaves[1])
    assert ready(waiters) == 1 + 7
    upstream.slots.release(upstream.leaves[1])
    assert ready(waiters) == 9


# Who has to wait.


def test_nobody_is_counted_as_queued_while_there_is_room(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=3)
    upstream.take(6)
    assert (upstream.slots.queue.waited, upstream.slots.queue.waited_ns) == (0, 0)


def test_who_waits_gets_the_first_room_there_is_and_is_counted(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=3)
    upstream.take(6)
    [waiter] = upstream.waiters(1)
    clock.advance(7 * MS)
    upstream.slots.release(upstream.leaves[1])
    assert waiter.get(timeout=1) is upstream.leaves[1]
    assert (upstream.slots.queue.waited, upstream.slots.queue.waited_ns) == (1, 7 * MS)
    assert upstream.slots.peak_in_flight == 6


def test_who_waits_in_vain_is_counted(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=3)
    upstream.take(6)
    [waiter] = upstream.waiters(1, budget_ns=20 * MS)
    clock.advance(20 * MS)
    assert waiter.get(timeout=1) is None
    assert (upstream.slots.queue.waited, upstream.slots.queue.waited_ns) == (1, 20 * MS)
    assert upstream.slots.in_flight == 6


def test_who_is_killed_while_it_waits_is_counted(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=2, depth=3)
    upstream.take(6)
    killed, waiter = upstream.waiters(2)
    clock.advance(5 * MS)
    killed.kill()
    assert (upstream.slots.queue.waited, upstream.slots.queue.waited_ns) == (1, 5 * MS)
    upstream.slots.release(upstream.leaves[0])
    assert waiter.get(timeout=1) is upstream.leaves[0]


@pytest.mark.parametrize("depth", [1, 2])
def test_room_that_comes_and_goes_before_those_who_wait_have_run_is_no_error(
    clock: ManualClock, depth: int
) -> None:
    """As when a query that needs no wait at all overtakes more waiters than there are slots."""
    upstream = Upstream(clock, leaves=1, depth=depth)
    upstream.take(depth)
    waiters = upstream.waiters(5)
    for _ in range(depth):
        upstream.slots.release(upstream.leaves[0])
    for _ in range(3):
        upstream.slots.release(upstream.take()[0])
    assert ready(waiters) == depth
    for _ in range(5 - depth):
        upstream.slots.release(upstream.leaves[0])
    assert ready(waiters) == 5
    assert upstream.slots.in_flight == depth


def test_all_who_wait_get_in_when_everything_is_given_back_at_once(clock: ManualClock) -> None:
    upstream = Upstream(clock, leaves=3, depth=4)
    lent = upstream.take(12)
    waiters = upstream.waiters(12)
    for leaf in lent:
        upstream.slots.release(leaf)
    assert ready(waiters) == 12
    assert upstream.loads([waiter.get() for waiter in waiters]) == [4, 4, 4]


def test_after_a_thousand_kills_and_timeouts_at_random_all_the_room_is_still_there() -> None:
    chance = random.Random(20260111)
    depth = 3
    leaves = [FakeLeaf() for _ in range(3)]
    slots = Slots(leaves, monotonic_ns, Depth(depth), QueueStats())
    borrowers = Group()
    held: Counter[int] = Counter()
    finished = 0

    def borrow() -> None:
        nonlocal finished
        with gevent.Timeout(chance.uniform(0, 0.004), False):
            leaf = slots.acquire(chance.randrange(4 * MS))
            if leaf is None:
                return
            held[id(leaf)] += 1
            try:
                assert held[id(leaf)] <= depth
                for _ in range(chance.randrange(6)):
                    gevent.sleep(0)
            finally:
                held[id(leaf)] -= 1
                slots.release(leaf)
            finished += 1

    kills = 0
    while kills < 1_000:
        borrowers.spawn(borrow)
        chance.choice(leaves).is_stuck = chance.random() < 0.2
        if chance.random() < 0.6 and len(borrowers) > 8:
            chance.choice(list(borrowers)).kill(block=False)
            kills += 1
        if chance.random() < 0.4:
            gevent.sleep(0)
    for leaf in leaves:
        leaf.is_stuck = False
    eventually(lambda: not len(borrowers))
    assert finished, "most were ended early, but not all"
    assert slots.queue.waited
    assert slots.peak_in_flight == 9
    assert held.total() == 0
    assert_all_free(slots)


def test_after_as_many_kills_nobody_who_waits_is_left_behind() -> None:
    """A ticket lost with a killed waiter would leave another waiting beside an idle leaf."""
    chance = random.Random(20260112)
    slots = Slots([FakeLeaf() for _ in range(2)], monotonic_ns, Depth(2), QueueStats())
    for _ in range(250):
        lent = [slots.acquire(0) for _ in range(4)]
        waiters = [gevent.spawn(slots.acquire, 10 * SECOND) for _ in range(8)]
        gevent.sleep(0)
        acts = [("release", leaf) for leaf in lent] + [("kill", w) for w in waiters[:4]]
        chance.shuffle(acts)
        for act, what in acts:
            if act == "kill":
                what.kill(block=False)
            else:
                slots.release(what)
            if chance.random() < 0.2:
                gevent.sleep(0)
        got = [w.get(timeout=5) for w in waiters[:4]]
        # Whoever got in before it was killed holds a slot that others still wait for.
        for leaf in got:
            if not isinstance(leaf, gevent.GreenletExit):
                slots.release(leaf)
        for waiter in waiters[4:]:
            slots.release(waiter.get(timeout=5))
    assert_all_free(slots)
