"""The pool over fake leaves: order, failover, backoff, and who is asked at all."""

import logging

import gevent
import pytest

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
    REFUSED,
    REPLY,
    RESET,
    SECOND,
    GatedLeaf,
    ManualClock,
    ScriptedLeaf,
    SteadyLeaf,
    assert_all_free,
    entry_of,
    pool_of,
)
from tests.support.messages import make_query, make_response


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_pool_of_nobody_is_refused(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="at least one"):
        pool_of(clock=clock)


def test_the_upstream_of_the_lowest_priority_is_asked_first(clock: ManualClock) -> None:
    late = entry_of(ScriptedLeaf(), clock=clock, priority=20)
    early = entry_of(ScriptedLeaf(REPLY), clock=clock, priority=10)
    pool = pool_of(late, early, clock=clock)
    assert pool.entries == [early, late]
    assert exchanged(pool, QUERY) == REPLY
    assert early.health.total_successes == 1


def test_upstreams_of_equal_priority_keep_their_order(clock: ManualClock) -> None:
    entries = [
        entry_of(SteadyLeaf(), clock=clock, label=label, priority=priority)
        for label, priority in [("a", 2), ("b", 1), ("c", 2), ("d", 1), ("e", 2)]
    ]
    pool = pool_of(*entries, clock=clock)
    assert [entry.label for entry in pool.entries] == ["b", "d", "a", "c", "e"]


def test_the_query_reaches_the_leaf_and_its_reply_the_client_unchanged(clock: ManualClock) -> None:
    query = make_query(id_=0x1234)
    reply = make_response(query, "192.0.2.7")
    leaf = ScriptedLeaf(reply)
    pool = pool_of(entry_of(leaf, clock=clock), clock=clock)
    assert exchanged(pool, query) == reply
    assert leaf.queries == [query]


def test_a_fault_is_counted_and_the_next_upstream_answers(clock: ManualClock) -> None:
    failing = entry_of(ScriptedLeaf(RESET), clock=clock, label="failing")
    good = entry_of(ScriptedLeaf(REPLY), clock=clock, label="good")
    idle = entry_of(ScriptedLeaf(), clock=clock, label="idle")
    assert exchanged(pool_of(failing, good, idle, clock=clock), QUERY) == REPLY
    counts = [(e.health.total_successes, e.health.total_failures) for e in (failing, good, idle)]
    assert counts == [(0, 1), (1, 0), (0, 0)]
    assert failing.health.last_fault == RESET


def test_when_everybody_failed_the_last_fault_is_raised(clock: ManualClock) -> None:
    entries = [entry_of(ScriptedLeaf(fault), clock=clock) for fault in (RESET, REFUSED)]
    with pytest.raises(PeerFault) as raised:
        exchanged(pool_of(*entries, clock=clock), QUERY)
    assert raised.value.fault == REFUSED
    assert [entry.health.last_fault for entry in entries] == [RESET, REFUSED]


def test_an_upstream_in_backoff_is_skipped_until_it_ends(clock: ManualClock) -> None:
    sick_leaf = ScriptedLeaf(RESET, RESET, REPLY)
    sick = entry_of(sick_leaf, clock=clock)
    good = entry_of(SteadyLeaf(), clock=clock)
    pool = pool_of(sick, good, clock=clock, threshold=2, base_backoff_ms=1_000)
    for _ in range(2):
        exchanged(pool, QUERY)
    clock.advance(500 * MS)
    exchanged(pool, QUERY)
    assert len(sick_leaf.queries) == 2, "in backoff to the last nanosecond"
    clock.advance(1)
    assert exchanged(pool, QUERY) == REPLY
    assert len(sick_leaf.queries) == 3
    assert good.health.total_successes == 3
    assert sick.health.total_successes == 1


def test_when_everybody_is_in_backoff_everybody_is_probed_in_order(clock: ManualClock) -> None:
    first = entry_of(ScriptedLeaf(RESET, RESET), clock=clock)
    second = entry_of(ScriptedLeaf(REFUSED, REPLY), clock=clock)
    pool = pool_of(first, second, clock=clock, threshold=1)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    assert not first.health.available(clock.now)
    assert not second.health.available(clock.now)
    assert exchanged(pool, QUERY) == REPLY
    assert first.health.total_failures == 2
    assert second.health.available(clock.now), "a probe is how a backoff ends"


def test_who_is_in_backoff_is_not_probed_when_another_could_be_asked(clock: ManualClock) -> None:
    sick = entry_of(ScriptedLeaf(RESET), clock=clock)
    other = entry_of(ScriptedLeaf(REPLY, REFUSED), clock=clock)
    pool = pool_of(sick, other, clock=clock, threshold=1)
    exchanged(pool, QUERY)
    with pytest.raises(PeerFault) as raised:
        exchanged(pool, QUERY)
    assert raised.value.fault == REFUSED
    assert sick.health.total_failures == 1


def test_a_probe_that_fails_everywhere_ends_after_one_round(clock: ManualClock) -> None:
    leaf = ScriptedLeaf(RESET, RESET)
    pool = pool_of(entry_of(leaf, clock=clock), clock=clock, threshold=1)
    for _ in range(2):
        with pytest.raises(PeerFault):
            exchanged(pool, QUERY)
    assert len(leaf.queries) == 2


def test_a_disabled_upstream_is_never_asked(clock: ManualClock) -> None:
    disabled = entry_of(ScriptedLeaf(), clock=clock, enabled=False)
    good = entry_of(SteadyLeaf(), clock=clock)
    assert exchanged(pool_of(disabled, good, clock=clock), QUERY) == REPLY


