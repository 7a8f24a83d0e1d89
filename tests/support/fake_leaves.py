"""Leaves that do as they are told, a clock that stands still, and pools made of both."""

from collections.abc import Callable
from itertools import count
from time import monotonic_ns

import gevent
from gevent.event import Event

from nxdns.dns.packet import Packet, parse
from nxdns.upstream import health
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.depth import Depth
from nxdns.upstream.entry import Entry
from nxdns.upstream.history import History
from nxdns.upstream.pool import Budgets, OnEffect, UpstreamPool
from nxdns.upstream.slots import Slots
from nxdns.upstream.transport import (
    Cause,
    Endpoint,
    ExchangeInfo,
    Fault,
    FaultKind,
    Leaf,
    SessionStats,
)
from tests.support.messages import make_query, make_response

MS = 1_000_000
SECOND = 1_000_000_000

QUERY = make_query()
REPLY = make_response(QUERY, "192.0.2.1")
RESET = Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER)
REFUSED = Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED)

Outcome = bytes | Fault
Step = Outcome | BaseException | Callable[[], Outcome]
"""What one exchange does: return it, raise it, or do as the function does."""


class ManualClock:
    """Monotonic nanoseconds that pass when the test says so."""

    def __init__(self, now: int = 1_000 * SECOND) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, nanoseconds: int) -> None:
        self.now += nanoseconds


class FakeLeaf:
    """What all fakes have in common. One exchange more than it is deep fails the test."""

    depth = 1
    is_open = True
    is_stuck = False

    def __init__(self) -> None:
        self.last = ExchangeInfo()
        self.queries: list[bytes] = []
        self.closes = 0
        self.load = 0

    def exchange(self, query: bytes) -> Packet | Fault:
        assert self.load < self.depth, "a leaf was lent to too many greenlets at once"
        self.load += 1
        self.queries.append(query)
        try:
            outcome = self.outcome()
        finally:
            self.load -= 1
        return outcome if isinstance(outcome, Fault) else parse(outcome)

    def outcome(self) -> Outcome:
        raise NotImplementedError

    def close(self) -> None:
        self.closes += 1


def take(step: Step) -> Outcome:
    """Do one step."""
    if isinstance(step, BaseException):
        raise step
    return step if isinstance(step, bytes | Fault) else step()


class ScriptedLeaf(FakeLeaf):
    """Does one step of its script for each exchange; an exchange too many fails the test."""

    def __init__(self, *script: Step) -> None:
        super().__init__()
        self._script = list(script)

    def outcome(self) -> Outcome:
        assert self._script, "nobody should have asked this leaf again"
        return take(self._script.pop(0))


class SteadyLeaf(FakeLeaf):
    """Does the same for every exchange."""

    def __init__(self, step: Step = REPLY) -> None:
        super().__init__()
        self._step = step

    def outcome(self) -> Outcome:
        return take(self._step)


class GatedLeaf(FakeLeaf):
    """Waits in each exchange until the test opens the gate, then does its step."""

    def __init__(self, step: Step = REPLY) -> None:
        super().__init__()
        self.entered = Event()
        self.gate = Event()
        #: What ended the last wait at the gate; None while nothing but the gate has.
        self.interrupted_by: BaseException | None = None
        self._step = step

    def outcome(self) -> Outcome:
        self.entered.set()
        try:
            self.gate.wait()
        except BaseException as interruption:
            self.interrupted_by = interruption
            raise
        return take(self._step)


class DawdlingLeaf(FakeLeaf):
    """Lets other greenlets run a number of times before it does its step."""

    def __init__(self, turns: Callable[[], int], step: Callable[[], Step]) -> None:
        super().__init__()
        self._turns = turns
        self._step = step

    def outcome(self) -> Outcome:
        for _ in range(self._turns()):
            gevent.sleep(0)
        return take(self._step())


_addresses = count(1)


def entry_of(
    *leaves: Leaf,
    clock: Callable[[], int],
    label: str = "one",
    url: str | None = None,
    priority: int = 10,
    enabled: bool = True,
    history: History | None = None,
    sessions: SessionStats | None = None,
    depth: int = 1,
) -> Entry:
    """An entry over ``leaves``, each ``depth`` deep."""
    history = history or History()
    if sessions is not None:
        history.sessions = sessions
    return Entry(
        Endpoint.parse(url or f"tls://127.0.0.{next(_addresses) % 250 + 1}"),
        label,
        Slots(leaves, clock, Depth(depth), history.queue),
        priority=priority,
        enabled=enabled,
        history=history,
    )


def pool_of(
    *entries: Entry,
    clock: Callable[[], int],
    threshold: int = 2,
    base_backoff_ms: int = 1_000,
    attempt_ns: int = 10 * SECOND,
    total_ns: int = 20 * SECOND,
    rand: Callable[[], int] = lambda: 0,
    on_effect: OnEffect | None = None,
) -> UpstreamPool:
    """A pool; ``rand`` of 0 makes each backoff half of its delay."""
    return UpstreamPool(
        entries,
        health.Config(threshold, base_backoff_ms, 60_000),
        Budgets(attempt_ns, total_ns),
        clock=clock,
        rand=rand,
        deadlines=Deadlines(monotonic_ns),
        on_effect=on_effect,
    )


def assert_all_free(slots: Slots) -> None:
    """Every slot can be lent to its depth, none beyond, and nothing is counted as in flight."""
    assert slots.in_flight == 0
    lent = [slots.acquire(0) for _ in range(slots.capacity)]
    one_more = slots.acquire(0)
    for leaf in lent:
        assert leaf is not None, "a permit or a slot is lost"
        slots.release(leaf)
    assert {lent.count(leaf) for leaf in slots.leaves} == {slots.capacity // len(slots.leaves)}
    assert one_more is None, "there is a permit too many"
