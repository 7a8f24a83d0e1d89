"""What stands on both sides of a server under test: fakes of its client, askers on loopback."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

from nxdns.dns.framing import Unframer, frame
from nxdns.dns.packet import Packet, parse
from nxdns.platform.address import ListenAddress
from nxdns.platform.sockets import dial, socket_address
from nxdns.server.handler import Answerer, HandlerStats
from nxdns.server.listener import Listener
from nxdns.server.tcp_server import TcpServer
from nxdns.server.udp_server import UdpServer

LOOPBACK = ListenAddress("127.0.0.1", 0)

# Long enough for a loaded machine; what should come at once comes at once.
_PATIENCE_SECONDS = 10.0


def answer(query: bytes) -> bytes:
    """``query`` turned into a response: QR and RA set, every other byte as it was."""
    return query[:2] + bytes([query[2] | 0x80, query[3] | 0x80]) + query[4:]


class EchoingClient:
    """Answers at once, with ``answer`` of the query."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def exchange(self, query: bytes) -> Packet:
        self.asked.append(query)
        return parse(answer(query))


class ScriptedClient:
    """Returns its script one item per call; an exception in the script is raised."""

    def __init__(self, script: Sequence[bytes | BaseException]) -> None:
        self._script = list(script)
        self.asked: list[bytes] = []

    def exchange(self, query: bytes) -> Packet:
        self.asked.append(query)
        step = self._script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return parse(step)


class GatedClient:
    """Holds every query until the test opens the gate, then answers as EchoingClient does."""

    def __init__(self) -> None:
        self.gate = Event()
        #: Queries held now.
        self.waiting = 0

    def exchange(self, query: bytes) -> Packet:
        self.waiting += 1
        try:
            self.gate.wait()
        finally:
            self.waiting -= 1
        return parse(answer(query))


class RaisingClient:
    """Raises the same error for every query."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def exchange(self, query: bytes) -> Packet:
        raise self.error.with_traceback(None)  # or it grows with every query


class FixedHandler:
    """Replies with the same bytes, however many, to whatever comes."""

    def __init__(self, reply: bytes) -> None:
        self.stats = HandlerStats()
        self._reply = reply

    def handle(self, *_: object) -> bytes:
        return self._reply


Server = UdpServer | TcpServer | Listener


@contextmanager
def serving(*servers: Server) -> Iterator[None]:
    """Start ``servers``; at the end of the block stop them, in flight or not."""
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in servers:
            server.stop(0)


@contextmanager
def udp_asker(server: ListenAddress, host: str | None = None) -> Iterator[Any]:
    """A UDP socket connected to ``server``, or to ``host`` at its port.

    Connected, it takes replies from the address it has asked and no other.
    """
    family, target = socket_address(host or server.host, server.port)
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(_PATIENCE_SECONDS)
        sock.connect(target)
        yield sock


class TcpAsker:
    """A DNS client on one TCP connection."""

    def __init__(self, sock: Any) -> None:
        """``sock`` need not be connected yet."""
        self.sock = sock
        sock.settimeout(_PATIENCE_SECONDS)
        self._unframer = Unframer()

    def __enter__(self) -> "TcpAsker":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *queries: bytes) -> None:
        """All of them in one segment."""
        self.sock.sendall(b"".join(frame(query) for query in queries))

    def reply(self) -> bytes:
        """The next whole reply. Raises EOFError when the connection ends before it."""
        while (message := self._unframer.next_message()) is None:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self._unframer.feed(data)
        return message

    def ask(self, query: bytes) -> bytes:
        self.send(query)
        return self.reply()

    def finish(self) -> None:
        """Close the sending half: there will be no more queries."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_for_close(self) -> bytes:
        """What still comes until the server has closed, be it with a reset."""
        rest = b""
        try:
            while data := self.sock.recv(65536):
                rest += data
        except ConnectionResetError:
            pass
        return rest

    def wait_for_clean_close(self) -> None:
        """Fails for a reset, and for bytes before the end."""
        assert self.sock.recv(1) == b""


def tcp_asker(server: ListenAddress) -> TcpAsker:
    """A client connected to ``server``."""
    return TcpAsker(dial(server.host, server.port))


COUNTERS = (
    "queries",
    "dropped_malformed",
    "formerr",
    "notimp",
    "badvers",
    "refused",
    "servfail",
    "truncated",
    "upstream_truncated",
    "cancelled",
)


def counted(stats: HandlerStats) -> dict[str, int]:
    """The handler's counters that are not zero."""
    return {name: value for name in COUNTERS if (value := getattr(stats, name))}


def arrived(*servers: UdpServer | TcpServer) -> int:
    """Datagrams and whole TCP messages that ``servers`` have read."""
    return sum(s.stats.received if isinstance(s, UdpServer) else s.stats.messages for s in servers)


def accounted(handler: Answerer, *servers: UdpServer | TcpServer) -> int:
    """What became of them, all outcomes together; at rest it equals ``arrived``."""
    stats = handler.stats
    dropped = stats.dropped_malformed + stats.cancelled
    unseen = sum(
        s.stats.dropped_oversize
        + s.stats.dropped_no_slot
        + s.stats.dropped_not_allowed
        + s.stats.dropped_duplicate
        for s in servers
        if isinstance(s, UdpServer)
    )
    return replied(stats) + dropped + unseen


def replied(stats: HandlerStats) -> int:
    """Queries that got a reply, one of our own or an upstream's."""
    refused = stats.formerr + stats.notimp + stats.badvers + stats.refused
    return stats.queries + refused + stats.servfail


def settle() -> None:
    """Let the other greenlets run until none has anything left to do.

    What is sent over loopback has arrived when the send returns, so all of it is then dealt with.
    """
    gevent.idle()
