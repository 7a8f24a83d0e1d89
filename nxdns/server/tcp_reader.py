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

    def __init__(self, sock: Any, idle_seconds: float) -> None:
        self._sock = sock
        self._idle_seconds = idle_seconds
        self._unframer = Unframer()
        self._fed_at = 0
        #: When the first byte of the message that is not whole yet was read.
        self._begun_at = 0
        self._idle = False
        self._finishing = False

    def next_message(self) -> bytes | None:
        """The next whole message, or None when the stream ended between two.

        Raises IdleExpired, Expired, EmptyFrame, OSError, and EOFError when it ended within one.
        """
        unframer = self._unframer
        while (message := unframer.next_message()) is None:
            if unframer.received:
                left_ns = self._begun_at + int(self._idle_seconds * NS_PER_SECOND) - monotonic_ns()
                data = within(left_ns / NS_PER_SECOND, self._sock.recv, _READ_BYTES)
                if not data:
                    raise EOFError
            else:
                data = self._first_bytes()
                if not data:
                    return None
                self._begun_at = monotonic_ns()
            self._fed_at = monotonic_ns()
            unframer.feed(data)
        # What is left behind it came with its last bytes.
        self._begun_at = self._fed_at
        return message

    def _first_bytes(self) -> bytes:
        if self._finishing:
            return b""
        self._idle = True
        try:
            data: bytes = within(self._idle_seconds, self._sock.recv, _READ_BYTES)
        except Expired:
            raise IdleExpired from None
        finally:
            self._idle = False
        return data

    def finish(self) -> None:
        """Wait for no further message; what the client has sent already is read to its end."""
        self._finishing = True
        if self._idle:
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
