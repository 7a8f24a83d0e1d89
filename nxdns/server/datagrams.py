"""The datagrams of one listener: each is answered, or dropped and counted. None waits here."""

import errno
import logging
from collections.abc import Callable, Container
from typing import Any, Final

import gevent
from gevent import socket

from nxdns.dns.edns import MAX_DATAGRAM
from nxdns.logs.rarely import Rarely
from nxdns.server.handler import Answerer, Transport
from nxdns.server.workers import Workers

_log: Final = logging.getLogger(__name__)

# As many as one upstream carries at once: what is beyond it would only wait for a slot, with a
# client that may have given up by then. A parked worker costs 8 KiB, so all of them 2 MiB.
UDP_IN_FLIGHT: Final = 256

# As often: what a receive buffer of 1 MiB can hold, which the kernel doubles, at 768 bytes each.
_FULL_BUFFER: Final = 11

IP_PKTINFO: Final = 8  # linux/in.h; Python 3.11 does not name it
_ANCILLARY_SPACE: Final = 128  # one in_pktinfo (12 bytes) or in6_pktinfo (20), with their heads
_FIRST_LINK_LOCAL: Final = 0xFE80  # RFC 4291 §2.5.6: fe80::/10
_LINK_LOCAL_BITS: Final = 0xFFC0

_UDP: Final = Transport.UDP  # an enumeration's member is looked up each time

_Ancillary = list[tuple[int, int, bytes]]
_Job = tuple[bytes, Any, bytes | None]


class UdpStats:
    """What became of the datagrams of one listener."""

    __slots__ = (
        "dropped_duplicate",
        "dropped_handler",
        "dropped_no_slot",
        "dropped_not_allowed",
        "dropped_oversize",
        "receive_errors",
        "received",
        "send_errors",
    )

    def __init__(self) -> None:
        #: Every datagram read, dropped or not.
        self.received = 0
        #: Of clients that may not ask.
        self.dropped_not_allowed = 0
        self.dropped_oversize = 0
        #: Sent again while the first was being answered: that answer serves both.
        self.dropped_duplicate = 0
        self.dropped_no_slot = 0
        #: Drops of the handler, which has counted them by their reason.
        self.dropped_handler = 0
        self.receive_errors = 0
        self.send_errors = 0


