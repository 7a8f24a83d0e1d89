"""What came of an exchange, as bytes: tests compare what is on the wire."""

from typing import Protocol

from nxdns.dns.packet import Packet
from nxdns.upstream.transport import Fault


class _Asked(Protocol):
    """A leaf, or a client."""

    def exchange(self, query: bytes) -> Packet | Fault:
        """See :mod:`nxdns.upstream.transport`."""


def exchanged(by: _Asked, query: bytes) -> bytes | Fault:
    """The response that a leaf or a client gives to ``query``, or the fault."""
    return wire_of(by.exchange(query))


def wire_of(outcome: Packet | Fault) -> bytes | Fault:
    """The same of what it has given already."""
    return outcome.wire if isinstance(outcome, Packet) else outcome
