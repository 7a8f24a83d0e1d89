"""A plain DNS server on loopback that answers as a test wants it to."""

from collections.abc import Callable, Sequence
from typing import Any

import dns.message
import dns.rcode
from gevent import socket
from gevent.event import Event
from gevent.pool import Group

Respond = Callable[[bytes], Sequence[bytes]]


class UdpResolver:
    """Sends whatever datagrams ``respond`` makes of a query, once its gate is open."""

    def __init__(self, respond: Respond, *, held: bool = False) -> None:
        self.queries: list[bytes] = []
        self.gate = Event()
        if not held:
            self.gate.set()
        self._respond = respond
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        #: As --server wants it.
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._group = Group()
        self._group.spawn(self._read)

    def __enter__(self) -> "UdpResolver":
        return self

    def __exit__(self, *_: object) -> None:
        self._group.kill()
        self._socket.close()

    def _read(self) -> None:
        while True:
            query, client = self._socket.recvfrom(65535)
            self.queries.append(query)
            self._group.spawn(self._answer, query, client)

    def _answer(self, query: bytes, client: Any) -> None:
        self.gate.wait()
        for datagram in self._respond(query):
            self._socket.sendto(datagram, client)


def with_rcode(rcode: str) -> Respond:
    """Answers each query with that RCODE and no record."""

    def respond(query: bytes) -> list[bytes]:
        reply = dns.message.make_response(dns.message.from_wire(query))
        reply.set_rcode(dns.rcode.from_text(rcode))
        return [reply.to_wire()]

    return respond


def silent(_: bytes) -> list[bytes]:
    """No answer."""
    return []
