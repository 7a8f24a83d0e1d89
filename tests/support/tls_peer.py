"""A TLS server on loopback whose every byte, record, close and reset is the test's own."""

import struct
from collections.abc import Callable
from typing import Any, Self

import gevent
from gevent import socket
from gevent.pool import Group
from OpenSSL import SSL

from nxdns.dns.framing import Unframer, frame
from nxdns.platform.tls_stream import TlsStream


class Session:
    """One accepted connection, behind its handshake."""

    def __init__(self, sock: Any, connection: SSL.Connection, number: int) -> None:
        self.sock = sock
        self.connection = connection
        #: 1 for the first connection of its peer.
        self.number = number
        self._stream = TlsStream(sock, connection)
        self._unframer = Unframer()

    def handshake(self) -> None:
        self._stream.handshake()

    def recv(self) -> bytes:
        """Some plaintext. Raises SSL.ZeroReturnError, EOFError, OSError as a TlsStream does."""
        return self._stream.recv()

    def read_query(self) -> bytes:
        """The next framed message of the client. Raises as recv does when it ends."""
        while (query := self._unframer.next_message()) is None:
            self._unframer.feed(self._stream.recv())
        return query

    def send(self, plaintext: bytes) -> None:
        """One TLS record for every 16384 bytes, in one segment."""
        self._stream.send(plaintext)

    def send_message(self, message: bytes) -> None:
        self._stream.send(frame(message))

    def encrypt(self, plaintext: bytes) -> bytes:
        """The records that ``send`` would send; send them with ``send_raw``, in order."""
        self.connection.sendall(plaintext)
        return self.connection.bio_read(1 << 18)

    def send_raw(self, data: bytes) -> None:
        """Bytes under the TLS layer."""
        self.sock.sendall(data)

    def close_notify(self) -> None:
        """Close as TLS wants it: close_notify, then FIN."""
        self._stream.close()

    def truncate(self) -> None:
        """FIN without close_notify."""
        self.sock.close()

    def reset(self) -> None:
        """RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_for_end(self) -> None:
        """Read until the client has ended the connection, however it does."""
        try:
            while True:
                self._stream.recv()
        except (SSL.Error, EOFError, OSError):
            pass


Script = Callable[[Session], None]


class TlsPeer:
    """Accepts on 127.0.0.1 and runs ``script`` on each session in a greenlet of its own.

    A session whose script returns is closed with close_notify, if it is still open. What a script
    raises is kept, and raised by the peer's end: a failed assertion in it fails the test.
    """

    def __init__(self, context: SSL.Context, script: Script) -> None:
        self._context = context
        self._script = script
        self.accepts = 0
        self.handshakes = 0
        #: How the handshakes that failed did.
        self.handshake_errors: list[BaseException] = []
        self._errors: list[BaseException] = []
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self._group = Group()
        self._group.spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._group.kill()
        self._listener.close()
        if self._errors and exc[0] is None:
            raise self._errors[0]

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            self.accepts += 1
            self._group.spawn(self._serve, sock, self.accepts)

    def _serve(self, sock: Any, number: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = SSL.Connection(self._context, None)
        connection.set_accept_state()
        session = Session(sock, connection, number)
        try:
            try:
                session.handshake()
            except (SSL.Error, EOFError, OSError) as error:
                self.handshake_errors.append(error)
                return
            self.handshakes += 1
            self._script(session)
            session.close_notify()
        except gevent.GreenletExit:
            raise
        except (SSL.Error, EOFError, OSError):
            pass  # the client has ended the session; the test sees what came of it
        except BaseException as error:  # noqa: BLE001 - raised again when the peer ends
            self._errors.append(error)
        finally:
            sock.close()


def answer_all(respond: Callable[[bytes], bytes]) -> Script:
    """A script that answers every query of a session with ``respond(query)``, one after another."""

    def script(session: Session) -> None:
        while True:
            session.send_message(respond(session.read_query()))

    return script
