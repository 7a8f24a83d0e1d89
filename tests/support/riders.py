"""Several exchanges on one DoT session, and peers that let them wait."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event
from OpenSSL import SSL

from nxdns.upstream.depth import PIPELINE_DEPTH, Depth
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.dot_site import DotSite
from nxdns.upstream.transport import Endpoint, Fault, SessionStats
from tests.support.authority import NAME, Authority
from tests.support.dot_leaves import QUERY_ID
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import SECOND
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Script, Session, TlsPeer

CLIENT_ID = 7
"""The message ID that every client has chosen, unless a test says otherwise."""

Outcome = bytes | Fault | BaseException | None


class Ride:
    """An exchange in a greenlet of its own, and whatever comes out of it."""

    def __init__(self, leaf: DotClient, query: bytes) -> None:
        self.query = query
        self._outcome: Outcome = None
        self._greenlet = gevent.spawn(self._run, leaf)

    def _run(self, leaf: DotClient) -> None:
        try:
            self._outcome = exchanged(leaf, self.query)
        except BaseException as error:  # noqa: BLE001 - it is what the test asks for
            self._outcome = error

    @property
    def over(self) -> bool:
        return bool(self._greenlet.dead)

    def interrupt(self, error: BaseException) -> None:
        """As a kill or a timer does."""
        assert not self.over, self._outcome
        self._greenlet.kill(error)
        assert self._outcome is error

    def throw(self, error: BaseException) -> None:
        """As ``interrupt``, but at once. Only for the event loop."""
        self._greenlet.throw(error)

    def outcome(self) -> Outcome:
        self._greenlet.join()
        return self._outcome


def name_of(number: int) -> str:
    """What the rider of that number asks for."""
    return f"rider{number}.example.com"


def ride(leaf: DotClient, count: int, *, id_: int = CLIENT_ID, first: int = 0) -> list[Ride]:
    """Begin ``count`` exchanges in one turn of the loop. They board in their order."""
    numbers = range(first, first + count)
    return [Ride(leaf, make_query(name_of(number), id_=id_)) for number in numbers]


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def outcomes_of(rides: Sequence[Ride]) -> list[Outcome]:
    return [each.outcome() for each in rides]


def answers_to(rides: Sequence[Ride]) -> list[Outcome]:
    """What each of ``rides`` is to get: the answer to its own question, under its own ID."""
    return [answer(each.query) for each in rides]


def read_queries(session: Session, count: int) -> list[bytes]:
    return [session.read_query() for _ in range(count)]


def site_at(port: int, authority: Authority, *, attempt_ns: int = 10 * SECOND) -> DotSite:
    """A site whose sessions are as deep as in service, and draw known message IDs."""
    return DotSite(
        Endpoint.parse(f"tls://127.0.0.1:{port}"),
        NAME,
        authority.dot_context(),
        SessionStats(),
        Depth(PIPELINE_DEPTH),
        attempt_ns=attempt_ns,
        draw_id=lambda: QUERY_ID,
    )


@contextmanager
def leaf_of(site: DotSite) -> Iterator[DotClient]:
    """One leaf, closed in the end: then no session of the site may be counted as open."""
    leaf = DotClient(site)
    try:
        yield leaf
    finally:
        leaf.close()
    assert site.stats.open == 0


class GatedPeer(TlsPeer):
    """A peer whose handshakes wait until the test opens the gate."""

    def __init__(self, context: SSL.Context, script: Script) -> None:
        self.gate = Event()
        super().__init__(context, script)

    def _serve(self, sock: Any, number: int) -> None:
        try:
            self.gate.wait()
        except BaseException:
            sock.close()
            raise
        super()._serve(sock, number)


class NarrowPeer(TlsPeer):
    """A peer whose sockets take in no more than a few thousand bytes that it has not read."""

    def __init__(self, context: SSL.Context, script: Script) -> None:
        super().__init__(context, script)
        # Connections inherit it at their SYN, and nobody knows the port yet.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
