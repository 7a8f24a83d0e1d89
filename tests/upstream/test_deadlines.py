"""The ends of attempts: never early, at most one sweep late, and nothing left behind."""

import random
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any

import gevent
import pytest
from gevent import getcurrent
from gevent.event import Event

from nxdns.upstream.deadlines import SWEEP_SECONDS, Deadlines
from nxdns.upstream.expiry import AttemptExpired
from tests.support.fake_leaves import MS, SECOND, ManualClock
from tests.support.waiting import eventually

BUDGET = 2 * SECOND


class SweptClock(ManualClock):
    """Stands still, and counts how often it is read: once for each watch and for each sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return super().__call__()

    def let_sweep(self, times: int = 1) -> None:
        """Wait for that many more sweeps."""
        end = self.reads + times
        eventually(lambda: self.reads >= end)


@pytest.fixture
def clock() -> SweptClock:
    return SweptClock()


@pytest.fixture
def deadlines(clock: SweptClock) -> Iterator[Deadlines]:
    made = Deadlines(clock)
    yield made
    assert len(made) == 0, "an attempt is still watched"


def timers() -> int:
    """What the event loop watches for this process."""
    return int(gevent.get_hub().loop.activecnt)


class Attempts:
    """Greenlets that wait until their time is up, or they are told to end."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.expired: list[str] = []
        self.all: dict[str, Any] = {}
        self.gate = Event()

    def begin(
        self,
        name: str,
        budget_ns: int = BUDGET,
        *,
        cut_short: bool = False,
        on_expiry: Callable[[], None] = lambda: None,
    ) -> None:
        """Runs until it waits before this returns."""

        def run() -> None:
            me = getcurrent()
            self.deadlines.watch(me, budget_ns, cut_short=cut_short)
            try:
                self.gate.wait()
            except AttemptExpired:
                self.expired.append(name)
                on_expiry()
            finally:
                self.deadlines.forget(me)

        self.all[name] = gevent.spawn(run)
        gevent.idle()

    def end(self, *names: str) -> None:
        for name in names or list(self.all):
            self.all[name].kill()


@pytest.fixture
def attempts(deadlines: Deadlines) -> Iterator[Attempts]:
    made = Attempts(deadlines)
    yield made
    made.end()


@pytest.mark.parametrize("cut_short", [False, True])
def test_an_attempt_is_never_ended_early_and_by_the_first_sweep_after_its_end(
    attempts: Attempts, clock: SweptClock, cut_short: bool
) -> None:
    attempts.begin("one", cut_short=cut_short)
    clock.advance(BUDGET - 1)
    clock.let_sweep(2)
    assert attempts.expired == []
    clock.advance(1)
    clock.let_sweep()
    assert attempts.expired == ["one"]


def test_sweeps_are_a_twentieth_of_a_second_apart(attempts: Attempts, clock: SweptClock) -> None:
    """Which is how late an end can be; within the 0.2 s that a reply may overstay its budget."""
    assert SWEEP_SECONDS == 0.05
    attempts.begin("one")
    began = monotonic_ns()
    clock.let_sweep(3)
    assert monotonic_ns() - began >= 2 * 50 * MS, "more often costs more than a timer each"


def test_full_attempts_end_in_the_order_of_their_start(
    attempts: Attempts, clock: SweptClock
) -> None:
    for name in "abc":
        attempts.begin(name)
        clock.advance(100 * MS)
    clock.advance(BUDGET - 200 * MS)
    clock.let_sweep()
    assert attempts.expired == ["a", "b"], "the third has begun later"
    clock.advance(100 * MS)
    clock.let_sweep()
    assert attempts.expired == ["a", "b", "c"]


def test_cut_short_ones_end_each_at_its_own_time_whatever_began_first(
    attempts: Attempts, clock: SweptClock
) -> None:
    attempts.begin("full")
    for name, budget_ms in [("c", 300), ("a", 100), ("b", 200)]:
        attempts.begin(name, budget_ms * MS, cut_short=True)
    for _ in range(3):
        clock.advance(100 * MS)
        clock.let_sweep()
    assert attempts.expired == ["a", "b", "c"]
    clock.advance(BUDGET)
    clock.let_sweep()
    assert attempts.expired == ["a", "b", "c", "full"]


@pytest.mark.parametrize("cut_short", [False, True])
def test_what_is_forgotten_is_never_ended(
    attempts: Attempts, deadlines: Deadlines, clock: SweptClock, cut_short: bool
) -> None:
    for name in ("one", "other"):
        attempts.begin(name, cut_short=cut_short)
    deadlines.forget(attempts.all["one"])
    clock.advance(BUDGET)
    clock.let_sweep()
    assert attempts.expired == ["other"]
    assert not attempts.all["one"].ready()


def test_to_forget_what_is_not_watched_is_nothing(deadlines: Deadlines) -> None:
    deadlines.forget(getcurrent())


@pytest.mark.parametrize("cut_short", [False, True])
def test_who_is_ended_may_end_the_attempt_of_another_that_was_due_too(
    attempts: Attempts, deadlines: Deadlines, clock: SweptClock, cut_short: bool
) -> None:
    attempts.begin(
        "first",
        cut_short=cut_short,
        on_expiry=lambda: deadlines.forget(attempts.all["second"]),
    )
    for name in ("second", "third"):
        attempts.begin(name, cut_short=cut_short)
    clock.advance(BUDGET)
    clock.let_sweep()
    assert attempts.expired == ["first", "third"]
    assert not attempts.all["second"].ready()