class Datagrams:
    """Reads a bound socket, and answers from it."""

    __slots__ = (
        "_alone",
        "_answering",
        "_fatal",
        "_handler",
        "_loop",
        "_name",
        "_permits",
        "_rarely",
        "_receive",
        "_receive_from",
        "_reply_source",
        "_send",
        "_send_from",
        "_turn",
        "stats",
        "workers",
    )

    def __init__(
        self,
        sock: Any,
        handler: Answerer,
        name: str,
        *,
        max_in_flight: int,
        permits: Callable[[str], bool],
        reply_source: bool,
        fatal: Container[int | None],
    ) -> None:
        """``sock`` is the raw socket, ``name`` what the log calls it.

        A host with several addresses must answer from the one that was asked, or its clients
        throw the answer away (RFC 2181 §4.1): with ``reply_source`` it is looked up. Errors of
        reading whose number is ``fatal`` are raised, others counted.
        """
        self.stats = UdpStats()
        self.workers = Workers(max_in_flight, self._handle)
        #: What is being answered: the datagram, who sent it, and to which of our addresses.
        self._answering: set[_Job] = set()
        self._handler = handler
        self._loop = gevent.get_hub().loop
        #: The turn of the loop in which was last read, and whether datagrams come one by one.
        self._turn = 0
        self._alone = False
        self._name = name
        self._permits = permits
        self._rarely = Rarely(_log)
        self._reply_source = reply_source
        self._fatal = fatal
        self._receive = sock.recvfrom
        self._receive_from = sock.recvmsg
        self._send = sock.sendto
        self._send_from = sock.sendmsg

    def read(self) -> None:
        """Hand datagrams that have arrived to workers. Runs in the event loop, which calls it
        again as long as there are more."""
        # To hear that there is no more costs a tenth of a query: Python makes an exception of it.
        # Whoever comes alone need not pay for that; if others do come, it is in the next turn.
        turn: int = self._loop.iteration
        if self._alone and turn - self._turn > 1:
            self._read_some(1)
        else:
            self._alone = self._read_some(UDP_IN_FLIGHT) <= 1
        self._turn = turn

    def read_all(self) -> None:
        """The same, of all that there are, before this returns."""
        for _ in range(_FULL_BUFFER):
            if self._read_some(UDP_IN_FLIGHT) < UDP_IN_FLIGHT:
                return

    def _read_some(self, most: int) -> int:
        """How many datagrams were there, of at most so many."""
        stats = self.stats
        reply_source = self._reply_source
        permits = self._permits
        answering = self._answering
        workers = self.workers
        for count in range(most):
            source: bytes | None = None
            ancillary: _Ancillary | None = None
            try:
                if reply_source:
                    data, ancillary, flags, client = self._receive_from(
                        MAX_DATAGRAM, _ANCILLARY_SPACE
                    )
                    oversize = bool(flags & socket.MSG_TRUNC)
                    # Whom a wildcard was asked as belongs to it: only from there is the reply
                    # taken.
                    source = ancillary[0][2] if ancillary else None
                else:
                    # One byte more than may be says the same as the kernel's flag, for less.
                    data, client = self._receive(MAX_DATAGRAM + 1)
                    oversize = len(data) > MAX_DATAGRAM
            except BlockingIOError:
                return count
            except OSError as exc:
                if exc.errno in self._fatal:
                    raise
                stats.receive_errors += 1
                self._complain("receive", exc)
                return count
            stats.received += 1
            if not permits(client[0]):
                self._refuse()
                continue
            if oversize:
                stats.dropped_oversize += 1
                continue
            job: _Job = (data, client, source)
            if job in answering:
                stats.dropped_duplicate += 1
                continue
            answering.add(job)
            if not workers.submit(job, ancillary):
                answering.discard(job)
                self._drop()
        return most

    def _refuse(self) -> None:
        self.stats.dropped_not_allowed += 1
        self._rarely.warning(
            "not allowed",
            "udp %s: queries are dropped: their client is not in [server] allow",
            self._name,
        )

    def _drop(self) -> None:
        self.stats.dropped_no_slot += 1
        self._rarely.warning(
            "no slot",
            "udp %s: queries are dropped: %d are in flight",
            self._name,
            self.workers.busy,
        )

    def _handle(self, job: _Job, ancillary: _Ancillary | None) -> None:
        """Answer one datagram. Runs in a worker."""
        data, client, _ = job
        try:
            reply = self._handler.handle(_UDP, data)
            if reply is None:
                self.stats.dropped_handler += 1
                return
            try:
                # The raw socket: a full send buffer is a lost reply, not a reason to wait.
                if ancillary is None:
                    self._send(reply, client)
                else:
                    self._send_from([reply], _source_of(ancillary), 0, client)
            except OSError as exc:
                self.stats.send_errors += 1
                self._complain("send", exc)
        finally:
            self._answering.discard(job)

    def _complain(self, what: str, exc: OSError) -> None:
        name = errno.errorcode.get(exc.errno or 0, "unknown")
        self._rarely.warning(f"{what} {name}", "udp %s: %s failed: %s", self._name, what, exc)

    def drain(self, timeout_seconds: float) -> None:
        """Let replies in flight leave within ``timeout_seconds``, and take no more."""
        self.workers.drain(timeout_seconds)
        # What is still here was killed before it began, so that the handler never saw it.
        self._handler.stats.cancelled += len(self._answering)
        self._answering.clear()
        self._rarely.close()


def _source_of(ancillary: _Ancillary) -> _Ancillary:
    """Ancillary data that sends a reply from the address its query was sent to.

    The interface is left to the routing table, but for link-local addresses, which mean nothing
    without it.
    """
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO:
            # struct in_pktinfo: interface index, the local address, the address in the header
            return [(level, kind, bytes(4) + data[4:8] + bytes(4))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
            # struct in6_pktinfo: address, interface index
            prefix = int.from_bytes(data[:2], "big") & _LINK_LOCAL_BITS
            interface = data[16:20] if prefix == _FIRST_LINK_LOCAL else bytes(4)
            return [(level, kind, data[:16] + interface)]
    return []
