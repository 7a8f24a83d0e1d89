"""The pool over fake leaves: the snapshot that every surface reads."""

from dataclasses import FrozenInstanceError, astuple

import gevent
import pytest

from nxdns.upstream.history import History
from nxdns.upstream.transport import Fault, PeerFault
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
    SteadyLeaf,
    entry_of,
    pool_of,
)

WALL = 10_000.0  # low, so that a float tells nanoseconds apart
BASE_BACKOFF_MS = 4_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_an_upstream_never_asked_reads_as_trusted_and_without_a_past(clock: ManualClock) -> None:
    entry = entry_of(SteadyLeaf(), SteadyLeaf(), clock=clock, label="home", url="tls://1.1.1.1")
    [seen] = pool_of(entry, clock=clock).snapshot(WALL)
    assert (seen.index, seen.label, seen.url) == (0, "home", "tls://1.1.1.1")
    assert (seen.enabled, seen.available, seen.tripped) == (True, True, False)
    assert (seen.consecutive_failures, seen.successes_total, seen.failures_total) == (0, 0, 0)
    assert (seen.success_rate, seen.window, seen.last_error) == (1.0, "", "")
    assert (seen.last_success_at, seen.last_error_at, seen.backoff_until) == (None, None, None)
    assert (seen.in_flight, seen.peak_in_flight, seen.slots) == (0, 0, 2)
    assert (seen.queued_total, seen.queued_seconds_total) == (0, 0.0)
    assert seen.reuse_recoveries_total == 0
    assert sum(seen.exchange_seconds.counts) == 0


def test_the_index_is_the_position_in_the_order_of_the_pool(clock: ManualClock) -> None:
    entries = [
        entry_of(SteadyLeaf(), clock=clock, label=label, priority=priority)
        for label, priority in [("last", 30), ("first", 10), ("middle", 20)]
    ]
    seen = pool_of(*entries, clock=clock).snapshot(WALL)
    assert [(s.index, s.label) for s in seen] == [(0, "first"), (1, "middle"), (2, "last")]


def test_disabled_upstreams_are_in_it_as_well(clock: ManualClock) -> None:
    entries = [entry_of(SteadyLeaf(), clock=clock, enabled=enabled) for enabled in (True, False)]
    assert [s.enabled for s in pool_of(*entries, clock=clock).snapshot(WALL)] == [True, False]


def test_the_url_is_redacted_and_the_secret_is_nowhere_in_it(clock: ManualClock) -> None:
    entry = entry_of(
        ScriptedLeaf(RESET), clock=clock, label="home", url="https://dns.example:8443/s3cret"
    )
    pool = pool_of(entry, clock=clock)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    [seen] = pool.snapshot(WALL)
    assert seen.url == "https://dns.example:8443/…"
    assert "s3cret" not in repr(astuple(seen))


def test_a_tripped_upstream_reads_with_its_counts_window_and_wall_clock_times(
    clock: ManualClock,
) -> None:
    def after(duration_ns: int, outcome: bytes | Fault) -> bytes | Fault:
        clock.advance(duration_ns)
        return outcome

    history = History()
    history.sessions.recoveries = 5
    entry = entry_of(
        ScriptedLeaf(
            lambda: after(30 * MS, REPLY),
            lambda: after(2 * SECOND, RESET),
            lambda: after(3 * SECOND, RESET),
        ),
        clock=clock,
        history=history,
    )
    pool = pool_of(
        entry, clock=clock, threshold=2, base_backoff_ms=BASE_BACKOFF_MS, attempt_ns=9 * SECOND
    )
    exchanged(pool, QUERY)
    for _ in range(2):
        with pytest.raises(PeerFault):
            exchanged(pool, QUERY)
    clock.advance(SECOND)
    [seen] = pool.snapshot(WALL)
    assert (seen.available, seen.tripped) == (False, True)
    assert (seen.consecutive_failures, seen.successes_total, seen.failures_total) == (2, 1, 2)
    assert seen.window == "001", "newest first"
    assert seen.success_rate == pytest.approx(1 / 3)
    assert seen.last_success_at == pytest.approx(WALL - 6.0)
    assert seen.last_error_at == pytest.approx(WALL - 1.0)
    assert seen.backoff_until == pytest.approx(WALL - 1.0 + BASE_BACKOFF_MS / 2 / 1_000)
    assert seen.last_error == "ReceiveFailed (cause ConnectionResetByPeer)"
    assert seen.reuse_recoveries_total == 5
    assert seen.exchange_seconds.sum_seconds == pytest.approx(5.03)
    assert sum(seen.exchange_seconds.counts) == 3


def test_a_backoff_that_has_ended_reads_as_available_and_still_tripped(clock: ManualClock) -> None:
    pool = pool_of(
        entry_of(ScriptedLeaf(RESET), clock=clock),
        clock=clock,
        threshold=1,
        base_backoff_ms=BASE_BACKOFF_MS,
    )
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    clock.advance(BASE_BACKOFF_MS // 2 * MS + 1)
    [seen] = pool.snapshot(WALL)
    assert (seen.available, seen.tripped) == (True, True)
    assert seen.backoff_until == pytest.approx(WALL)


def test_exchanges_in_flight_and_in_the_queue_are_read_while_they_last(clock: ManualClock) -> None:
    leaves = [GatedLeaf(), GatedLeaf()]
    pool = pool_of(entry_of(*leaves, clock=clock), clock=clock)
    asking = [gevent.spawn(exchanged, pool, QUERY) for _ in range(3)]
    gevent.idle()
    [during] = pool.snapshot(WALL)
    clock.advance(1_500 * MS)
    for leaf in leaves:
        leaf.gate.set()
    gevent.joinall(asking, raise_error=True)
    [after] = pool.snapshot(WALL)
    assert (during.in_flight, during.peak_in_flight, during.queued_total) == (2, 2, 0)
    assert (after.in_flight, after.peak_in_flight, after.queued_total) == (0, 2, 1)
    assert after.queued_seconds_total == 1.5


def test_a_snapshot_is_a_frozen_copy(clock: ManualClock) -> None:
    pool = pool_of(entry_of(SteadyLeaf(), clock=clock), clock=clock)
    [before] = pool.snapshot(WALL)
    exchanged(pool, QUERY)
    assert before.successes_total == 0
    assert before.window == ""
    assert sum(before.exchange_seconds.counts) == 0
    with pytest.raises(FrozenInstanceError):
        before.successes_total = 1  # type: ignore[misc]


def test_a_snapshot_changes_nothing(clock: ManualClock) -> None:
    pool = pool_of(entry_of(SteadyLeaf(), clock=clock), clock=clock)
    exchanged(pool, QUERY)
    assert pool.snapshot(WALL) == pool.snapshot(WALL)