@pytest.mark.parametrize("first_cut_short", [False, True])
def test_who_is_ended_may_kill_another_that_was_due_too(
    attempts: Attempts, clock: SweptClock, first_cut_short: bool
) -> None:
    attempts.begin(
        "killer",
        cut_short=first_cut_short,
        on_expiry=lambda: attempts.all["victim"].kill(block=False),
    )
    attempts.begin("victim", cut_short=True)
    clock.advance(BUDGET)
    clock.let_sweep()
    eventually(attempts.all["victim"].ready)
    assert attempts.expired.count("victim") <= 1
    assert "killer" in attempts.expired


def test_who_is_ended_may_begin_anew_and_has_its_whole_time_again(
    attempts: Attempts, deadlines: Deadlines, clock: SweptClock
) -> None:
    """As the pool does when it asks the next upstream."""
    ends = []

    def twice() -> None:
        me = getcurrent()
        for _ in range(2):
            deadlines.watch(me, BUDGET, cut_short=False)
            try:
                attempts.gate.wait()
            except AttemptExpired:
                ends.append(clock.now)
            finally:
                deadlines.forget(me)

    began = clock.now
    one = gevent.spawn(twice)
    gevent.idle()
    for _ in range(2):
        clock.advance(BUDGET - 1)
        clock.let_sweep(2)
        clock.advance(1)
        clock.let_sweep()
    assert ends == [began + BUDGET, began + 2 * BUDGET]
    one.join(timeout=1)
    assert one.successful()


def test_one_that_ends_badly_does_not_keep_the_others_from_their_end(
    attempts: Attempts, clock: SweptClock
) -> None:
    def die() -> None:
        raise gevent.GreenletExit

    for name in "abc":
        attempts.begin(name, on_expiry=die)
        attempts.begin(name + "-short", cut_short=True, on_expiry=die)
    clock.advance(BUDGET)
    clock.let_sweep()
    assert sorted(attempts.expired) == ["a", "a-short", "b", "b-short", "c", "c-short"]


@pytest.mark.parametrize("ended", ["expired", "killed"])
@pytest.mark.parametrize("cut_short", [False, True])
def test_when_nothing_waits_the_event_loop_has_nothing_to_watch(
    attempts: Attempts, clock: SweptClock, cut_short: bool, ended: str
) -> None:
    for _ in range(2):  # it starts again, too
        before = timers()
        attempts.begin("one", cut_short=cut_short)
        attempts.begin("other", cut_short=cut_short)
        assert timers() == before + 1, "one timer for all"
        if ended == "expired":
            clock.advance(BUDGET)
        else:
            attempts.end("one", "other")
        clock.let_sweep()
        eventually(lambda: attempts.all["other"].ready())
        assert timers() == before


def test_a_sweep_with_something_left_goes_on(attempts: Attempts, clock: SweptClock) -> None:
    attempts.begin("one")
    clock.advance(BUDGET // 2)
    attempts.begin("other")
    clock.advance(BUDGET // 2)
    clock.let_sweep(2)
    assert attempts.expired == ["one"]
    clock.advance(BUDGET // 2)
    clock.let_sweep()
    assert attempts.expired == ["one", "other"]


def test_a_thousand_killed_at_random_leave_nothing_behind() -> None:
    chance = random.Random(20260110)
    deadlines = Deadlines(monotonic_ns)
    before = timers()
    ends = {"expired": 0, "killed": 0, "done": 0}

    def attempt(budget_ns: int, done: Event, *, cut_short: bool) -> None:
        me = getcurrent()
        deadline = monotonic_ns() + budget_ns
        deadlines.watch(me, budget_ns, cut_short=cut_short)
        try:
            done.wait()
            ends["done"] += 1
        except AttemptExpired:
            assert monotonic_ns() >= deadline
            ends["expired"] += 1
        except gevent.GreenletExit:
            ends["killed"] += 1
            raise
        finally:
            deadlines.forget(me)

    under_way: list[tuple[Any, Event]] = []
    begun = 0
    while ends["killed"] < 1_000:
        cut_short = chance.random() < 0.3
        budget = chance.randrange(60 * MS) if cut_short else 60 * MS
        done = Event()
        under_way.append((gevent.spawn(attempt, budget, done, cut_short=cut_short), done))
        begun += 1
        gevent.sleep(0)
        while len(under_way) > 60:
            greenlet, done = under_way.pop(chance.randrange(len(under_way)))
            if chance.random() < 0.8:
                greenlet.kill(block=False)
            else:
                done.set()
    eventually(lambda: all(greenlet.ready() for greenlet, _ in under_way))
    eventually(lambda: sum(ends.values()) == begun)
    assert ends["expired"]
    assert ends["done"]
    assert len(deadlines) == 0
    watch_out = monotonic_ns() + 10 * SECOND
    while timers() != before and monotonic_ns() < watch_out:
        gevent.sleep(SWEEP_SECONDS)
    assert timers() == before
