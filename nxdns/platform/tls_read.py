"""One record's plaintext, for less than pyOpenSSL's own way takes.

That allocates 16 KiB, asks the context's helpers and OpenSSL's error queue, and copies, for every
record, which is for every answer. What has been read needs none of it; whatever else there is to
say is left to pyOpenSSL.
"""

from collections.abc import Callable
from typing import Any, Final

from OpenSSL import SSL

PLAINTEXT: Final = 16384  # octets that a record holds at most (RFC 8446 §5.1)

# pyOpenSSL's own names for OpenSSL. They have been there for ten years; where they are not any
# more, its way is taken.
_ffi: Final[Any] = getattr(SSL, "_ffi", None)
_lib: Final[Any] = getattr(SSL, "_lib", None)
_IS_THERE: Final = hasattr(_lib, "SSL_read") and hasattr(_ffi, "unpack") and hasattr(_ffi, "new")

# One for all: nothing switches greenlets while there is something in it.
_buffer: Final[Any] = _ffi.new("char[]", PLAINTEXT) if _IS_THERE else None


def record_reader(connection: SSL.Connection) -> Callable[[], bytes]:
    """A function that gives the plaintext of the next record, and raises as Connection.recv."""
    ssl = getattr(connection, "_ssl", None)
    if not _IS_THERE or ssl is None:
        return lambda: connection.recv(PLAINTEXT)
    read, unpack, buffer, otherwise = _lib.SSL_read, _ffi.unpack, _buffer, connection.recv

    def read_record() -> bytes:
        size = read(ssl, buffer, PLAINTEXT)
        # To ask again says the same again: that there is nothing, the end, or what is wrong.
        plaintext: bytes = unpack(buffer, size) if size > 0 else otherwise(PLAINTEXT)
        return plaintext

    return read_record
