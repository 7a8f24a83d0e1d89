"""Many DoT leaves at once, and a thousand ways for them to fail: the hub turns, nothing leaks."""

import random
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import gevent
import pytest
from gevent import Timeout, socket
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from greenlet import GreenletExit
from OpenSSL import SSL

from nxdns.dns.framing import frame
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.transport import Endpoint, Fault
from tests.support.authority import NAME, Authority, Issued
from tests.support.dot_leaves import dot_client
from tests.support.exchanging import exchanged
from tests.support.leaks import open_descriptors
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")


def dot_leaf(port: int, context: SSL.Context, tls_name: str = NAME) -> DotClient:
    endpoint = Endpoint.parse(f"tls://127.0.0.1:{port}")
    return dot_client(endpoint, tls_name, context)


def mute_server() -> StreamServer:
    """Accepts TCP connections and says nothing."""

    def handle(sock: Any, _client: Any) -> None:
        with suppress(OSError):
            while sock.recv(4096):
                pass

    server = StreamServer(("127.0.0.1", 0), handle, spawn=Pool())
    server.start()
    return server


def test_the_hub_keeps_turning_while_eight_leaves_wait(
    authority: Authority, certificate: Issued
) -> None:
    asked: list[bytes] = []

    def never_answer(session: Session) -> None:
        asked.append(session.read_query())
        session.wait_for_end()

    ticks, fifty = 0, Event()

    def tick() -> None:
        nonlocal ticks
        while ticks < 50:
            gevent.sleep(0.001)
            ticks += 1
        fifty.set()

    context = authority.dot_context()
    mute = mute_server()
    with TlsPeer(certificate.openssl_context(), never_answer) as peer:
        leaves = [dot_leaf(port, context) for port in [peer.port, mute.server_port] * 4]
        waiting = [gevent.spawn(exchanged, leaf, QUERY) for leaf in leaves]
        eventually(lambda: len(asked) == 4 and len(mute.pool) == 4)
        gevent.spawn(tick)
        fifty.wait()
        assert not any(greenlet.dead for greenlet in waiting)
        gevent.killall(waiting)
    mute.stop(timeout=0)


def _alert(session: Session) -> None:
    session.connection.bio_write(b"\x17\x03\x03\x00\x20" + bytes(32))
    with suppress(SSL.Error):
        session.connection.recv(1)
    session.send_raw(session.connection.bio_read(4096))


#: What a server does once it has read a query.
MISDEEDS: list[Callable[[Session], None]] = [
    Session.wait_for_end,
    Session.close_notify,
    Session.truncate,
    Session.reset,
    _alert,
    lambda session: session.send_raw(b"this is no record of TLS"),
    lambda session: session.send(b"\0\0"),
    lambda session: session.send(b"\0"),
    lambda session: session.send(frame(ANSWER)[:-1]),
    lambda session: session.send_message(ANSWER[:-1]),
    lambda session: session.send_message(make_response(make_query(id_=1))),
    lambda session: session.send(frame(ANSWER) + b"\0"),
]


def seconds_of_a_handshake(certificate: Issued, context: SSL.Context) -> float:
    with (
        TlsPeer(certificate.openssl_context(), answer_all(lambda _: ANSWER)) as peer,
        closing(dot_leaf(peer.port, context)) as leaf,
    ):
        exchanged(leaf, QUERY)
        return (leaf.last.dial_ns + leaf.last.tls_ns) / 1e9


@pytest.mark.timeout(90)
def test_a_thousand_failures_leave_no_descriptor(authority: Authority, certificate: Issued) -> None:
    chance = random.Random(7858)
    outcomes: list[object] = []

    def script(session: Session) -> None:
        while chance.random() < 0.5:
            session.read_query()
            session.send_message(ANSWER)
        session.read_query()
        chance.choice(MISDEEDS)(session)

    def ask(leaf: DotClient) -> None:
        with Timeout(chance.choice([0.3 * handshake, handshake, 2 * handshake, None])):
            try:
                outcomes.append(exchanged(leaf, QUERY))
            except BaseException as error:
                outcomes.append(error)
                raise

    def fail_once(leaf: DotClient) -> None:
        exchange = gevent.spawn(_quietly, ask, leaf)
        # So short that the end can come in any phase: which one it is, is left to chance.
        exchange.join(handshake * chance.choice([0, 0.5, 1, 2, 4]))
        if chance.random() < 0.1:
            leaf.close()
        exchange.kill()

    context = authority.dot_context()
    # The unit of all waits, so that a slow machine sees the same mix; capped, for it is multiplied.
    handshake = min(seconds_of_a_handshake(certificate, context), 0.004)
    mute = mute_server()
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))
        before = open_descriptors()
        with TlsPeer(certificate.openssl_context(), script) as peer:
            leaves = [dot_leaf(peer.port, context) for _ in range(5)]
            leaves.append(dot_leaf(peer.port, context, "evil.test"))
            leaves.append(dot_leaf(mute.server_port, context))
            leaves.append(dot_leaf(closed_port.getsockname()[1], context))
            for _ in range(1000):
                fail_once(chance.choice(leaves))
            for leaf in leaves:
                leaf.close()
        eventually(lambda: open_descriptors() <= before)
    mute.stop(timeout=0)
    for kind in (Fault, GreenletExit, Timeout):
        assert any(isinstance(outcome, kind) for outcome in outcomes), kind


def _quietly(ask: Callable[[DotClient], None], leaf: DotClient) -> None:
    with suppress(Timeout):
        ask(leaf)
