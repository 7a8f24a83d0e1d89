"""What is known of one upstream, for as long as it is the same upstream. Pure.

A reload replaces its sessions and its slots; this moves on to what takes their place, so that no
counter falls and no backoff is forgotten.
"""

from collections import deque
from typing import Final

from nxdns.dns.packet import Packet
from nxdns.upstream import health
from nxdns.upstream.errors import Fault
from nxdns.upstream.exchange import DIAL, FIRST_BYTE, QUEUE, REST, SEND, TLS, ExchangeInfo, Phase
from nxdns.upstream.histogram import Histogram
from nxdns.upstream.transport import SessionStats

# The exchanges before a failure: a burst or two, and what a page can show. 64 KiB an upstream.
FLIGHT_RECORDS: Final = 256

_RCODE_MASK: Final = 0x0F
_RCODES: Final = 16  # what the header's four bits can say (RFC 1035 §4.1.1)

Flight = tuple[int, int, int, bool, int, int, int, int, int, int, int, Fault | None, int]
"""One exchange in the flight record: when it ended, slot, when its session was opened, whether
that was reused, the six phases in their order, the phase that it ended in, fault, RCODE. Times are
monotonic nanoseconds. Neither a name nor a client's address."""


class QueueStats:
    """Queries that found no slot free."""

    __slots__ = ("waited", "waited_ns")

    def __init__(self) -> None:
        #: Approximate: whether a query must wait is sampled at its admission, before it waits.
        self.waited = 0
        self.waited_ns = 0


class History:
    """Health, counters, and the record of the last exchanges."""

    __slots__ = (
        "applied_revision",
        "durations",
        "flight",
        "health",
        "phases_ns",
        "queue",
        "rcodes",
        "sessions",
    )

    def __init__(self) -> None:
        self.health = health.State()
        #: Of the last effect that was projected onto the store.
        self.applied_revision = 0
        self.durations = Histogram()
        self.sessions = SessionStats()
        self.queue = QueueStats()
        self.phases_ns = [0] * len(Phase)
        #: Answers by RCODE: an upstream that SERVFAILs everything stays healthy by rule.
        self.rcodes = [0] * _RCODES
        self.flight: deque[Flight] = deque(maxlen=FLIGHT_RECORDS)

    def book_wait(self, waited_ns: int) -> None:
        """Book the time of one that was not let through to a session."""
        self.phases_ns[QUEUE] += waited_ns

    def book(self, info: ExchangeInfo, *, queued_ns: int, took_ns: int) -> None:
        """Book the time of an exchange that proves nothing of the peer, and nothing else of it.

        What no phase accounts for is booked to the one that it ended in.
        """
        phases = self.phases_ns
        spent = (queued_ns, info.dial_ns, info.tls_ns, info.send_ns, info.first_byte_ns)
        for phase, nanoseconds in enumerate((*spent, info.rest_ns)):
            phases[phase] += nanoseconds
        phases[info.phase] += queued_ns + took_ns - sum(spent) - info.rest_ns

    def record(
        self,
        outcome: Packet | Fault,
        info: ExchangeInfo,
        *,
        slot: int,
        queued_ns: int,
        took_ns: int,
        ended: int,
    ) -> None:
        """Book one exchange that was answered, or failed by the peer's fault.

        What of ``took_ns`` no phase accounts for is booked to the one that it ended in, or, of an
        answer, to the wait for it: a stale session was waited on, too.
        """
        first_byte_ns, rest_ns = info.first_byte_ns, info.rest_ns
        dial_ns, tls_ns, send_ns = info.dial_ns, info.tls_ns, info.send_ns
        lost_ns = took_ns - dial_ns - tls_ns - send_ns - first_byte_ns - rest_ns
        phases = self.phases_ns
        fault: Fault | None = None
        rcode = 0
        if isinstance(outcome, Fault):
            fault = outcome
            phases[info.phase] += lost_ns
            phases[FIRST_BYTE] += first_byte_ns
        else:
            rcode = outcome.flags & _RCODE_MASK
            self.rcodes[rcode] += 1
            phases[FIRST_BYTE] += first_byte_ns + lost_ns
        # Of most exchanges these are 0, and to ask costs less than to add.
        if queued_ns:
            phases[QUEUE] += queued_ns
        if tls_ns or dial_ns:
            phases[DIAL] += dial_ns
            phases[TLS] += tls_ns
        if rest_ns:
            phases[REST] += rest_ns
        phases[SEND] += send_ns
        self.durations.observe(took_ns)
        self.flight.append(
            (
                ended,
                slot,
                info.opened_at,
                info.reused,
                queued_ns,
                dial_ns,
                tls_ns,
                send_ns,
                first_byte_ns,
                rest_ns,
                info.phase,
                fault,
                rcode,
            )
        )