def test_a_disabled_upstream_is_not_even_probed(clock: ManualClock) -> None:
    disabled = entry_of(ScriptedLeaf(), clock=clock, enabled=False)
    sick = entry_of(ScriptedLeaf(RESET, REPLY), clock=clock)
    pool = pool_of(disabled, sick, clock=clock, threshold=1)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    assert exchanged(pool, QUERY) == REPLY


def test_when_everybody_is_disabled_the_connect_failed(clock: ManualClock) -> None:
    entries = [entry_of(ScriptedLeaf(), clock=clock, enabled=False) for _ in range(2)]
    with pytest.raises(PeerFault) as raised:
        exchanged(pool_of(*entries, clock=clock), QUERY)
    assert raised.value.fault.kind is FaultKind.CONNECT_FAILED
    assert [entry.health.total_failures for entry in entries] == [0, 0]


@pytest.mark.parametrize("kind", list(LocalKind), ids=lambda kind: kind.value)
def test_a_local_resource_ends_the_exchange_with_nothing_recorded(
    clock: ManualClock, kind: LocalKind
) -> None:
    effects = []
    starved = entry_of(ScriptedLeaf(LocalResource(kind)), clock=clock)
    untouched = entry_of(ScriptedLeaf(), clock=clock)
    pool = pool_of(
        starved, untouched, clock=clock, threshold=1, on_effect=lambda *args: effects.append(args)
    )
    with pytest.raises(LocalResource) as raised:
        exchanged(pool, QUERY)
    assert raised.value.kind is kind
    assert [entry.health.revision for entry in pool.entries] == [0, 0]
    assert sum(starved.history.durations.snapshot().counts) == 0
    assert effects == []
    assert_all_free(starved.slots)


def test_a_kill_ends_the_exchange_with_nothing_recorded(clock: ManualClock) -> None:
    effects = []
    leaf = GatedLeaf()
    asked = entry_of(leaf, clock=clock)
    untouched = entry_of(ScriptedLeaf(), clock=clock)
    pool = pool_of(
        asked, untouched, clock=clock, threshold=1, on_effect=lambda *args: effects.append(args)
    )
    asking = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    asking.kill()
    assert isinstance(asking.value, gevent.GreenletExit)
    assert [entry.health.revision for entry in pool.entries] == [0, 0]
    assert sum(asked.history.durations.snapshot().counts) == 0
    assert effects == []
    assert_all_free(asked.slots)


def test_a_bug_in_a_leaf_is_raised_records_nothing_and_costs_no_slot(clock: ManualClock) -> None:
    broken = entry_of(ScriptedLeaf(TypeError("a bug")), clock=clock)
    untouched = entry_of(ScriptedLeaf(), clock=clock)
    pool = pool_of(broken, untouched, clock=clock)
    with pytest.raises((TypeError, LocalResource)):
        exchanged(pool, QUERY)
    assert broken.health.revision == 0
    assert_all_free(broken.slots)


def test_a_failed_attempt_is_logged_at_debug_with_label_slot_and_fault_and_no_secret(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nxdns")
    idle, failing = ScriptedLeaf(), ScriptedLeaf(RESET)
    entry = entry_of(
        idle, failing, clock=clock, label="home line", url="https://dns.example/s3cret"
    )
    with pytest.raises(PeerFault):
        exchanged(pool_of(entry, clock=clock), QUERY)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert "home line" in caplog.text
    assert "slot 1" in caplog.text
    assert "ReceiveFailed (cause ConnectionResetByPeer)" in caplog.text
    assert "s3cret" not in caplog.text


def test_each_recorded_attempt_is_counted_with_its_duration(clock: ManualClock) -> None:
    def answer_after(duration_ns: int, outcome: bytes | Fault) -> bytes | Fault:
        clock.advance(duration_ns)
        return outcome

    slow = entry_of(ScriptedLeaf(lambda: answer_after(3 * SECOND, RESET)), clock=clock)
    good = entry_of(ScriptedLeaf(lambda: answer_after(4 * MS, REPLY)), clock=clock)
    exchanged(pool_of(slow, good, clock=clock), QUERY)
    assert slow.history.durations.snapshot().sum_seconds == 3.0
    assert good.history.durations.snapshot().sum_seconds == 0.004
    assert good.health.last_success_at == clock.now
    assert slow.health.last_error_at == clock.now - 4 * MS


def test_closing_a_pool_closes_every_leaf_and_may_be_done_twice(clock: ManualClock) -> None:
    leaves = [SteadyLeaf() for _ in range(5)]
    pool = pool_of(
        entry_of(*leaves[:2], clock=clock),
        entry_of(*leaves[2:], clock=clock, enabled=False),
        clock=clock,
    )
    pool.close()
    assert all(leaf.closes == 1 for leaf in leaves)
    pool.close()


def test_the_slot_of_an_entry_may_be_lent_again_after_each_outcome(clock: ManualClock) -> None:
    steps = (REPLY, RESET, Fault(FaultKind.TIMEOUT, Cause.TIMEOUT), REPLY)
    entry = entry_of(ScriptedLeaf(*steps), clock=clock)
    pool = pool_of(entry, clock=clock, threshold=10)
    for step in steps:
        if isinstance(step, Fault):
            with pytest.raises(PeerFault):
                exchanged(pool, QUERY)
        else:
            assert exchanged(pool, QUERY) == step
        assert_all_free(entry.slots)
