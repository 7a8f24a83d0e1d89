"""The UDP listener: it answers, or drops and counts. It never queues and never stops reading."""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import gevent
from gevent import socket
from gevent.server import DatagramServer

from nxdns.dns.edns import MAX_DATAGRAM
from nxdns.logs.rarely import Rarely
from nxdns.platform.address import ListenAddress
from nxdns.platform.sockets import socket_address
from nxdns.server.allow import anybody
from nxdns.server.handler import Handler, Transport
from nxdns.server.workers import Workers

_log: Final = logging.getLogger(__name__)

# As many as one upstream carries at once: what is beyond it would only wait for a slot, with a
# client that may have given up by then. A parked worker costs 8 KiB, so all of them 2 MiB.
UDP_IN_FLIGHT: Final = 256

# What the kernel keeps for us while we are busy: a small datagram costs it 768 bytes, so its usual
# 208 KiB hold no more than 270. It grants less than this where net.core.rmem_max says so.
RECEIVE_BUFFER: Final = 1 << 20

_IP_PKTINFO: Final = 8  # linux/in.h; Python 3.11 does not name it
_ANCILLARY_SPACE: Final = 128  # one in_pktinfo (12 bytes) or in6_pktinfo (20), with their heads
_FIRST_LINK_LOCAL, _LINK_LOCAL_BITS = 0xFE80, 0xFFC0  # RFC 4291 §2.5.6: fe80::/10

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


