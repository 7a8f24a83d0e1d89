"""The TCP listener (RFC 7766): a bounded number of connections, every wait with a deadline."""

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent import Greenlet, socket
from gevent.pool import Group
from gevent.server import StreamServer

from nxdns.logs.rarely import Rarely
from nxdns.platform.address import ListenAddress
from nxdns.platform.sockets import socket_address
from nxdns.server import stopping
from nxdns.server.allow import anybody
from nxdns.server.handler import Answerer, Transport
from nxdns.server.tcp_connection import PIPELINED, Connection
from nxdns.server.tcp_places import Places
from nxdns.server.tcp_reader import Expired, IdleExpired
from nxdns.server.workers import Workers

_log = logging.getLogger(__name__)

# TCP is for answers that do not fit a datagram, so few connections are open at once; 64 greenlets
# and their buffers are what a small machine can always spare.
TCP_CONNECTIONS = 64
# RFC 7766 §6.2.3 suggests a few seconds. The same bound holds for the rest of a message that has
# begun, and for a reply to be taken.
IDLE_SECONDS = 10.0

_BACKLOG = 128  # connections that the kernel holds while the loop is busy; they are closed if many
# All connections with all they may ask are 1024 greenlets. That is a rare moment, and no reason to
# keep 8 MiB for the next one.
_PARKED = 64
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
        "evicted",
        "idle_timeouts",
        "messages",
        "rejected_at_capacity",
        "rejected_not_allowed",
        "replies_lost",
    )

    def __init__(self) -> None:
        #: Without the rejected ones.
        self.accepted = 0
        #: Whole messages, each handed to the handler.
        self.messages = 0
        self.rejected_at_capacity = 0
        #: Closed, with nothing asked on them, for a client that had fewer.
        self.evicted = 0
        #: Of clients that may not ask.
        self.rejected_not_allowed = 0
        self.accept_errors = 0
        self.connection_errors = 0
        self.idle_timeouts = 0
        #: Replies that were ready when the connection was not there any more.
        self.replies_lost = 0
        #: Connections open now.
        self.active = 0


class TcpServer(StreamServer):  # type: ignore[misc]  # gevent ships no types
    """Serves one address.

    gevent's own limit stops accepting when it is full, which leaves clients connected to nobody.
    This one accepts, and closes at once and counts: the connection, or an idle one of a client
    that holds more.
    """

    def __init__(
        self,
        address: ListenAddress,
        handler: Answerer,
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
        self._places = Places(max_connections)
        self._connections = Group()
        # A connection holds its place until all it has asked is answered: there is always one free.
        self._workers = Workers(max_connections * PIPELINED, self._answer, keep=_PARKED)
        self._stopping = False
        super().__init__(_listen(address))

    @property
    def bound(self) -> ListenAddress:
        """The address as the kernel has it, with the port that it chose for 0."""
        return self._configured.with_port(self.address[1])

    @property
    def capacity(self) -> int:
        """Connections that can be open at once."""
        return self._places.size

    @property
    def in_flight(self) -> int:
        """Queries being answered."""
        return self._workers.busy

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
        if self._stopping or not self._has_room_for(client[0]):
            self.stats.rejected_at_capacity += 1
            sock.close()
            if not self._stopping:
                self._rarely.warning(
                    "capacity",
                    "tcp %s: connections are closed: all places are taken",
                    self.bound,
                )
            return
        connection = Connection(sock, client[0], self._idle_seconds)
        self._places.take(connection)
        self.stats.accepted += 1
        self.stats.active += 1
        greenlet = Greenlet(self.handle, connection)
        # Not a finally of its own: one that is killed before its first step has none.
        greenlet.rawlink(partial(self._forget, connection))
        self._connections.start(greenlet)

    def _refuse(self, sock: Any) -> None:
        self.stats.rejected_not_allowed += 1
        sock.close()
        self._rarely.warning(
            "not allowed",
            "tcp %s: connections are closed: their client is not in [server] allow",
            self.bound,
        )

    def _has_room_for(self, client: str) -> bool:
        if not self._places.full:
            return True
        evicted = self._places.to_give_way(client)
        if evicted is None:
            return False
        self.stats.evicted += 1
        evicted.end()
        self._vacate(evicted)
        self._rarely.warning(
            "evicted",
            "tcp %s: idle connections are closed for other clients: all places are taken",
            self.bound,
        )
        return True

    def _forget(self, connection: Connection, _greenlet: Greenlet) -> None:
        self._vacate(connection)
        connection.close()

    def _vacate(self, connection: Connection) -> None:
        if self._places.leave(connection):
            self.stats.active -= 1

    def handle(self, connection: Connection) -> None:
        """Serve one connection to its end."""
        idle = self._read_all(connection)
        connection.wait_until_quiet()
        if connection.faulty:
            self.stats.connection_errors += 1
        elif idle:
            self.stats.idle_timeouts += 1

    def _read_all(self, connection: Connection) -> bool:
        """Hand over one message after another until there are no more; True when it fell idle.

        Nobody else is starved by a client that is always quick: no more than PIPELINED messages can
        be taken before those are answered, for which the event loop has to run.
        """
        try:
            connection.begin()
            while (query := connection.next_message()) is not None:
                self.loop.run_callback(self._submit, connection, query)
        except IdleExpired:
            return True
        except OSError:
            connection.fail()
        except (ValueError, EOFError, Expired):
            # ValueError: a length of zero. What was asked before is answered still.
            connection.faulty = True
        return False

    def _submit(self, connection: Connection, query: bytes) -> None:
        if not self._workers.submit(connection, query):  # everything ends
            connection.end()
            connection.answered()

    def _answer(self, connection: Connection, query: bytes) -> None:
        """Answer one message. Runs in a worker."""
        self.stats.messages += 1
        try:
            reply = None
            try:
                reply = self._handler.handle(Transport.TCP, query)
            finally:
                if reply is None:  # a drop, or there never will be one
                    connection.end()
            if reply is not None:
                self._send(connection, reply)
        finally:
            connection.answered()

    def _send(self, connection: Connection, reply: bytes) -> None:
        sent = False
        try:
            sent = connection.send(reply)
        finally:
            if not sent:
                self.stats.replies_lost += 1

    def leave_port(self) -> None:
        """Take the connections that have come, and close the port. Never waits.

        Connections go on; ``stop`` ends that.
        """
        for _ in range(_BACKLOG):
            connection = self.do_read()
            if connection is None:
                break
            self.do_handle(*connection)
        self.close()

    def stop(self, timeout: float | None = None) -> None:
        """Close idle connections, let the others answer within ``timeout`` seconds, then close.

        Connections that arrive meanwhile are closed at once, and counted as rejected.
        """
        self._stopping = True
        for connection in self._places:
            connection.finish()
        stopping.end(self._connections, self.stop_timeout if timeout is None else timeout)
        self._workers.drain(0)
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
