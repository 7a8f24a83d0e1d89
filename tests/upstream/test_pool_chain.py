"""What the pool tells of each upstream that did not answer."""

import gevent
import pytest

from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import Fault, LocalKind, LocalResource, PeerFault, Tried
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
    entry_of,
    pool_of,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def chain(pool: UpstreamPool) -> tuple[Tried, ...]:
    try:
        exchanged(pool, QUERY)
    except (PeerFault, LocalResource) as error:
        return error.tried
    raise AssertionError("it was answered")


def test_each_upstream_that_was_asked_is_told_with_its_cause(clock: ManualClock) -> None:
    pool = pool_of(
        entry_of(SteadyLeaf(RESET), clock=clock, label="cloudflare"),
        entry_of(SteadyLeaf(REFUSED), clock=clock, label="google"),
        clock=clock,
    )
    assert chain(pool) == (
        Tried(1, "cloudflare", "ConnectionResetByPeer", at_connect=False),
        Tried(2, "google", "ConnectionRefused", at_connect=True),
    )


def test_one_that_was_passed_over_is_told_with_what_is_left_of_its_backoff(
    clock: ManualClock,
) -> None:
    pool = pool_of(
        entry_of(ScriptedLeaf(REFUSED), clock=clock, label="cloudflare"),
        entry_of(ScriptedLeaf(REPLY, RESET), clock=clock, label="google"),
        clock=clock,
        threshold=1,
        base_backoff_ms=20_000,
    )
    exchanged(pool, QUERY)
    clock.advance(1500 * MS)
    assert list(map(str, chain(pool))) == [
        "1 cloudflare: backoff 9s",
        "2 google: ConnectionResetByPeer",
    ]


@pytest.mark.parametrize(
    ("before", "at_connect"),
    [pytest.param(REFUSED, True, id="refused"), pytest.param(RESET, False, id="reset")],
)
def test_whether_one_in_backoff_could_be_reached_is_as_it_was_when_asked_last(
    before: Fault, at_connect: bool, clock: ManualClock
) -> None:
    pool = pool_of(
        entry_of(ScriptedLeaf(before), clock=clock),
        entry_of(ScriptedLeaf(REPLY, REFUSED), clock=clock),
        clock=clock,
        threshold=1,
    )
    exchanged(pool, QUERY)
    assert [tried.at_connect for tried in chain(pool)] == [at_connect, True]


def test_a_probe_is_told_as_what_came_of_it(clock: ManualClock) -> None:
    pool = pool_of(
        entry_of(ScriptedLeaf(RESET, REFUSED), clock=clock, label="only"), clock=clock, threshold=1
    )
    chain(pool)
    assert list(map(str, chain(pool))) == ["1 only: ConnectionRefused"]


def test_the_one_at_which_the_time_ran_out_is_told_too(clock: ManualClock) -> None:
    def fail_late() -> bytes:
        clock.advance(20 * SECOND - 20 * MS)
        raise LocalResource(LocalKind.BUDGET_EXHAUSTED)

    pool = pool_of(
        entry_of(ScriptedLeaf(RESET), clock=clock, label="cloudflare"),
        entry_of(ScriptedLeaf(fail_late), clock=clock, label="google"),
        entry_of(ScriptedLeaf(), clock=clock, label="quad9"),
        clock=clock,
    )
    assert list(map(str, chain(pool))) == [
        "1 cloudflare: ConnectionResetByPeer",
        "2 google: BudgetExhausted",
    ]


def test_one_whose_slots_were_all_taken_for_too_long_counts_as_asked(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    pool = pool_of(
        entry_of(SteadyLeaf(REFUSED), clock=clock, label="down"),
        entry_of(leaf, clock=clock, label="busy"),
        clock=clock,
        total_ns=20 * MS,
    )
    other = gevent.spawn(exchanged, pool, QUERY)
    leaf.entered.wait()
    assert chain(pool) == (
        Tried(1, "down", "ConnectionRefused", at_connect=True),
        Tried(2, "busy", "Timeout", at_connect=False),
    )
    other.kill()


def test_a_disabled_one_keeps_its_number_and_is_not_told(clock: ManualClock) -> None:
    pool = pool_of(
        entry_of(ScriptedLeaf(), clock=clock, label="off", enabled=False),
        entry_of(SteadyLeaf(RESET), clock=clock, label="on"),
        clock=clock,
    )
    assert list(map(str, chain(pool))) == ["2 on: ConnectionResetByPeer"]


def test_when_everybody_is_disabled_nobody_is_told(clock: ManualClock) -> None:
    pool = pool_of(entry_of(ScriptedLeaf(), clock=clock, enabled=False), clock=clock)
    assert chain(pool) == ()
