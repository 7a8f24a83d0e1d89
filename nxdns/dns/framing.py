"""The two-byte length prefix of DNS over TCP and TLS (RFC 1035 §4.2.2). No I/O.

Used by the TCP listener, the DoT leaf, the loopback upstream and the tests of all three.
"""

from typing import Final

MAX_MESSAGE: Final = 65535  # what the 16-bit prefix can say
PREFIX_LENGTH: Final = 2


class EmptyFrame(ValueError):
    """A zero-length message: never legal, and the stream cannot be trusted behind it."""


def frame(message: bytes) -> bytes:
    """``message`` behind its prefix. Raises ValueError for 0 or more than 65535 bytes."""
    if not 0 < len(message) <= MAX_MESSAGE:
        raise ValueError(f"a message of {len(message)} bytes cannot be framed")
    return len(message).to_bytes(PREFIX_LENGTH, "big") + message


class Unframer:
    """Bytes in, whole messages out; the caller owns the stream."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        # Not bytes: a peer that trickles a large message would make each byte copy all before it.
        self._buffer = bytearray()

    @property
    def received(self) -> int:
        """Bytes that arrived since the last whole message was taken, prefix included.

        So "the peer hung up before it answered" is a fact (0) and never a guess.
        """
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take in what the stream gave."""
        self._buffer += data

    def next_message(self) -> bytes | None:
        """The next whole message, or None when more bytes are needed.

        Raises EmptyFrame when the prefix says zero.
        """
        buffer = self._buffer
        if len(buffer) < PREFIX_LENGTH:
            return None
        end = PREFIX_LENGTH + (buffer[0] << 8 | buffer[1])
        if end == PREFIX_LENGTH:
            raise EmptyFrame
        if len(buffer) < end:
            return None
        message = bytes(buffer[PREFIX_LENGTH:end])
        del buffer[:end]
        return message
