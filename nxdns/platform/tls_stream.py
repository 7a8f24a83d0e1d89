"""TLS over memory BIOs on a gevent socket.

OpenSSL given a socket reads and writes it by itself, and blocks the hub. Given memory it only
ever touches buffers: every wait is then gevent's, where a Timeout or a kill can end it.
"""

from contextlib import suppress
from typing import Any, Final

from OpenSSL import SSL

from nxdns.platform.tls_calls import CIPHERTEXT, TlsCalls, calls_of
from nxdns.platform.tls_errors import TlsTruncated
from nxdns.platform.tls_records import TlsRecords

# More records than a read can bring: read until there is no more.
_ANY: Final = 1 << 16


class TlsStream:
    """One connection, client or server. Read by one greenlet at a time, and written by one."""

    __slots__ = (
        "_calls",
        "_records",
        "_sock",
        "_unread",
        "connection",
        "failure",
    )

    def __init__(
        self, sock: Any, connection: SSL.Connection, calls: TlsCalls | None = None
    ) -> None:
        """``connection`` has no socket; its bytes go over the connected gevent socket ``sock``.

        ``calls`` is how it is asked; by itself the quickest way that there is.
        """
        self.connection = connection
        self._calls = calls or calls_of(connection)
        self._records = TlsRecords()
        self._sock = sock
        #: What ended the stream behind plaintext that was still good; raised by the next recv.
        self.failure: Exception | None = None
        #: The most records that OpenSSL may hold and not have given yet. The last read of the
        #: handshake may have brought some; every later read is drained at once.
        self._unread = _ANY

    def handshake(self) -> None:
        """Complete the handshake. Raises TlsTruncated, SSL.Error, OSError."""
        while True:
            try:
                self.connection.do_handshake()
            except SSL.WantReadError:
                self._flush()
                self._feed()
            else:
                break
        self._flush()

    @property
    def version(self) -> str:
        """The protocol agreed on, such as ``TLSv1.3``."""
        return self.connection.get_protocol_version_name()

    def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises OSError or SSL.Error."""
        # Not sendall at once: gevent's asks the kernel for the size of its buffer each time.
        ciphertext = self.encrypt(data)
        sent = self._sock.send(ciphertext)
        if sent < len(ciphertext):
            self._sock.sendall(ciphertext[sent:])

    def encrypt(self, data: bytes) -> bytes:
        """What is to be sent for ``data``, alerts and key updates included. Raises SSL.Error."""
        calls = self._calls
        # pyOpenSSL lets SSL_write take one record (16384 bytes) at a time.
        while (taken := calls.write(data)) < len(data):
            data = data[taken:]
        ciphertext = calls.produced()
        if len(ciphertext) == CIPHERTEXT:
            with suppress(SSL.WantReadError):
                while True:
                    ciphertext += calls.produced()
        return ciphertext

    def decrypt(self, ciphertext: bytes) -> bytes:
        """The plaintext that ``ciphertext``, as it came, completes; b"" when it completes none.

        Of an empty ``ciphertext``: what the last read of the handshake may have brought. An end
        of the stream behind good plaintext is kept in ``failure``. Raises as ``recv``.
        """
        if ciphertext:
            self._take(ciphertext)
        return self._drain()

    def recv(self) -> bytes:
        """Plaintext, at least one byte; everything that has arrived and can be decrypted.

        Raises SSL.ZeroReturnError for a clean close, TlsTruncated, OSError, SSL.Error.
        """
        if self.failure is not None:
            raise self.failure
        while True:
            if not self._unread:
                self._feed()
            plaintext = self._drain()
            if plaintext:
                return plaintext

    def close(self) -> None:
        """Close, saying why if it can be said at once. Never waits, never switches greenlets."""
        with suppress(SSL.Error):  # a handshake that failed has its alert written already
            self.connection.shutdown()
        with suppress(SSL.Error, OSError):  # a courtesy: the peer may be gone, its window full
            self._sock.settimeout(0.0)
            self._sock.send(self._calls.produced())
        self._sock.close()

    def _drain(self) -> bytes:
        """All plaintext that OpenSSL can give now; b"" when it needs more ciphertext."""
        read = self._calls.read
        plaintext = b""
        unread, self._unread = self._unread, 0
        while unread:
            # One call gives the whole of one record, or skips some that carry none.
            unread -= 1
            try:
                piece = read()
            except SSL.WantReadError:
                return plaintext
            except SSL.Error as error:
                if not plaintext:
                    raise
                self.failure = error
                return plaintext
            plaintext = plaintext + piece if plaintext else piece
        return plaintext

    def _take(self, ciphertext: bytes) -> None:
        self._unread += self._records.ended_in(ciphertext)
        self._calls.feed(ciphertext)

    def _feed(self) -> None:
        ciphertext = self._sock.recv(CIPHERTEXT)
        if not ciphertext:
            raise TlsTruncated
        self._take(ciphertext)

    def _flush(self) -> None:
        """Send what OpenSSL has produced, alerts and key updates included."""
        while True:
            try:
                ciphertext = self._calls.produced()
            except SSL.WantReadError:
                return
            # Not sendall at once: gevent's asks the kernel for the size of its buffer each time.
            sent = self._sock.send(ciphertext)
            if sent < len(ciphertext):
                self._sock.sendall(ciphertext[sent:])
            if len(ciphertext) < CIPHERTEXT:
                return
