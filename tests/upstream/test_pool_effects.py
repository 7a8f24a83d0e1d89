"""The pool over fake leaves: what it hands over after each mutation of health, and when."""

from collections.abc import Callable

import gevent
import pytest

from nxdns.upstream import health
from nxdns.upstream.entry import Entry
from nxdns.upstream.health import CLEAR, Effect, Tripped
from nxdns.upstream.history import History
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import Fault, PeerFault
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REFUSED,
    REPLY,
    RESET,
    ManualClock,
    ScriptedLeaf,
    Step,
    assert_all_free,
    entry_of,
    pool_of,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def ask(pool: UpstreamPool) -> bytes | Fault:
    try:
        return exchanged(pool, QUERY)
    except PeerFault as error:
        return error.fault


def effects_of(*script: Step, clock: ManualClock, threshold: int = 2) -> list[Effect]:
    """What a pool of one upstream hands over while its leaf plays ``script``."""
    effects: list[Effect] = []
    pool = pool_of(
        entry_of(ScriptedLeaf(*script), clock=clock),
        clock=clock,
        threshold=threshold,
        on_effect=lambda _, effect: effects.append(effect),
    )
    for _ in script:
        ask(pool)
    return effects


def test_one_failure_is_clear_the_second_tripped_and_a_success_clear(clock: ManualClock) -> None:
    assert effects_of(RESET, REFUSED, RESET, REPLY, clock=clock) == [
        Effect(1, CLEAR),
        Effect(2, Tripped(REFUSED)),
        Effect(3, Tripped(RESET)),
        Effect(4, CLEAR),
    ]


def test_a_success_of_one_that_counts_no_failure_hands_nothing_over(clock: ManualClock) -> None:
    script: list[Step] = [REPLY, REPLY, RESET, REPLY, REPLY, RESET]
    assert effects_of(*script, clock=clock) == [
        Effect(3, CLEAR),
        Effect(4, CLEAR),
        Effect(6, CLEAR),
    ]


def test_each_effect_comes_with_its_entry_and_before_the_next_upstream_is_asked(
    clock: ManualClock,
) -> None:
    story: list[str] = []

    def tell(text: str, outcome: bytes | Fault) -> Callable[[], bytes | Fault]:
        def step() -> bytes | Fault:
            story.append(text)
            return outcome

        return step

    def on_effect(entry: Entry, effect: Effect) -> None:
        assert entry.health.revision == effect.revision
        story.append(f"{entry.label} {type(effect.episode).__name__}")

    pool = pool_of(
        entry_of(ScriptedLeaf(tell("ask a", RESET)), clock=clock, label="a"),
        entry_of(ScriptedLeaf(tell("ask b", REFUSED)), clock=clock, label="b"),
        clock=clock,
        threshold=1,
        on_effect=on_effect,
    )
    ask(pool)
    assert story == ["ask a", "a Tripped", "ask b", "b Tripped"]


@pytest.mark.parametrize("outcome", [REPLY, RESET], ids=["success", "failure"])
def test_no_greenlet_runs_between_the_outcome_and_its_effect(
    clock: ManualClock, outcome: bytes | Fault
) -> None:
    turns = 0
    turns_at_outcome = turns_at_effect = -1

    def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            gevent.sleep(0)

    def step() -> bytes | Fault:
        nonlocal turns_at_outcome
        gevent.sleep(0.001)  # an exchange waits
        turns_at_outcome = turns
        return outcome

    def on_effect(entry: Entry, effect: Effect) -> None:
        nonlocal turns_at_effect
        turns_at_effect = turns
        assert effect == entry.health.effect(cfg)

    cfg = health.Config(1, 1_000, 60_000)
    others = gevent.spawn(take_turns)
    entry = entry_of(ScriptedLeaf(step), clock=clock)
    entry.health.record_failure(0, 0, RESET, cfg, 0)  # or a success would change nothing
    ask(pool_of(entry, clock=clock, threshold=1, on_effect=on_effect))
    others.kill()
    assert turns_at_outcome > 0, "others had turns while the leaf waited"
    assert turns_at_effect == turns_at_outcome


