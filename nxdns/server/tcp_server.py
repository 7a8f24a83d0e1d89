"""The TCP listener (RFC 7766): a bounded number of connections, every wait with a deadline."""

import errno
import logging
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket
from gevent.pool import Pool
from gevent.server import StreamServer

from nxdns.dns.framing import frame
from nxdns.logs.rarely import Rarely
from nxdns.platform.address import ListenAddress
from nxdns.platform.sockets import socket_address
from nxdns.server import stopping
from nxdns.server.allow import anybody
from nxdns.server.handler import Handler, Transport
from nxdns.server.tcp_reader import Expired, IdleExpired, MessageReader, within

_log = logging.getLogger(__name__)

# TCP is for answers that do not fit a datagram, so few connections are open at once; 64 greenlets
# and their buffers are what a small machine can always spare.
TCP_CONNECTIONS = 64
# RFC 7766 §6.2.3 suggests a few seconds. The same bound holds for the rest of a message that has
# begun, and for a reply to be taken.
IDLE_SECONDS = 10.0

_BACKLOG = 128  # connections that the kernel holds while the loop is busy; they are closed if many
# What accept reports when there is nothing to accept with; to try again at once would spin.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_PAUSE_SECONDS = 0.1


class TcpStats:
    """What became of the connections of one listener."""

    __slots__ = (
        "accept_errors",
        "accepted",
        "active",
        "connection_errors",
        "idle_timeouts",
        "messages",
        "rejected_at_capacity",
        "rejected_not_allowed",
    )

    def __init__(self) -> None:
        #: Without the rejected ones.
        self.accepted = 0
        #: Whole messages, each handed to the handler.
        self.messages = 0
        self.rejected_at_capacity = 0
        #: Of clients that may not ask.
        self.rejected_not_allowed = 0
        self.accept_errors = 0
        self.connection_errors = 0
        self.idle_timeouts = 0
        #: Connections open now.
        self.active = 0


class TcpServer(StreamServer):  # type: ignore[misc]  # gevent ships no types
    """Serves one address.

    gevent's own limit stops accepting when it is full, which leaves clients connected to nobody.
    This one accepts, closes at once, and counts.
    """

    def __init__(
        self,
        address: ListenAddress,
        handler: Handler,
        max_connections: int = TCP_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
        permits: Callable[[str], bool] = anybody,
    ) -> None:
        """Bind ``address`` and listen, to those whom ``permits`` lets ask. Raises OSError."""
        self.stats = TcpStats()
        self._configured = address
        self._handler = handler
        self._idle_seconds = idle_seconds
        self._permits = permits
        self._rarely = Rarely(_log)
        self.capacity = max_connections
        self._connections = Pool(max_connections)
        self._readers: set[MessageReader] = set()
        #: Queries being answered.
        self.in_flight = 0
        self._stopping = False
        super().__init__(_listen(address))

    @property
    def bound(self) -> ListenAddress:
        """The address as the kernel has it, with the port that it chose for 0."""
        return self._configured.with_port(self.address[1])

    def do_read(self) -> tuple[Any, ...] | None:
        """One connection for do_handle, or None. Runs in the event loop."""
        try:
            connection: tuple[Any, ...] | None = super().do_read()
        except OSError as exc:
            if exc.errno in self.fatal_errors:
                raise
            self.stats.accept_errors += 1
            name = errno.errorcode.get(exc.errno or 0, "unknown")
            self._rarely.warning(f"accept {name}", "tcp %s: accept failed: %s", self.bound, exc)
            if exc.errno in _EXHAUSTED:
                self.stop_accepting()
                gevent.spawn_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)
            return None
        return connection

    def _resume_accepting(self) -> None:
        if self.started and not self.closed:
            self.start_accepting()

    def do_handle(self, sock: Any, client: Any) -> None:
        """Serve the connection, or close it. Runs in the event loop."""
        if not self._permits(client[0]):
            self._refuse(sock)
            return
        if self._stopping or self._connections.full():
            self.stats.rejected_at_capacity += 1
            sock.close()
            if not self._stopping:
                self._rarely.warning(
                    "capacity",
                    "tcp %s: connections are closed: all places are taken",
                    self.bound,
                )
            return
        self.stats.accepted += 1
        self.stats.active += 1
        self._connections.spawn(self.handle, sock)

    def _refuse(self, sock: Any) -> None:
        self.stats.rejected_not_allowed += 1
        sock.close()
        self._rarely.warning(
            "not allowed",
            "tcp %s: connections are closed: their client is not in [server] allow",
            self.bound,
        )

    def handle(self, sock: Any) -> None:
        """Serve one connection to its end."""
        reader = MessageReader(sock, self._idle_seconds)
        self._readers.add(reader)
        try:
            # A reply is one send: nothing is gained by holding its last segment back.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._converse(sock, reader)
        except IdleExpired:
            self.stats.idle_timeouts += 1
        except (OSError, ValueError, EOFError, Expired):
            # ValueError: a length of zero, from a client or of a reply that none should make.
            self.stats.connection_errors += 1
        finally:
            self._readers.discard(reader)
            self.stats.active -= 1
            sock.close()

    def _converse(self, sock: Any, reader: MessageReader) -> None:
        """Answer one message after another until the client, or the handler, has had enough."""
        while (query := reader.next_message()) is not None:
            self.stats.messages += 1
            self.in_flight += 1
            try:
                reply = self._handler.handle(Transport.TCP, query)
                if reply is None:
                    return
                within(self._idle_seconds, sock.sendall, frame(reply))
            finally:
                self.in_flight -= 1
            # A client that is always quick would otherwise never let anybody else have a turn.
            gevent.sleep(0)

    def stop(self, timeout: float | None = None) -> None:
        """Close idle connections, let the others answer within ``timeout`` seconds, then close.

        Connections that arrive meanwhile are closed at once, and counted as rejected.
        """
        self._stopping = True
        for reader in self._readers:
            reader.finish()
        stopping.end(self._connections, self.stop_timeout if timeout is None else timeout)
        self._rarely.close()
        self.close()


def _listen(address: ListenAddress) -> Any:
    family, target = socket_address(address.host, address.port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the connections of the process before it to be forgotten.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Each family binds by itself, so that 0.0.0.0 and [::] can stand beside each other.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(target)
        sock.listen(_BACKLOG)
        sock.setblocking(0)
    except BaseException:
        sock.close()
        raise
    return sock
