"""Health and backoff of one upstream. Pure: no clock, no chance, no lock, no I/O.

Times are integer nanoseconds of one monotonic clock. Exchanges overlap and complete in any order,
so ``at`` may run backwards between two calls. Two rules make that harmless:

* every time field only moves forward, and a backoff is extended, never shortened;
* an outcome older than the newest one of the other kind is *stale*: it counts in the totals and
  in the window, and changes nothing that the newer outcome has decided.

A third makes many failures of one event one: a failure *counts*, towards the threshold, only if its
attempt began after the last one that counted, and after the last success. So one dead session is
one failure, however many rode on it, and an A and an AAAA of one dead name are.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from nxdns.units import NS_PER_MS
from nxdns.upstream.errors import Fault

WINDOW: Final = 32  # outcomes remembered: a screen's strip, and an hour of a quiet household
_WINDOW_MASK: Final = (1 << WINDOW) - 1
# 2**20 times any base is beyond any sensible maximum; more only grows the number.
_MAX_SHIFT: Final = 20


@dataclass(frozen=True, slots=True)
class Config:
    """When an upstream is no longer trusted, and for how long."""

    failure_threshold: int = 2  # one failure may be the network's; two in a row are the upstream's
    base_backoff_ms: int = 500  # short: most outages of a household line last seconds
    max_backoff_ms: int = 60_000  # long: a dead upstream costs an attempt a minute

    def __post_init__(self) -> None:
        # A tripped state without a recorded failure would have no fault to report.
        if self.failure_threshold < 1:
            raise ValueError(f"failure_threshold must be at least 1, not {self.failure_threshold}")
        if self.base_backoff_ms < 1:
            raise ValueError(f"base_backoff_ms must be at least 1, not {self.base_backoff_ms}")
        if self.max_backoff_ms < self.base_backoff_ms:
            raise ValueError("max_backoff_ms must not be below base_backoff_ms")


class Clear(NamedTuple):
    """No episode: the upstream is trusted."""


class Tripped(NamedTuple):
    """An open episode, for the last fault that counts."""

    fault: Fault


CLEAR: Final = Clear()


class Effect(NamedTuple):
    """The whole desired state of the upstream's episode after one mutation, never a transition.

    So whoever applies effects may drop one whose revision is below the last applied.
    """

    revision: int
    episode: Clear | Tripped


class State:
    """What is known of one upstream."""

    __slots__ = (
        "backoff_until",
        "consecutive_failures",
        "counted_at",
        "fill",
        "last_error_at",
        "last_fault",
        "last_success_at",
        "revision",
        "total_failures",
        "total_successes",
        "window",
    )

    def __init__(self) -> None:
        self.revision = 0
        self.consecutive_failures = 0
        self.total_successes = 0
        self.total_failures = 0
        self.last_success_at: int | None = None
        self.last_error_at: int | None = None
        #: The last failure that counted: an attempt begun before it may have shared its cause.
        self.counted_at: int | None = None
        self.last_fault: Fault | None = None
        self.backoff_until: int | None = None
        #: The newest outcome in the lowest bit, 1 for a success; ``fill`` bits of it are in use.
        self.window = 0
        self.fill = 0

    def record_success(self, at: int, cfg: Config) -> Effect | None:
        """Count an exchange that was answered at ``at``.

        None when the state stays tripped, a stale success behind a newer failure: the episode is
        open already, and a success is not an occurrence of it.
        """
        self.count_success(at)
        if self.last_error_at is None or at >= self.last_error_at:
            self.consecutive_failures = 0
            self.backoff_until = None
        elif self.tripped(cfg):
            return None
        return Effect(self.revision, CLEAR)

    def count_success(self, at: int) -> None:
        """As record_success, of a state that counts no failure: what was desired stays desired."""
        self.total_successes += 1
        self.revision += 1
        self.window = (self.window << 1 | 1) & _WINDOW_MASK
        if self.fill < WINDOW:
            self.fill += 1
        if self.last_success_at is None or at > self.last_success_at:
            self.last_success_at = at

    def record_failure(self, began: int, at: int, fault: Fault, cfg: Config, rand: int) -> Effect:
        """Count a peer fault of an attempt that ``began`` then, and was established at ``at``.

        ``rand`` is in [0, 2**32).
        """
        self.total_failures += 1
        self.revision += 1
        self.window = self.window << 1 & _WINDOW_MASK
        if self.fill < WINDOW:
            self.fill += 1
        if self.last_error_at is None or at >= self.last_error_at:
            self.last_error_at = at
            self.last_fault = fault
        if self._counts(began):
            self.counted_at = at if self.counted_at is None else max(self.counted_at, at)
            self.consecutive_failures += 1
            if self.tripped(cfg):
                self._back_off(at, cfg, rand)
        return self.effect(cfg)

    def _counts(self, began: int) -> bool:
        """Whether a failure is evidence of its own against what is known already."""
        return (self.last_success_at is None or began >= self.last_success_at) and (
            self.counted_at is None or began >= self.counted_at
        )

    def _back_off(self, at: int, cfg: Config, rand: int) -> None:
        """Double the delay with each failure, and draw from its upper half.

        Without chance, all that fail together would come back together.
        """
        shift = min(self.consecutive_failures - cfg.failure_threshold, _MAX_SHIFT)
        half_ms = min(cfg.max_backoff_ms, cfg.base_backoff_ms << shift) // 2
        jittered_ms = half_ms + rand % (half_ms + 1)
        until = at + jittered_ms * NS_PER_MS
        if self.backoff_until is None or until > self.backoff_until:
            self.backoff_until = until

    def effect(self, cfg: Config) -> Effect:
        """The current one."""
        fault = self.last_fault
        if fault is not None and self.tripped(cfg):
            return Effect(self.revision, Tripped(fault))
        return Effect(self.revision, CLEAR)

    def available(self, now: int) -> bool:
        """Whether no backoff holds. That one has expired is not recovery: only a success is."""
        return self.backoff_until is None or now > self.backoff_until

    def tripped(self, cfg: Config) -> bool:
        """Whether the upstream is no longer trusted."""
        return self.consecutive_failures >= cfg.failure_threshold

    def success_rate(self) -> float:
        """Successes among the outcomes in the window; 1.0 before the first."""
        return self.window.bit_count() / self.fill if self.fill else 1.0

    def strip(self) -> str:
        """The outcomes in the window, newest first: ``1`` for a success, ``0`` for a fault."""
        return f"{self.window:0{self.fill}b}"[::-1] if self.fill else ""

    def last_error(self) -> str:
        """The text of the last fault; "" before the first."""
        return "" if self.last_fault is None else str(self.last_fault)
