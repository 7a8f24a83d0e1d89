"""One listen address: UDP and TCP on the same port."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

import gevent

from nxdns.platform.address import ListenAddress
from nxdns.server.handler import Answerer
from nxdns.server.tcp_server import TcpServer
from nxdns.server.udp_server import UdpServer

# With port 0 the kernel chooses for UDP, and somebody else may hold that port for TCP.
_PORT_TRIES = 10


@dataclass(frozen=True, slots=True)
class Listener:
    """Both servers of one address."""

    udp: UdpServer
    tcp: TcpServer

    @classmethod
    def bind(
        cls,
        address: ListenAddress,
        handler: Answerer,
        permits: Callable[[str], bool],
        *,
        beside_left: bool = False,
    ) -> "Listener":
        """Bind both; with port 0, TCP takes the port that UDP got. Raises OSError.

        ``permits`` says whether a client's address may ask. ``beside_left``: a listener that has
        left the port may still have it.
        """
        for tries_left in reversed(range(_PORT_TRIES)):
            udp = UdpServer(address, handler, permits=permits, beside_left=beside_left)
            try:
                return cls(udp, TcpServer(udp.bound, handler, permits=permits))
            except OSError as exc:
                udp.close()
                chosen_by_kernel = address.port == 0
                if not (chosen_by_kernel and exc.errno == errno.EADDRINUSE and tries_left):
                    raise
        raise AssertionError("the last try returns or raises")

    @property
    def bound(self) -> ListenAddress:
        """The address with the port in use."""
        return self.udp.bound

    @property
    def inodes(self) -> set[int]:
        """Of the sockets that have the port."""
        servers = (self.udp, self.tcp)
        return {os.fstat(each.socket.fileno()).st_ino for each in servers if not each.closed}

    def start(self) -> None:
        """Begin to answer."""
        self.udp.start()
        self.tcp.start()

    def leave_port(self) -> None:
        """Let another listener have the port from now on. Never waits; ``stop`` ends the rest."""
        self.tcp.leave_port()
        self.udp.leave_port()

    def stop(self, timeout_seconds: float) -> None:
        """Take no more queries, answer those in flight within the timeout, then close."""
        gevent.joinall(
            [
                gevent.spawn(self.udp.stop, timeout_seconds),
                gevent.spawn(self.tcp.stop, timeout_seconds),
            ]
        )
