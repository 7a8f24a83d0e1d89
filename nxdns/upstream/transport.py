"""The two interfaces of this package, and what those who use them need to know.

A :class:`Leaf` is what a slot of the pool holds: it returns faults as values, so that they reach
health with their cause. A :class:`Client` is what the pool gives to a handler, and what wraps may
be stacked on: it raises.
"""

from typing import Protocol

from nxdns.dns.packet import Packet
from nxdns.upstream.endpoint import Endpoint, Identity, Scheme
from nxdns.upstream.errors import (
    Cause,
    Fault,
    FaultKind,
    Group,
    LocalKind,
    LocalResource,
    PeerFault,
    Tried,
    group,
)
from nxdns.upstream.exchange import ExchangeInfo, Phase
from nxdns.upstream.validate import validate_response

__all__ = [
    "Cause",
    "Client",
    "Endpoint",
    "ExchangeInfo",
    "Fault",
    "FaultKind",
    "Group",
    "Identity",
    "Leaf",
    "LocalKind",
    "LocalResource",
    "PeerFault",
    "Phase",
    "Scheme",
    "SessionStats",
    "Tried",
    "group",
    "validate_response",
]


class SessionStats:
    """The sessions of one upstream. Outlives the leaves that count in it."""

    __slots__ = ("dials", "idle_seconds", "late_answers", "open", "recoveries")

    def __init__(self) -> None:
        #: Sessions that were begun, whether or not they opened.
        self.dials = 0
        #: Sessions that are open now.
        self.open = 0
        #: Exchanges that a stale session had failed and a fresh one made good.
        self.recoveries = 0
        #: Answers to exchanges that had been given up, or that had their answer already.
        self.late_answers = 0
        #: How long a session may stay idle, as the server has stated last (RFC 7828); None: never.
        self.idle_seconds: float | None = None


class Leaf(Protocol):
    """One way to ask one upstream. Used by at most as many greenlets at once as it is deep."""

    @property
    def last(self) -> ExchangeInfo:
        """Of the exchange that ended last: that of the greenlet which has just come back."""

    @property
    def is_open(self) -> bool:
        """Whether a query sent now could do without a dial, as far as can be told."""

    @property
    def is_stuck(self) -> bool:
        """Whether somebody has given up on it, and nobody else has been answered meanwhile for an
        attempt budget."""

    def exchange(self, query: bytes) -> Packet | Fault:
        """Send one query; its validated response, walked, or the fault of the peer.

        Raises LocalResource. Lets GreenletExit and gevent.Timeout through, having first closed
        what they left half done.
        """

    def close(self) -> None:
        """Drop what is open. Safe at any time, twice, and on a leaf never used. Never waits."""


class Client(Protocol):
    """Something that answers queries."""

    def exchange(self, query: bytes) -> Packet:
        """The response to ``query``, validated against it, and walked.

        Raises PeerFault or LocalResource, and lets GreenletExit through.
        """
