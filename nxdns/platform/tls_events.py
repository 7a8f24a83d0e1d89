"""A TLS stream that is served by the event loop: whoever uses it waits for nothing here.

One greenlet for each session, to read it, would be switched to for every answer only to switch on
to whom it belongs. Here the loop reads, and hands on what it read. What the kernel does not take
at once is kept, and leaves when it can.
"""

from collections.abc import Callable
from typing import Any, Final

import gevent
from OpenSSL import SSL

from nxdns.platform.tls_errors import TlsTruncated
from nxdns.platform.tls_stream import TlsStream

# Every answer that has arrived, in one read: those to all that a session carries, of usual size.
_CIPHERTEXT: Final = 65536

# What a peer can have sent before it hung up, in such reads; one that goes on sending ends here.
_LAST_READS: Final = 16

_READABLE: Final = 1  # libev's EV_READ
_WRITABLE: Final = 2  # and EV_WRITE


class TlsEvents:
    """One open session. Nothing here switches greenlets."""

    __slots__ = (
        "_closed",
        "_on_end",
        "_on_plaintext",
        "_on_sent",
        "_reader",
        "_receive",
        "_send",
        "_stream",
        "_unsent",
        "_wanted",
        "_watching",
        "_writer",
    )

    def __init__(
        self,
        stream: TlsStream,
        sock: Any,
        on_plaintext: Callable[[bytes], None],
        on_sent: Callable[[], None],
        on_end: Callable[[Exception, bool], None],
    ) -> None:
        """``stream`` has completed its handshake over the gevent socket ``sock``.

        The event loop calls ``on_plaintext`` with at least one byte, ``on_sent`` when the kernel
        has taken all that was written, and ``on_end`` with what broke the stream, and whether
        that was while sending. None may switch greenlets, but for switching to one that switches
        back to the loop. After ``close`` none is called.
        """
        self._stream = stream
        self._on_plaintext = on_plaintext
        self._on_sent = on_sent
        self._on_end = on_end
        sock.settimeout(0.0)
        loop = gevent.get_hub().loop
        descriptor = sock.fileno()
        self._reader = loop.io(descriptor, _READABLE)
        self._writer = loop.io(descriptor, _WRITABLE)
        # The raw socket's own: gevent's would only add the wait that never happens here.
        self._receive = sock._sock.recv
        self._send = sock._sock.send
        self._unsent = b""
        self._closed = False
        self._wanted = False
        self._watching = False
        # What came along with the end of the handshake would wait for the next bytes to be read.
        loop.run_callback(self._read_early)

    @property
    def failure(self) -> Exception | None:
        """What has ended the stream behind the plaintext that came last, if anything has."""
        return self._stream.failure

    def listen(self) -> None:
        """Read whatever comes from now on."""
        self._wanted = True
        if not self._watching:
            self._watching = True
            self._reader.start(self._read)

    def pause(self) -> None:
        """Leave whatever comes to the kernel."""
        # The watcher stays until something does come: where each query comes alone, to stop and
        # start it would cost each of them a call of the kernel.
        self._wanted = False

    def write(self, data: bytes) -> None:
        """Send ``data`` now, or when the kernel has room. Raises OSError, SSL.Error."""
        ciphertext = self._stream.encrypt(data)
        if self._unsent:
            self._unsent += ciphertext
            return
        self._unsent = self._left_of(ciphertext)
        if self._unsent:
            self._writer.start(self._write)
        else:
            self._on_sent()

    def _left_of(self, ciphertext: bytes) -> bytes:
        try:
            sent = self._send(ciphertext)
        except BlockingIOError:
            return ciphertext
        return b"" if sent == len(ciphertext) else ciphertext[sent:]

    def _write(self) -> None:
        try:
            self._unsent = self._left_of(self._unsent)
        except OSError as exc:
            self._on_end(exc, True)
            return
        if not self._unsent:
            self._writer.stop()
            self._on_sent()

    def read_rest(self) -> None:
        """Hand on now what had arrived before a write failed. How it ends is told to nobody."""
        for _ in range(_LAST_READS):
            if self._closed:
                return
            try:
                plaintext = self._receive_some()
            except (OSError, EOFError, SSL.Error):
                return
            if plaintext:
                self._on_plaintext(plaintext)

    def _read(self) -> None:
        if not self._wanted:
            self._watching = False
            self._reader.stop()
            return
        try:
            plaintext = self._receive_some()
        except BlockingIOError:
            return
        except (OSError, EOFError, SSL.Error) as exc:
            self._on_end(exc, False)
            return
        if plaintext:
            self._on_plaintext(plaintext)

    def _receive_some(self) -> bytes:
        ciphertext = self._receive(_CIPHERTEXT)
        if not ciphertext:
            raise TlsTruncated
        return self._stream.decrypt(ciphertext)

    def _read_early(self) -> None:
        if self._closed:
            return
        try:
            plaintext = self._stream.decrypt(b"")
        except SSL.Error as exc:
            self._on_end(exc, False)
            return
        if plaintext:
            self._on_plaintext(plaintext)

    def close(self) -> None:
        """Close, saying so to the peer if it can be said at once."""
        self._closed = True
        for watcher in (self._reader, self._writer):
            watcher.stop()
            watcher.close()
        self._stream.close()
