"""The two interfaces of this package, and what those who use them need to know.

A :class:`Leaf` is what a slot of the pool holds: it returns faults as values, so that they reach
health with their cause. A :class:`Client` is what the pool gives to a handler, and what wraps may
be stacked on: it raises.
"""

from typing import Protocol

from nxdns.upstream.endpoint import Endpoint, Identity, Scheme
from nxdns.upstream.errors import (
    Cause,
    Fault,
    FaultKind,
    Group,
    LocalKind,
    LocalResource,
    PeerFault,
    group,
)
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
    "Recoveries",
    "Scheme",
    "group",
    "validate_response",
]


class ExchangeInfo:
    """How the exchange just done was done. One object a leaf, overwritten by each exchange.

    Times are nanoseconds, 0 for a phase that did not happen. After a redial they are those of the
    last try.
    """

    __slots__ = (
        "dial_ns",
        "first_byte_ns",
        "hint",
        "rest_ns",
        "reused",
        "send_ns",
        "tls_ns",
        "tls_version",
    )

    def __init__(self) -> None:
        self.begin(reused=False, tls_version="")

    def begin(self, *, reused: bool, tls_version: str) -> None:
        """Forget the exchange before."""
        #: Whether a session that had been open before carried it.
        self.reused = reused
        #: Such as ``TLSv1.3``; "" while no handshake has been completed.
        self.tls_version = tls_version
        #: What the owner of this upstream might do about its fault, or "".
        self.hint = ""
        self.dial_ns = self.tls_ns = self.send_ns = self.first_byte_ns = self.rest_ns = 0


class Recoveries:
    """Stale sessions that one redial made good. Outlives the leaves that count in it."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Leaf(Protocol):
    """One way to ask one upstream. Used by one greenlet at a time."""

    @property
    def last(self) -> ExchangeInfo:
        """Of the exchange just done."""

    def exchange(self, query: bytes) -> bytes | Fault:
        """Send one query; its validated response, or the fault of the peer.

        Raises LocalResource. Lets GreenletExit and gevent.Timeout through, having first closed
        what they left half done.
        """

    def close(self) -> None:
        """Drop what is open. Safe at any time, twice, and on a leaf never used. Never waits."""


class Client(Protocol):
    """Something that answers queries."""

    def exchange(self, query: bytes) -> bytes:
        """The response to ``query``, validated against it.

        Raises PeerFault or LocalResource, and lets GreenletExit through.
        """
