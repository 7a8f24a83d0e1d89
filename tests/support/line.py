"""A line between the forwarder and its upstream that can fail, in the ways that lines do."""

from contextlib import suppress
from typing import Any, Self

from gevent import socket
from gevent.event import Event
from gevent.pool import Group

_CLOSE_WAIT = 8  # linux/tcp_states.h


class Line:
    """Carries bytes between connections to ``port`` and a peer on loopback."""

    def __init__(self, peer_port: int) -> None:
        self._peer_port = peer_port
        self._through = Event()
        self._through.set()
        #: Those of a connection that carries nothing any more, not even its end.
        self._dead: set[Any] = set()
        self._open: set[Any] = set()
        self._group = Group()
        self.port = 0
        self._listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._group.kill()
        self._listener.close()
        for sock in self._open:
            sock.close()

    def refuse(self) -> None:
        """End every connection, and refuse others: the peer's machine is up, and the peer not."""
        self._accepting.kill()
        self._listener.close()
        for sock in list(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def swallow(self, *, forget: bool) -> None:
        """Carry nothing. What is sent arrives when it is mended, as after a retransmission; or is
        lost with its connection, as where a router has forgotten it."""
        self._through.clear()
        if forget:
            self._dead |= self._open

    def mend(self) -> None:
        """Be well again."""
        if self._listener.closed:
            self._listen()
        self._through.set()

    def _listen(self) -> None:
        self._listener: Any = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(512)
        self.port = self._listener.getsockname()[1]
        self._accepting = self._group.spawn(self._accept)

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            self._open.add(sock)
            self._group.spawn(self._connect, sock)

    def _connect(self, near: Any) -> None:
        self._through.wait()
        if near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSE_WAIT:
            near.close()  # what would have arrived is the last of its dials, not every one
            self._open.discard(near)
            return
        far = socket.create_connection(("127.0.0.1", self._peer_port))
        self._open.add(far)
        self._group.spawn(self._carry, near, far)
        self._carry(far, near)

    def _carry(self, one: Any, other: Any) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                self._through.wait()
                if one in self._dead:
                    return
                other.sendall(data)
        if one in self._dead:
            return
        for sock in (one, other):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
            self._open.discard(sock)
