"""The TCP listener (RFC 7766): a bounded number of connections, every wait with a deadline."""

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Any

import gevent
from gevent import Timeout, socket
from gevent.pool import Pool
from gevent.server import StreamServer

from nxdns.dns.framing import Unframer, frame
from nxdns.platform.address import ListenAddress
from nxdns.platform.log_limit import LogLimit
from nxdns.platform.sockets import socket_address
from nxdns.server.handler import Handler, Transport

_log = logging.getLogger(__name__)

# TCP is for answers that do not fit a datagram, so few connections are open at once; 64 greenlets
# and their buffers are what a small machine can always spare.
TCP_CONNECTIONS = 64
# RFC 7766 §6.2.3 suggests a few seconds. The same bound holds for the rest of a message that has
# begun, and for a reply to be taken.
IDLE_SECONDS = 10.0

_BACKLOG = 128  # connections that the kernel holds while the loop is busy; they are closed if many
_READ_BYTES = 16384  # a query is short; a longer message comes in several reads
_NS_PER_SECOND = 1_000_000_000
# What accept reports when there is nothing to accept with; to try again at once would spin.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_PAUSE_SECONDS = 0.1
_KILL_SECONDS = 1.0  # a greenlet that is killed ends at once; one that cannot must not hang a stop


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
    )

    def __init__(self) -> None:
        #: Without the rejected ones.
        self.accepted = 0
        #: Whole messages, each handed to the handler.
        self.messages = 0
        self.rejected_at_capacity = 0
        self.accept_errors = 0
        self.connection_errors = 0
        self.idle_timeouts = 0
        #: Connections open now.
        self.active = 0


class _Expired(Exception):
    """A deadline of ours has passed."""


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
    ) -> None:
        """Bind ``address`` and listen. Raises OSError."""
        self.stats = TcpStats()
        self._configured = address
        self._handler = handler
        self._idle_seconds = idle_seconds
        self._log_limit = LogLimit()
        self._connections = Pool(max_connections)
        #: Sockets of connections between two messages.
        self._idle: set[Any] = set()
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
            if self._log_limit.allows(f"accept {name}", monotonic_ns()):
                _log.warning("tcp %s: accept failed: %s", self.bound, exc)
            if exc.errno in _EXHAUSTED:
                self.stop_accepting()
                gevent.spawn_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)
            return None
        return connection

    def _resume_accepting(self) -> None:
        if self.started and not self.closed:
            self.start_accepting()

    def do_handle(self, sock: Any, _client: Any) -> None:
        """Serve the connection, or close it. Runs in the event loop."""
        if self._stopping or self._connections.full():
            self.stats.rejected_at_capacity += 1
            sock.close()
            return
        self.stats.accepted += 1
        self.stats.active += 1
        self._connections.spawn(self.handle, sock)

    def handle(self, sock: Any) -> None:
        """Serve one connection to its end."""
        try:
            # A reply is one send: nothing is gained by holding its last segment back.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._converse(sock)
        except (OSError, ValueError, EOFError, _Expired):
            # ValueError: a length of zero, from a client or of a reply that none should make.
            self.stats.connection_errors += 1
        finally:
            self.stats.active -= 1
            sock.close()

    def _converse(self, sock: Any) -> None:
        """Answer one message after another until the client, or the handler, has had enough."""
        unframer = Unframer()
        while (query := self._next_message(sock, unframer)) is not None:
            self.stats.messages += 1
            reply = self._handler.handle(Transport.TCP, query)
            if reply is None:
                return
            _within(self._idle_seconds, sock.sendall, frame(reply))
            # A client that is always quick would otherwise never let anybody else have a turn.
            gevent.sleep(0)

    def _next_message(self, sock: Any, unframer: Unframer) -> bytes | None:
        """The next whole message, or None when the connection ended between two.

        Raises EOFError or _Expired when it ended within one, EmptyFrame, OSError.
        """
        message = unframer.next_message()
        if message is not None:
            return message
        if not unframer.received:
            data = self._first_bytes(sock)
            if not data:
                return None
            unframer.feed(data)
        deadline = monotonic_ns() + int(self._idle_seconds * _NS_PER_SECOND)
        while (message := unframer.next_message()) is None:
            left_seconds = (deadline - monotonic_ns()) / _NS_PER_SECOND
            data = _within(left_seconds, sock.recv, _READ_BYTES)
            if not data:
                raise EOFError
            unframer.feed(data)
        return message

    def _first_bytes(self, sock: Any) -> bytes:
        """What begins the next message; b"" when the client, the idle timeout or a stop ends it."""
        if self._stopping:
            return b""
        self._idle.add(sock)
        try:
            data: bytes = _within(self._idle_seconds, sock.recv, _READ_BYTES)
        except _Expired:
            self.stats.idle_timeouts += 1
            return b""
        finally:
            self._idle.discard(sock)
        return data

    def stop(self, timeout: float | None = None) -> None:
        """Close idle connections, let the others answer within ``timeout`` seconds, then close.

        Connections that arrive meanwhile are closed at once, and counted as rejected.
        """
        self._stopping = True
        for sock in self._idle:
            # Neither a kill nor gevent's own shutdown(), which throws into the reader: what the
            # client has sent already is so read, and answered, before the end.
            with suppress(OSError):  # the client may have reset it
                sock._sock.shutdown(socket.SHUT_RD)
        self._connections.join(self.stop_timeout if timeout is None else timeout)
        self._connections.kill(timeout=_KILL_SECONDS)
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


def _within(seconds: float, call: Callable[..., Any], *args: Any) -> Any:
    """``call(*args)``, or _Expired when it takes longer. Sends count as a whole, not by piece."""
    timer = Timeout.start_new(max(seconds, 0.0))
    try:
        return call(*args)
    except Timeout as expired:
        if expired is not timer:
            raise
        raise _Expired from None
    finally:
        timer.close()