class UdpServer(DatagramServer):  # type: ignore[misc]  # gevent ships no types
    """Serves one address.

    gevent's own limit, ``spawn=Pool(n)``, stops reading when it is full, which moves the queue
    into the kernel where no counter sees it; and its stop() closes the socket first. This one
    keeps reading and drops, and lets replies in flight leave.
    """

    def __init__(
        self,
        address: ListenAddress,
        handler: Handler,
        max_in_flight: int = UDP_IN_FLIGHT,
        permits: Callable[[str], bool] = anybody,
        *,
        beside_left: bool = False,
    ) -> None:
        """Bind ``address``, also beside a server that has left its port. Raises OSError.

        ``permits`` says whether a client's address may ask.
        """
        self.stats = UdpStats()
        self._configured = address
        self._handler = handler
        self._permits = permits
        self._rarely = Rarely(_log)
        #: What is being answered: the datagram, who sent it, and to which of our addresses.
        self._answering: set[_Job] = set()
        # A host with several addresses must answer from the one that was asked, or its clients
        # throw the answer away (RFC 2181 §4.1).
        self._reply_source = address.is_wildcard
        self._workers = Workers(max_in_flight, self.handle)
        super().__init__(_bind(address, self._reply_source, beside_left))

    @property
    def bound(self) -> ListenAddress:
        """The address as the kernel has it, with the port that it chose for 0."""
        return self._configured.with_port(self.address[1])

    @property
    def in_flight(self) -> int:
        """Datagrams being answered."""
        return self._workers.busy

    @property
    def capacity(self) -> int:
        """Datagrams that can be answered at once."""
        return self._workers.size

    @property
    def inode(self) -> int:
        """Of the socket, as /proc/net/udp names it."""
        return os.fstat(self._socket.fileno()).st_ino

    def do_read(self) -> None:
        """Hand each datagram that has arrived to a worker. Runs in the event loop."""
        stats = self.stats
        sock = self._socket
        reply_source = self._reply_source
        permits = self._permits
        answering = self._answering
        submit = self._workers.submit
        for _ in range(UDP_IN_FLIGHT):
            try:
                if reply_source:
                    data, ancillary, flags, client = sock.recvmsg(MAX_DATAGRAM, _ANCILLARY_SPACE)
                    oversize = flags & socket.MSG_TRUNC
                else:
                    # One byte more than may be says the same as the kernel's flag, for less.
                    data, client = sock.recvfrom(MAX_DATAGRAM + 1)
                    ancillary = None
                    oversize = len(data) > MAX_DATAGRAM
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno in self.fatal_errors:
                    raise
                stats.receive_errors += 1
                self._complain("receive", exc)
                return
            stats.received += 1
            if not permits(client[0]):
                self._refuse()
                continue
            if oversize:
                stats.dropped_oversize += 1
                continue
            # Whom a wildcard was asked as belongs to it: only from there is the reply taken.
            job = (data, client, ancillary[0][2] if ancillary else None)
            if job in answering:
                stats.dropped_duplicate += 1
                continue
            answering.add(job)
            if not submit(job, ancillary):
                answering.discard(job)
                self._drop()

    def _refuse(self) -> None:
        self.stats.dropped_not_allowed += 1
        self._rarely.warning(
            "not allowed",
            "udp %s: queries are dropped: their client is not in [server] allow",
            self.bound,
        )

    def _drop(self) -> None:
        self.stats.dropped_no_slot += 1
        self._rarely.warning(
            "no slot", "udp %s: queries are dropped: %d are in flight", self.bound, self.in_flight
        )

    def handle(self, job: _Job, ancillary: _Ancillary | None) -> None:
        """Answer one datagram. Runs in a worker."""
        try:
            self._answer(job[0], job[1], ancillary)
        finally:
            self._answering.discard(job)

    def _answer(self, data: bytes, client: Any, ancillary: _Ancillary | None) -> None:
        reply = self._handler.handle(Transport.UDP, data)
        if reply is None:
            self.stats.dropped_handler += 1
            return
        try:
            # The raw socket: a full send buffer is a lost reply, not a reason to wait.
            if ancillary is None:
                self._socket.sendto(reply, client)
            else:
                self._socket.sendmsg([reply], _source_of(ancillary), 0, client)
        except OSError as exc:
            self.stats.send_errors += 1
            self._complain("send", exc)

    def _complain(self, what: str, exc: OSError) -> None:
        name = errno.errorcode.get(exc.errno or 0, "unknown")
        self._rarely.warning(f"{what} {name}", "udp %s: %s failed: %s", self.bound, what, exc)

    def leave_port(self) -> None:
        """Let another server bind the port, and have what comes from now on. Never waits.

        What has come is still read, and replies still leave from here; ``stop`` ends that.
        """
        host, *rest = self.address
        if self._reply_source:
            host = "::1" if self._configured.is_ipv6 else "127.0.0.1"
        sock = self.socket._sock
        # Connected to itself, it gets nothing from others. Where it cannot be, its address has
        # gone, and it gets nothing either.
        with suppress(OSError):
            sock.connect((host, *rest))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        gevent.get_hub().loop.run_callback(self._read_rest)

    def _read_rest(self) -> None:
        if self.started and not self.closed:
            self.do_read()

    def stop(self, timeout: float | None = None) -> None:
        """Read no more, let replies in flight leave within ``timeout`` seconds, then close."""
        self.stop_accepting()
        self._workers.drain(self.stop_timeout if timeout is None else timeout)
        # What is still here was killed before it began, so that the handler never saw it.
        self._handler.stats.cancelled += len(self._answering)
        self._answering.clear()
        self._rarely.close()
        self.close()


def _bind(address: ListenAddress, reply_source: bool, beside_left: bool) -> Any:
    family, target = socket_address(address.host, address.port)
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            # Each family binds by itself, so that 0.0.0.0 and [::] can stand beside each other.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if reply_source:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        elif reply_source:
            sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        # No SO_REUSEADDR: with it a second process could bind the same port and take the queries.
        # Beside a server that has left, both need it at the moment of the bind.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, beside_left)
        sock.bind(target)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        sock.close()
        raise
    return sock


def _source_of(ancillary: _Ancillary) -> _Ancillary:
    """Ancillary data that sends a reply from the address its query was sent to.

    The interface is left to the routing table, but for link-local addresses, which mean nothing
    without it.
    """
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
            # struct in_pktinfo: interface index, the local address, the address in the header
            return [(level, kind, bytes(4) + data[4:8] + bytes(4))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
            # struct in6_pktinfo: address, interface index
            prefix = int.from_bytes(data[:2], "big") & _LINK_LOCAL_BITS
            interface = data[16:20] if prefix == _FIRST_LINK_LOCAL else bytes(4)
            return [(level, kind, data[:16] + interface)]
    return []
