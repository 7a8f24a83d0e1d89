"""Whole messages from one TCP connection, each wait with its deadline (RFC 7766 §6.2.3)."""

from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from gevent import Timeout, socket

from nxdns.dns.framing import Unframer
from nxdns.units import NS_PER_SECOND

_READ_BYTES = 16384  # a query is short; a longer message comes in several reads


class Expired(Exception):
    """A deadline of ours has passed."""


class IdleExpired(Expired):
    """It has passed between two messages."""


class MessageReader:
    """What a client sends, message by message."""

    def __init__(self, sock: Any, idle_seconds: float, quiet_since: Callable[[], int]) -> None:
        """``quiet_since`` tells since when nothing is being answered, in monotonic nanoseconds;
        while something is, it is now: a client that waits for us is not idle."""
        self._sock = sock
        self._patience_ns = int(idle_seconds * NS_PER_SECOND)
        self._quiet_since = quiet_since
        self._unframer = Unframer()
        self._fed_at = 0
        #: When the first byte of the message that is not whole yet was read.
        self._begun_at = 0
        self._idle = False
        self._finishing = False
        self._ended = False

    @property
    def begun(self) -> bool:
        """Whether a part of a message has been read, and not its end."""
        return self._unframer.received > 0

    def next_message(self) -> bytes | None:
        """The next whole message, or None when the stream ended between two, or end() was called.

        Raises IdleExpired, Expired, EmptyFrame, OSError, and EOFError when it ended within one.
        """
        unframer = self._unframer
        while not self._ended:
            message = unframer.next_message()
            if message is not None:
                # What is left behind it came with its last bytes.
                self._begun_at = self._fed_at
                return message
            if unframer.received:
                data = self._within(self._begun_at)
                if not data and not self._ended:
                    raise EOFError
            else:
                data = self._first_bytes()
                if not data:
                    return None
                self._begun_at = monotonic_ns()
            self._fed_at = monotonic_ns()
            unframer.feed(data)
        return None

    def _first_bytes(self) -> bytes:
        self._idle = True
        try:
            while not self._finishing:
                try:
                    return self._within(self._quiet_since())
                except Expired:
                    # It may have asked before, and have its answer only since a moment.
                    if self._quiet_since() + self._patience_ns <= monotonic_ns():
                        raise IdleExpired from None
        finally:
            self._idle = False
        return b""

    def _within(self, begun_at: int) -> bytes:
        left_ns = begun_at + self._patience_ns - monotonic_ns()
        data: bytes = within(left_ns / NS_PER_SECOND, self._sock.recv, _READ_BYTES)
        return data

    def finish(self) -> None:
        """Wait for no further message; one that has begun is read to its end."""
        self._finishing = True
        if self._idle:
            self._wake()

    def end(self) -> None:
        """Give out no further message, whatever has come of it."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        # Neither a kill nor gevent's own shutdown(): both would throw into the reader.
        with suppress(OSError):  # the client may have reset it
            self._sock._sock.shutdown(socket.SHUT_RD)


def within(seconds: float, call: Callable[..., Any], *args: Any) -> Any:
    """``call(*args)``, or Expired when it takes longer. A send counts as a whole."""
    timer = Timeout.start_new(max(seconds, 0.0))
    try:
        return call(*args)
    except Timeout as expired:
        if expired is not timer:
            raise
        raise Expired from None
    finally:
        timer.close()
