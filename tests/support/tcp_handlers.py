"""Handlers for tests of the TCP listener: what becomes of each message is the test's own choice."""

from gevent.event import AsyncResult
from greenlet import getcurrent

from nxdns.dns.framing import frame
from nxdns.server.handler import HandlerStats, Transport
from tests.support.fake_clients import answer


class EchoHandler:
    """Replies at once, with ``answer`` of whatever comes."""

    def __init__(self) -> None:
        self.stats = HandlerStats()
        self.asked: list[bytes] = []

    def handle(self, _: Transport, query: bytes) -> bytes | None:
        self.asked.append(query)
        return answer(query)


class SteeredHandler:
    """Holds every message until the test answers or drops it, in whatever order."""

    def __init__(self) -> None:
        self.stats = HandlerStats()
        self.asked: list[bytes] = []
        self.held: dict[bytes, AsyncResult] = {}
        #: Who waits in handle().
        self.greenlets: set[object] = set()
        self.most_held = 0

    def handle(self, _: Transport, query: bytes) -> bytes | None:
        self.asked.append(query)
        self.held[query] = result = AsyncResult()
        self.greenlets.add(getcurrent())
        self.most_held = max(self.most_held, len(self.held))
        try:
            reply: bytes | None = result.get()
        finally:
            self.greenlets.discard(getcurrent())
            del self.held[query]
        return reply

    def answer(self, query: bytes) -> None:
        self.held[query].set(answer(query))

    def drop(self, query: bytes) -> None:
        self.held[query].set(None)

    def answer_all(self) -> None:
        """Those that are held now."""
        for query in list(self.held):
            self.answer(query)


def numbered(count: int, size: int = 12) -> list[bytes]:
    """``count`` messages of ``size`` bytes, no two alike."""
    return [number.to_bytes(2, "big") + bytes(size - 2) for number in range(count)]


def framed(messages: list[bytes]) -> bytes:
    return b"".join(frame(message) for message in messages)
