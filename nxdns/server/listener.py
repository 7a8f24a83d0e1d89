"""One listen address: UDP and TCP on the same port."""

import errno
from collections.abc import Callable
from dataclasses import dataclass

import gevent

from nxdns.platform.address import ListenAddress
from nxdns.server.allow import anybody
from nxdns.server.handler import Handler
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
        handler: Handler,
        permits: Callable[[str], bool] = anybody,
    ) -> "Listener":
        """Bind both; with port 0, TCP takes the port that UDP got. Raises OSError."""
        for tries_left in reversed(range(_PORT_TRIES)):
            udp = UdpServer(address, handler, permits=permits)
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

    def start(self) -> None:
        """Begin to answer."""
        self.udp.start()
        self.tcp.start()

    def stop(self, timeout_seconds: float) -> None:
        """Take no more queries, answer those in flight within the timeout, then close."""
        gevent.joinall(
            [
                gevent.spawn(self.udp.stop, timeout_seconds),
                gevent.spawn(self.tcp.stop, timeout_seconds),
            ]
        )
