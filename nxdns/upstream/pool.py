"""The upstreams in their order: the first healthy one is asked, then the next.

A query that exceeds what an upstream carries at once waits for a slot, within its total budget, and
is counted. That budget may so end while no attempt is in flight: such an expiry says nothing of any
upstream and is recorded against none.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nxdns.dns.packet import Packet
from nxdns.snapshots import FlightSnapshot, UpstreamSnapshot
from nxdns.units import NS_PER_SECOND
from nxdns.upstream import health
from nxdns.upstream.attempt import EXPIRED, attempt
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.describe import flight_of, snapshot_of
from nxdns.upstream.entry import Entry
from nxdns.upstream.transport import (
    Cause,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    PeerFault,
    Phase,
    Tried,
)

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Budgets:
    """How long one upstream, and how long one query, may take. Nanoseconds."""

    attempt_ns: int = 2_000_000_000  # a dial, a handshake and an answer over a bad line
    total_ns: int = 5_000_000_000  # stub resolvers give up after 5 s (resolv.conf(5))


OnEffect = Callable[[Entry, health.Effect], None]
"""Called after each mutation of an entry's health, with no switch in between; must not switch.

Not after a success of one that counts no failure, as nearly all are: what is desired of its episode
is what it was."""


class Failed(NamedTuple):
    """What became of one upstream that was asked in vain."""

    fault: Fault
    phase: Phase


class UpstreamPool:
    """A Client over all configured upstreams, the disabled ones included."""

    def __init__(
        self,
        entries: Sequence[Entry],
        cfg: health.Config,
        budgets: Budgets,
        *,
        clock: Callable[[], int],
        rand: Callable[[], int],
        deadlines: Deadlines,
        on_effect: OnEffect | None = None,
    ) -> None:
        """``clock`` gives monotonic nanoseconds, ``rand`` integers in [0, 2**32). ``deadlines``
        ends the attempts.

        Entries are sorted by priority, lower first; equal ones keep their order. Raises
        ValueError when there is none.
        """
        if not entries:
            raise ValueError("a pool needs at least one upstream")
        self.entries = sorted(entries, key=lambda entry: entry.priority)
        self._cfg = cfg
        self._budgets = budgets
        self._clock = clock
        self._rand = rand
        self._deadlines = deadlines
        self._on_effect = on_effect

    def exchange(self, query: bytes) -> Packet:
        """See :class:`~nxdns.upstream.transport.Client`. Ends within the total budget."""
        now = self._clock()
        deadline = now + self._budgets.total_ns
        failed: dict[Entry, Failed] = {}
        last: Failed | None = None
        for probing in (False, True):
            for entry in self.entries:
                if not entry.enabled:
                    continue
                try:
                    outcome = self._ask(entry, query, now, deadline, last, probing=probing)
                except PeerFault as error:  # while it waited for a slot
                    error.tried = self._tried(failed, entry, error.fault.cause)
                    raise
                except LocalResource as local:
                    local.tried = self._tried(failed, entry, local.kind.value)
                    raise
                if isinstance(outcome, Packet):
                    return outcome
                if outcome is not None:
                    failed[entry] = last = outcome
                now = self._clock()
            # Everything in backoff must not mean SERVFAIL for everyone, and a probe is how a
            # backoff ends: the second pass asks all, but only if the first could ask nobody.
            if last is not None:
                raise PeerFault(last.fault, last.phase, self._tried(failed))
        raise PeerFault(Fault(FaultKind.CONNECT_FAILED, Cause.ALL_DISABLED))

    def _tried(
        self, failed: Mapping[Entry, Failed], stopped_at: Entry | None = None, why: str = ""
    ) -> tuple[Tried, ...]:
        """What became of each upstream that did not answer; ``why`` it ended at one of them."""
        now = self._clock()
        chain = []
        for position, entry in enumerate(self.entries, start=1):
            asked = failed.get(entry)
            until = entry.health.backoff_until
            if asked is not None:
                kind, cause = asked.fault.kind, asked.fault.cause
                unreachable = kind is FaultKind.CONNECT_FAILED
                chain.append(Tried(position, entry.label, cause, unreachable))
            elif entry is stopped_at:
                chain.append(Tried(position, entry.label, why, at_connect=False))
            elif entry.enabled and until is not None:
                fault = entry.health.last_fault
                unreachable = fault is not None and fault.kind is FaultKind.CONNECT_FAILED
                seconds = max(0, -(-(until - now) // NS_PER_SECOND))
                chain.append(Tried(position, entry.label, f"backoff {seconds}s", unreachable))
        return tuple(chain)

    def _ask(
        self,
        entry: Entry,
        query: bytes,
        now: int,
        deadline: int,
        last: Failed | None,
        *,
        probing: bool,
    ) -> Packet | Failed | None:
        """Ask one upstream, unless it is in backoff and this is no probe: then None.

        ``last`` is what became of the one before.
        """
        state = entry.health
        if not (probing or state.backoff_until is None or state.available(now)):
            return None
        left_ns = deadline - now
        if left_ns <= 0:
            died_in = Phase.QUEUE if last is None else last.phase
            raise LocalResource(LocalKind.BUDGET_EXHAUSTED, died_in)
        slots = entry.slots
        history = entry.history
        waits = slots.queue.waited
        leaf = slots.acquire(left_ns)
        if leaf is None:
            history.book_wait(self._clock() - now)
            raise PeerFault(EXPIRED, Phase.QUEUE)
        try:
            admitted = now
            if slots.queue.waited != waits:
                admitted = self._clock()
                # Again: a wait for a slot may have outlived the health that admitted it.
                if not (probing or state.backoff_until is None or state.available(admitted)):
                    history.book_wait(admitted - now)
                    return None
                left_ns = deadline - admitted
                if left_ns <= 0:
                    history.book_wait(admitted - now)
                    raise LocalResource(LocalKind.BUDGET_EXHAUSTED, Phase.QUEUE)
            try:
                outcome = attempt(
                    leaf,
                    query,
                    self._deadlines,
                    attempt_ns=self._budgets.attempt_ns,
                    left_ns=left_ns,
                )
            except LocalResource as local:
                info = leaf.last
                local.phase = Phase(info.phase)
                history.book(info, queued_ns=admitted - now, took_ns=self._clock() - admitted)
                raise
        finally:
            slots.release(leaf)
        # Nothing has switched since the leaf came back, so this is of this exchange.
        info = leaf.last
        ended = self._clock()
        history.record(
            outcome,
            info,
            slot=slots.slot_of(leaf),
            queued_ns=admitted - now,
            took_ns=ended - admitted,
            ended=ended,
        )
        if isinstance(outcome, Packet):
            if not state.consecutive_failures:
                state.count_success(ended)
            elif effect := state.record_success(ended, self._cfg):
                self._tell(entry, effect)
            return outcome
        self._tell(entry, state.record_failure(admitted, ended, outcome, self._cfg, self._rand()))
        _log.debug("%s: slot %d: attempt failed: %s", entry.label, slots.slot_of(leaf), outcome)
        return Failed(outcome, Phase(info.phase))

    def _tell(self, entry: Entry, effect: health.Effect) -> None:
        if self._on_effect is not None:
            self._on_effect(entry, effect)

    def close(self) -> None:
        """Close every session. Never waits."""
        for entry in self.entries:
            for leaf in entry.slots.leaves:
                leaf.close()

    def snapshot(self, wall_seconds: float) -> list[UpstreamSnapshot]:
        """Every entry in the pool's order; ``wall_seconds`` is now, since 1970."""
        now = self._clock()
        return [
            snapshot_of(entry, index, self._cfg, now, wall_seconds)
            for index, entry in enumerate(self.entries)
        ]

    def flight(self, index: int) -> tuple[FlightSnapshot, ...]:
        """The last exchanges of the entry at ``index``, at most a minute old, the newest first."""
        return flight_of(self.entries[index], self._clock())
