"""One TCP client: read by one greenlet, answered by several, written to by one at a time."""

from time import monotonic_ns
from typing import Any

from gevent import socket
from gevent.lock import Semaphore

from nxdns.dns.framing import frame
from nxdns.server.tcp_reader import Expired, MessageReader, within

# A stub resolver has two or three queries under way, a browser's burst some ten. What is beyond
# this is not read, so that the client's own TCP holds it back; nothing queues here.
PIPELINED = 16


class Connection:
    """Queries in, replies out in the order in which they are ready (RFC 7766 §6.2.1.1).

    One greenlet calls next_message() until it is None, then wait_until_quiet(); for every message
    somebody calls send(), or end(), and then answered().
    """

    def __init__(self, sock: Any, address: str, patience_seconds: float) -> None:
        """``patience_seconds`` bounds how long the client may be idle, may take for a message that
        it has begun, and may leave a reply untaken."""
        #: The client's, without its port.
        self.address = address
        #: It has reset, or been too slow, or sent what it must not.
        self.faulty = False
        self._sock = sock
        self._patience_seconds = patience_seconds
        self._reader = MessageReader(sock, patience_seconds, self.quiet_since)
        self._slots = Semaphore(PIPELINED)
        self._writing = Semaphore(1)
        self._quiet_since = monotonic_ns()
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a query of it is being answered, or an answer not taken yet."""
        return bool(self._slots.counter < PIPELINED)

    @property
    def begun(self) -> bool:
        """Whether it has sent a part of a message."""
        return self._reader.begun

    def quiet_since(self) -> int:
        """When it last was busy, in monotonic nanoseconds."""
        return monotonic_ns() if self.busy else self._quiet_since

    def has_unread(self) -> bool:
        """Whether bytes have arrived that next_message() has not come to read. Never waits."""
        try:
            return bool(self._sock._sock.recv(1, socket.MSG_PEEK))
        except OSError:  # there is nothing, or it has been reset
            return False

    def begin(self) -> None:
        """To be called before all else. Raises OSError."""
        # A reply is one send: nothing is gained by holding its last segment back.
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def next_message(self) -> bytes | None:
        """The next query, once less than PIPELINED are being answered; None when there is none.

        Raises what MessageReader.next_message does.
        """
        self._slots.wait()
        query = self._reader.next_message()
        if query is not None:
            self._slots.acquire(blocking=False)  # nobody else takes one
        return query

    def send(self, reply: bytes) -> bool:
        """Write ``reply`` behind those that were ready before it; False when it is lost.

        One that the client does not take in time, others' turns included, ends the connection.
        """
        try:
            return bool(within(self._patience_seconds, self._send_in_turn, frame(reply)))
        except (OSError, ValueError, Expired):
            # ValueError: of a reply that none should make.
            self.fail()
            return False
        except BaseException:
            self.fail()  # a part of it may be on its way: nothing can follow
            raise

    def _send_in_turn(self, data: bytes) -> bool:
        with self._writing:
            if self._closed:
                return False
            self._sock.sendall(data)
            return True

    def answered(self) -> None:
        """One message is done with, its reply sent or not."""
        self._quiet_since = monotonic_ns()
        self._slots.release()

    def wait_until_quiet(self) -> None:
        """Until every message is done with."""
        for _ in range(PIPELINED):
            self._slots.acquire()

    def finish(self) -> None:
        """Wait for no further message; one that has begun is read to its end."""
        self._reader.finish()

    def end(self) -> None:
        """Read nothing more; what is being answered still is."""
        self._reader.end()

    def fail(self) -> None:
        """Close it: it is of no use any more."""
        self.faulty = True
        self.close()

    def close(self) -> None:
        """Let go of the socket. Never waits; replies that are not sent yet are lost."""
        if not self._closed:
            self._closed = True
            self._reader.end()
            self._sock.close()
