"""The upstreams in their order: the first healthy one is asked, then the next.

A query that exceeds what an upstream carries at once waits for a slot, within its total budget, and
is counted. That budget may so end while no attempt is in flight: such an expiry says nothing of any
upstream and is recorded against none.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nxdns.snapshots import UpstreamSnapshot
from nxdns.units import NS_PER_SECOND
from nxdns.upstream import health
from nxdns.upstream.attempt import EXPIRED, attempt
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.histogram import Histogram
from nxdns.upstream.slots import Slots
from nxdns.upstream.transport import (
    Cause,
    Endpoint,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    PeerFault,
    SessionStats,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Budgets:
    """How long one upstream, and how long one query, may take. Nanoseconds."""

    attempt_ns: int = 2_000_000_000  # a dial, a handshake and an answer over a bad line
    total_ns: int = 5_000_000_000  # stub resolvers give up after 5 s (resolv.conf(5))


class Entry:
    """One upstream in the pool."""

    __slots__ = (
        "durations",
        "enabled",
        "endpoint",
        "health",
        "label",
        "priority",
        "sessions",
        "slots",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        label: str,
        slots: Slots,
        *,
        priority: int,
        enabled: bool,
        sessions: SessionStats,
    ) -> None:
        self.endpoint = endpoint
        self.label = label
        self.slots = slots
        self.priority = priority
        self.enabled = enabled
        #: Counted in by the leaves; not of this entry, so that both can be replaced alone.
        self.sessions = sessions
        self.health = health.State()
        self.durations = Histogram()


OnEffect = Callable[[Entry, health.Effect], None]
"""Called after each mutation of an entry's health, with no switch in between; must not switch."""


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

    def exchange(self, query: bytes) -> bytes:
        """See :class:`~nxdns.upstream.transport.Client`. Ends within the total budget."""
        deadline = self._clock() + self._budgets.total_ns
        last_fault: Fault | None = None
        for probing in (False, True):
            for entry in self.entries:
                if not entry.enabled:
                    continue
                outcome = self._ask(entry, query, deadline, probing=probing)
                if isinstance(outcome, bytes):
                    return outcome
                last_fault = outcome or last_fault
            # Everything in backoff must not mean SERVFAIL for everyone, and a probe is how a
            # backoff ends: the second pass asks all, but only if the first could ask nobody.
            if last_fault is not None:
                break
        raise PeerFault(last_fault or Fault(FaultKind.CONNECT_FAILED, Cause.ALL_DISABLED))

    def _ask(
        self, entry: Entry, query: bytes, deadline: int, *, probing: bool
    ) -> bytes | Fault | None:
        """Ask one upstream, unless it is in backoff and this is no probe: then None."""
        now = self._clock()
        state = entry.health
        if not (probing or state.backoff_until is None or state.available(now)):
            return None
        left_ns = deadline - now
        if left_ns <= 0:
            raise LocalResource(LocalKind.BUDGET_EXHAUSTED)
        leaf = entry.slots.acquire(left_ns)
        if leaf is None:
            raise PeerFault(EXPIRED)
        try:
            admitted = self._clock()
            # Again: a wait for a slot may have outlived the health that admitted it.
            if not (probing or state.backoff_until is None or state.available(admitted)):
                return None
            outcome = attempt(
                leaf,
                query,
                self._deadlines,
                attempt_ns=self._budgets.attempt_ns,
                left_ns=deadline - admitted,
            )
        finally:
            entry.slots.release(leaf)
        if isinstance(outcome, Fault):
            slot = entry.slots.leaves.index(leaf)
            _log.debug("%s: slot %d: attempt failed: %s", entry.label, slot, outcome)
        self._record(entry, outcome, admitted)
        return outcome

    def _record(self, entry: Entry, outcome: bytes | Fault, admitted: int) -> None:
        """One recorded attempt: health, then its effect, with no switch in between."""
        ended = self._clock()
        entry.durations.observe(ended - admitted)
        effect: health.Effect | None
        if isinstance(outcome, Fault):
            effect = entry.health.record_failure(admitted, ended, outcome, self._cfg, self._rand())
        else:
            effect = entry.health.record_success(ended, self._cfg)
        if effect is not None and self._on_effect is not None:
            self._on_effect(entry, effect)

    def close(self) -> None:
        """Close every session. Never waits."""
        for entry in self.entries:
            for leaf in entry.slots.leaves:
                leaf.close()

    def snapshot(self, wall_seconds: float) -> list[UpstreamSnapshot]:
        """Every entry in the pool's order; ``wall_seconds`` is now, since 1970."""
        now = self._clock()

        def wall(at: int | None) -> float | None:
            return None if at is None else wall_seconds - (now - at) / NS_PER_SECOND

        return [
            UpstreamSnapshot(
                index=index,
                label=entry.label,
                url=entry.endpoint.redacted,
                enabled=entry.enabled,
                available=entry.health.available(now),
                tripped=entry.health.tripped(self._cfg),
                consecutive_failures=entry.health.consecutive_failures,
                successes_total=entry.health.total_successes,
                failures_total=entry.health.total_failures,
                success_rate=entry.health.success_rate(),
                window=entry.health.strip(),
                last_success_at=wall(entry.health.last_success_at),
                last_error_at=wall(entry.health.last_error_at),
                last_error=entry.health.last_error(),
                backoff_until=wall(entry.health.backoff_until),
                in_flight=entry.slots.in_flight,
                peak_in_flight=entry.slots.peak_in_flight,
                slots=entry.slots.capacity,
                queued_total=entry.slots.queued_total,
                queued_seconds_total=entry.slots.queued_ns_total / NS_PER_SECOND,
                open_sessions=entry.sessions.open,
                dials_total=entry.sessions.dials,
                reuse_recoveries_total=entry.sessions.recoveries,
                late_answers_total=entry.sessions.late_answers,
                exchange_seconds=entry.durations.snapshot(),
            )
            for index, entry in enumerate(self.entries)
        ]
