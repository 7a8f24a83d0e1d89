"""One bounded attempt: whose timer it was that expired."""

from contextlib import suppress
from time import monotonic_ns

import gevent
import pytest
from gevent.event import Event

from nxdns.upstream import attempt as attempts
from nxdns.upstream.deadlines import SWEEP_SECONDS, Deadlines
from nxdns.upstream.transport import (
    Cause,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
)
from tests.support.exchanging import wire_of
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REPLY,
    RESET,
    SECOND,
    FakeLeaf,
    GatedLeaf,
    Outcome,
    ScriptedLeaf,
)

EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


def attempt(leaf: FakeLeaf, query: bytes, *, attempt_ns: int, left_ns: int) -> Outcome:
    """One attempt with a watch of its own, in which nothing is left afterwards."""
    deadlines = Deadlines(monotonic_ns)
    try:
        return wire_of(
            attempts.attempt(leaf, query, deadlines, attempt_ns=attempt_ns, left_ns=left_ns)
        )
    finally:
        assert len(deadlines) == 0


@pytest.mark.parametrize("outcome", [REPLY, RESET], ids=["reply", "fault"])
def test_what_a_leaf_returns_is_the_outcome(outcome: Outcome) -> None:
    leaf = ScriptedLeaf(outcome)
    assert attempt(leaf, QUERY, attempt_ns=SECOND, left_ns=SECOND) is outcome
    assert leaf.queries == [QUERY]


@pytest.mark.parametrize("left_ns", [20 * MS, 20 * MS + 1, SECOND], ids=["just", "more", "plenty"])
def test_the_expiry_of_a_full_attempt_is_the_fault_of_the_peer(left_ns: int) -> None:
    leaf = GatedLeaf()
    assert attempt(leaf, QUERY, attempt_ns=20 * MS, left_ns=left_ns) == EXPIRED
    assert isinstance(leaf.interrupted_by, gevent.Timeout)


@pytest.mark.parametrize("left_ns", [1, 20 * MS], ids=["a nanosecond", "20 ms"])
def test_the_expiry_of_an_attempt_cut_short_is_the_fault_of_nobody(left_ns: int) -> None:
    leaf = GatedLeaf()
    with pytest.raises(LocalResource) as raised:
        attempt(leaf, QUERY, attempt_ns=SECOND, left_ns=left_ns)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert isinstance(leaf.interrupted_by, gevent.Timeout)


def test_one_nanosecond_less_than_an_attempt_is_cut_short() -> None:
    with pytest.raises(LocalResource) as raised:
        attempt(GatedLeaf(), QUERY, attempt_ns=20 * MS, left_ns=20 * MS - 1)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED


@pytest.mark.parametrize("left_ns", [0, -1, -SECOND], ids=["nothing", "below", "far below"])
def test_with_nothing_left_no_leaf_is_started(left_ns: int) -> None:
    leaf = ScriptedLeaf()
    with pytest.raises(LocalResource) as raised:
        attempt(leaf, QUERY, attempt_ns=SECOND, left_ns=left_ns)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert leaf.queries == []


@pytest.mark.parametrize(
    "left_ns", [pytest.param(MS, id="cut short"), pytest.param(SECOND, id="in full")]
)
@pytest.mark.parametrize("cause", [Cause.CONNECTION_TIMED_OUT, Cause.TIMEOUT])
def test_a_timeout_that_the_leaf_found_keeps_its_cause(cause: Cause, left_ns: int) -> None:
    fault = Fault(FaultKind.TIMEOUT, cause)
    assert attempt(ScriptedLeaf(fault), QUERY, attempt_ns=SECOND, left_ns=left_ns) is fault


def test_somebody_elses_timeout_passes_through_untouched() -> None:
    leaf = GatedLeaf()
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.01) as somebody_elses:
        attempt(leaf, QUERY, attempt_ns=SECOND, left_ns=SECOND)
    assert caught.value is somebody_elses
    assert leaf.interrupted_by is somebody_elses


def test_somebody_elses_timeout_passes_through_an_attempt_cut_short() -> None:
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.01) as somebody_elses:
        attempt(GatedLeaf(), QUERY, attempt_ns=SECOND, left_ns=SECOND - 1)
    assert caught.value is somebody_elses


def test_a_timer_of_the_leafs_own_passes_through_untouched() -> None:
    its_own = gevent.Timeout()
    with pytest.raises(gevent.Timeout) as caught:
        attempt(ScriptedLeaf(its_own), QUERY, attempt_ns=SECOND, left_ns=SECOND)
    assert caught.value is its_own


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(LocalResource(LocalKind.OUT_OF_MEMORY), id="local resource"),
        pytest.param(gevent.GreenletExit(), id="cancellation"),
        pytest.param(TypeError("a bug"), id="bug"),
    ],
)
def test_what_a_leaf_raises_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        attempt(ScriptedLeaf(error), QUERY, attempt_ns=SECOND, left_ns=MS)
    assert raised.value is error


def test_a_kill_ends_an_attempt_at_once() -> None:
    leaf = GatedLeaf()
    asking = gevent.spawn(attempt, leaf, QUERY, attempt_ns=SECOND, left_ns=SECOND)
    leaf.entered.wait()
    asking.kill()
    assert isinstance(asking.value, gevent.GreenletExit)
    assert isinstance(leaf.interrupted_by, gevent.GreenletExit)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(REPLY, id="a reply"),
        pytest.param(RESET, id="a fault"),
        pytest.param(LocalResource(LocalKind.SYSTEM_RESOURCES), id="a local resource"),
    ],
)
def test_the_timer_of_an_attempt_never_fires_after_it(step: bytes | Fault | LocalResource) -> None:
    with suppress(LocalResource):
        attempt(ScriptedLeaf(step), QUERY, attempt_ns=5 * MS, left_ns=SECOND)
    gevent.sleep(2 * SWEEP_SECONDS)


def test_the_timer_of_a_killed_attempt_does_not_turn_the_kill_into_an_expiry() -> None:
    leaf = GatedLeaf()
    cleaned_up = Event()

    def ask_and_clean_up() -> None:
        try:
            attempt(leaf, QUERY, attempt_ns=20 * MS, left_ns=SECOND)
        finally:
            gevent.sleep(2 * SWEEP_SECONDS)  # a wait during which the time runs out
            cleaned_up.set()

    asking = gevent.spawn(ask_and_clean_up)
    leaf.entered.wait()
    asking.kill()
    assert cleaned_up.is_set()
    assert isinstance(asking.value, gevent.GreenletExit)


def test_an_answer_that_came_while_nobody_looked_at_the_clock_is_kept() -> None:
    def compute() -> bytes:
        until = monotonic_ns() + 5 * MS
        while monotonic_ns() < until:
            pass
        return REPLY

    assert attempt(ScriptedLeaf(compute), QUERY, attempt_ns=MS, left_ns=SECOND) == REPLY
    gevent.sleep(2 * SWEEP_SECONDS)
