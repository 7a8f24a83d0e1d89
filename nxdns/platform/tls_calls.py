"""What a TLS stream asks of OpenSSL, for less than pyOpenSSL's own way takes.

That allocates 16 KiB, asks the context's helpers and OpenSSL's error queue, and copies, for every
record, which is for every answer. What has been done needs none of it; whatever else there is to
say is left to pyOpenSSL.
"""

from typing import Any, Final, Protocol

from OpenSSL import SSL

PLAINTEXT: Final = 16384  # octets that a record holds at most (RFC 8446 §5.1)

# More than one record has on the wire: 16640 octets (RFC 8446 §5.2), 18432 before TLS 1.3.
CIPHERTEXT: Final = 18432

# pyOpenSSL's own names for OpenSSL. They have been there for ten years; where they are not any
# more, its way is taken.
_lib: Final[Any] = getattr(SSL, "_lib", None)
_ffi: Final[Any] = getattr(SSL, "_ffi", None)
_FUNCTIONS: Final = ("SSL_read", "SSL_write", "BIO_read", "BIO_write")
_ARE_THERE: Final = hasattr(_ffi, "unpack") and all(hasattr(_lib, each) for each in _FUNCTIONS)

# One for all: nothing switches greenlets while there is something in it.
_buffer: Final[Any] = _ffi.new("char[]", CIPHERTEXT) if _ARE_THERE else None


class TlsCalls(Protocol):
    """All of them raise SSL.Error, and SSL.WantReadError where there is nothing to give."""

    def read(self) -> bytes:
        """The plaintext of the next record."""

    def write(self, plaintext: bytes) -> int:
        """Take in plaintext to be sent; how many octets of it."""

    def feed(self, ciphertext: bytes) -> None:
        """Take in ciphertext that has come."""

    def produced(self) -> bytes:
        """The next ciphertext to be sent, CIPHERTEXT octets at most."""


def calls_of(connection: SSL.Connection) -> TlsCalls:
    """For a connection over memory BIOs."""
    names = ("_ssl", "_into_ssl", "_from_ssl")
    if _ARE_THERE and all(getattr(connection, each, None) is not None for each in names):
        return DirectCalls(connection)
    return WrappedCalls(connection)


class DirectCalls:
    """Calls OpenSSL, and where it does not succeed asks pyOpenSSL the same: it says why.

    OpenSSL says the same again, as long as nothing has come in between.
    """

    __slots__ = (
        "_bio_read",
        "_bio_write",
        "_connection",
        "_from_ssl",
        "_into_ssl",
        "_ssl",
        "_ssl_read",
        "_ssl_write",
        "_unpack",
    )

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._ssl = connection._ssl
        self._into_ssl = connection._into_ssl
        self._from_ssl = connection._from_ssl
        self._ssl_read = _lib.SSL_read
        self._ssl_write = _lib.SSL_write
        self._bio_read = _lib.BIO_read
        self._bio_write = _lib.BIO_write
        self._unpack = _ffi.unpack

    def read(self) -> bytes:
        size: int = self._ssl_read(self._ssl, _buffer, PLAINTEXT)
        if size <= 0:
            failed: bytes = self._connection.recv(PLAINTEXT)
            return failed
        plaintext: bytes = self._unpack(_buffer, size)
        return plaintext

    def write(self, plaintext: bytes) -> int:
        taken: int = self._ssl_write(self._ssl, plaintext, len(plaintext))
        if taken <= 0:
            taken = self._connection.send(plaintext)
        return taken

    def feed(self, ciphertext: bytes) -> None:
        if self._bio_write(self._into_ssl, ciphertext, len(ciphertext)) <= 0:
            self._connection.bio_write(ciphertext)

    def produced(self) -> bytes:
        size: int = self._bio_read(self._from_ssl, _buffer, CIPHERTEXT)
        if size <= 0:
            nothing: bytes = self._connection.bio_read(CIPHERTEXT)
            return nothing
        ciphertext: bytes = self._unpack(_buffer, size)
        return ciphertext


class WrappedCalls:
    """pyOpenSSL's way."""

    __slots__ = ("_connection",)

    def __init__(self, connection: SSL.Connection) -> None:
        self._connection = connection

    def read(self) -> bytes:
        return self._connection.recv(PLAINTEXT)

    def write(self, plaintext: bytes) -> int:
        return self._connection.send(plaintext)

    def feed(self, ciphertext: bytes) -> None:
        self._connection.bio_write(ciphertext)

    def produced(self) -> bytes:
        return self._connection.bio_read(CIPHERTEXT)