@pytest.mark.parametrize("outcome", [REPLY, RESET], ids=["success", "failure"])
def test_a_kill_that_comes_with_the_outcome_loses_no_effect(
    clock: ManualClock, outcome: bytes | Fault
) -> None:
    effects: list[Effect] = []

    def step() -> bytes | Fault:
        gevent.getcurrent().kill(block=False)  # delivered where this greenlet next waits
        return outcome

    def ask_and_wait() -> None:
        ask(pool)
        gevent.sleep(1)

    cfg = health.Config(1, 1_000, 60_000)
    entry = entry_of(ScriptedLeaf(step), clock=clock)
    entry.health.record_failure(0, 0, RESET, cfg, 0)  # or a success would change nothing
    pool = pool_of(
        entry, clock=clock, threshold=1, on_effect=lambda _, effect: effects.append(effect)
    )
    asking = gevent.spawn(ask_and_wait)
    asking.join()
    assert isinstance(asking.value, gevent.GreenletExit)
    assert entry.health.revision == 2
    assert effects == [entry.health.effect(cfg)]
    assert_all_free(entry.slots)


def test_a_stale_success_while_tripped_hands_nothing_over(clock: ManualClock) -> None:
    def answer_as_of_before() -> bytes:
        clock.advance(-5 * MS)
        return REPLY

    effects = effects_of(RESET, answer_as_of_before, clock=clock, threshold=1)
    assert effects == [Effect(1, Tripped(RESET))]


def test_a_stale_success_below_the_threshold_is_handed_over_as_clear(clock: ManualClock) -> None:
    def answer_as_of_before() -> bytes:
        clock.advance(-5 * MS)
        return REPLY

    effects: list[Effect] = []
    pool = pool_of(
        entry_of(ScriptedLeaf(RESET, answer_as_of_before, RESET), clock=clock),
        clock=clock,
        on_effect=lambda _, effect: effects.append(effect),
    )
    ask(pool)
    ask(pool)
    clock.advance(5 * MS)
    ask(pool)
    assert effects == [Effect(1, CLEAR), Effect(2, CLEAR), Effect(3, Tripped(RESET))]


def test_a_stale_failure_hands_over_the_newer_fault(clock: ManualClock) -> None:
    def fail_as_of_before() -> Fault:
        clock.advance(-5 * MS)
        return REFUSED

    effects = effects_of(RESET, fail_as_of_before, clock=clock, threshold=1)
    assert effects == [Effect(1, Tripped(RESET)), Effect(2, Tripped(RESET))]


def test_a_recovered_stale_session_touches_neither_health_nor_episodes(clock: ManualClock) -> None:
    history = History()

    def recover() -> bytes:
        # As a leaf does after its redial, before it returns the reply.
        history.sessions.recoveries += 1
        return REPLY

    effects: list[Effect] = []
    entry = entry_of(ScriptedLeaf(REPLY, recover, recover), clock=clock, history=history)
    pool = pool_of(
        entry, clock=clock, threshold=1, on_effect=lambda _, effect: effects.append(effect)
    )
    for _ in range(3):
        assert exchanged(pool, QUERY) == REPLY
    assert effects == []
    assert entry.health.total_failures == 0
    assert entry.health.last_fault is None
    assert pool.snapshot(0.0)[0].reuse_recoveries_total == 2


def test_without_anybody_to_tell_health_is_recorded_all_the_same(clock: ManualClock) -> None:
    entry = entry_of(ScriptedLeaf(RESET, REPLY), clock=clock)
    pool = pool_of(entry, clock=clock, on_effect=None)
    ask(pool)
    ask(pool)
    assert (entry.health.total_failures, entry.health.total_successes) == (1, 1)


def test_chance_is_drawn_for_each_failure_and_shortens_or_lengthens_its_backoff(
    clock: ManualClock,
) -> None:
    draws = [0, 500]
    entries = [entry_of(ScriptedLeaf(RESET), clock=clock) for _ in draws]
    pool = pool_of(
        *entries, clock=clock, threshold=1, base_backoff_ms=1_000, rand=lambda: draws.pop(0)
    )
    ask(pool)
    assert [entry.health.backoff_until for entry in entries] == [
        clock.now + 500 * MS,
        clock.now + 1_000 * MS,
    ]
