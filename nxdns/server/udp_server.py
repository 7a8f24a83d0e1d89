"""The UDP listener: it answers, or drops and counts. It never queues and never stops reading."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import gevent
from gevent import socket
from gevent.server import DatagramServer

from nxdns.platform.address import ListenAddress
from nxdns.platform.sockets import socket_address
from nxdns.server.allow import anybody
from nxdns.server.datagrams import IP_PKTINFO, UDP_IN_FLIGHT, Datagrams, UdpStats
from nxdns.server.handler import Answerer

# What the kernel keeps for us while we are busy: a small datagram costs it 768 bytes, so its usual
# 208 KiB hold no more than 270. It grants less than this where net.core.rmem_max says so.
RECEIVE_BUFFER: Final = 1 << 20


class UdpServer(DatagramServer):  # type: ignore[misc]  # gevent ships no types
    """Serves one address.

    gevent's own limit, ``spawn=Pool(n)``, stops reading when it is full, which moves the queue
    into the kernel where no counter sees it; and its stop() closes the socket first. This one
    keeps reading and drops, and lets replies in flight leave.
    """

    def __init__(
        self,
        address: ListenAddress,
        handler: Answerer,
        max_in_flight: int = UDP_IN_FLIGHT,
        permits: Callable[[str], bool] = anybody,
        *,
        beside_left: bool = False,
    ) -> None:
        """Bind ``address``, also beside a server that has left its port. Raises OSError.

        ``permits`` says whether a client's address may ask.
        """
        self._configured = address
        self._reply_source = address.is_wildcard
        sock = _bind(address, self._reply_source, beside_left)
        self._datagrams = Datagrams(
            sock._sock,
            handler,
            str(address.with_port(sock.getsockname()[1])),
            max_in_flight=max_in_flight,
            permits=permits,
            reply_source=self._reply_source,
            fatal=self.fatal_errors,
        )
        super().__init__(sock)

    @property
    def stats(self) -> UdpStats:
        """What became of its datagrams."""
        return self._datagrams.stats

    @property
    def bound(self) -> ListenAddress:
        """The address as the kernel has it, with the port that it chose for 0."""
        return self._configured.with_port(self.address[1])

    @property
    def in_flight(self) -> int:
        """Datagrams being answered."""
        return self._datagrams.workers.busy

    @property
    def capacity(self) -> int:
        """Datagrams that can be answered at once."""
        return self._datagrams.workers.size

    @property
    def inode(self) -> int:
        """Of the socket, as /proc/net/udp names it."""
        return os.fstat(self._socket.fileno()).st_ino

    def do_read(self) -> None:
        """Hand datagrams that have arrived to workers. Runs in the event loop."""
        self._datagrams.read()

    def handle(self, *_arguments: object) -> None:
        """gevent calls this with what do_read gives, which is nothing, and does not do without."""

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
            self._datagrams.read_all()

    def stop(self, timeout: float | None = None) -> None:
        """Read no more, let replies in flight leave within ``timeout`` seconds, then close."""
        self.stop_accepting()
        self._datagrams.drain(self.stop_timeout if timeout is None else timeout)
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
            sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
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
