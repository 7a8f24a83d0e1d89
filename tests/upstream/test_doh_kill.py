"""Kills and timeouts of a DoH exchange: they pass through, and leave nothing behind."""

import random
from contextlib import ExitStack
from typing import Any

import gevent
import pytest
from gevent.event import Event

from nxdns.upstream.doh_client import DohClient
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.http_peer import (
    CHUNKED,
    DNS_MESSAGE,
    NoLookups,
    TcpPeer,
    accept_tls,
    blackhole,
    head,
    leaves_at,
    promptly,
    read_request,
    reply,
    small_send_buffers,
    well_behaved,
)
from tests.support.leaks import no_descriptor_left
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY, "192.0.2.1")


@pytest.fixture(autouse=True, scope="module")
def _loop_has_its_descriptors() -> None:
    """Those of gevent's loop come with its first use, and are nobody's leak."""
    gevent.sleep(0)


EXCEPTIONS = pytest.mark.parametrize(
    "exception", [gevent.GreenletExit, gevent.Timeout], ids=["kill", "timeout"]
)
Interrupt = type[BaseException]


def interrupt(leaf: DohClient, reached: Event, exception: Interrupt, query: bytes = QUERY) -> None:
    """Throw into an exchange, as a kill or a timer does, once ``reached``; it must come out."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            exchanged(leaf, query)
        except (gevent.GreenletExit, gevent.Timeout) as error:
            caught.append(error)

    task = gevent.spawn(run)
    assert reached.wait(5)
    gevent.idle()  # what was sent is read, and the client waits for more
    thrown = exception()
    task.kill(thrown)
    assert caught == [thrown]


def wait_in(reached: Event, sock: Any) -> None:
    reached.set()
    while sock.recv(1 << 14):
        pass


@EXCEPTIONS
def test_an_interrupt_while_dialling_passes_through(
    authority: Authority, exception: Interrupt
) -> None:
    dialling = Event()
    dialling.set()
    with no_descriptor_left(), blackhole() as port, leaves_at(port, authority) as leaves:
        for _ in range(3):
            interrupt(leaves.first, dialling, exception)


@EXCEPTIONS
def test_an_interrupt_during_the_lookup_passes_through(
    authority: Authority, exception: Interrupt
) -> None:
    class Stuck(NoLookups):
        def __init__(self) -> None:
            self.asked = Event()

        def lookup(self, host: str, port: int) -> list[str]:
            self.asked.set()
            Event().wait()
            raise AssertionError(f"{host}:{port} was found")

    resolver = Stuck()
    with (
        no_descriptor_left(),
        leaves_at(443, authority, host="doh.test", resolver=resolver) as leaves,
    ):
        keeping_the_loop_alive = gevent.spawn(gevent.sleep, 20)
        interrupt(leaves.first, resolver.asked, exception)
        keeping_the_loop_alive.kill()


@EXCEPTIONS
def test_an_interrupt_in_the_handshake_leaves_no_half_built_connection(
    authority: Authority, certificate: Issued, exception: Interrupt
) -> None:
    reached = Event()
    context = certificate.openssl_context()

    def script(sock: Any) -> None:
        if peer.accepts == 1:
            sock.recv(1)
            wait_in(reached, sock)
            return
        session = accept_tls(sock, context)
        session.handshake()
        well_behaved()(session)

    with no_descriptor_left(), TcpPeer(script) as peer, leaves_at(peer.port, authority) as leaves:
        interrupt(leaves.first, reached, exception)
        assert isinstance(promptly(leaves.first, QUERY), bytes)
        assert peer.accepts == 2


@EXCEPTIONS
def test_an_interrupt_while_sending_discards_the_connection(
    authority: Authority,
    certificate: Issued,
    monkeypatch: pytest.MonkeyPatch,
    exception: Interrupt,
) -> None:
    small_send_buffers(monkeypatch)
    query = big_response(QUERY, 65535)
    reached, thrown = Event(), Event()
    received = 0
    context = certificate.openssl_context()

    def script(sock: Any) -> None:
        nonlocal received
        session = accept_tls(sock, context)
        session.handshake()
        if peer.accepts > 1:
            well_behaved()(session)
        received += len(session.recv())
        reached.set()
        thrown.wait()
        while True:
            received += len(session.recv())

    with (
        no_descriptor_left(),
        TcpPeer(script, receive_buffer=4096) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        interrupt(leaves.first, reached, exception, query)
        thrown.set()
        assert isinstance(promptly(leaves.first, QUERY), bytes)
        assert peer.accepts == 2
    assert 0 < received < len(query)  # it had indeed been in the middle


@EXCEPTIONS
@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="nothing-received"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-", id="in-the-head"),
        pytest.param(head(DNS_MESSAGE, "Content-Length: 33"), id="before-the-body"),
        pytest.param(reply(RESPONSE)[:-1], id="in-the-body"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"8\r\n12345678\r\n8", id="in-a-chunk-size"),
        pytest.param(head(DNS_MESSAGE) + RESPONSE, id="before-the-close"),
    ],
)
def test_an_interrupt_while_receiving_discards_the_connection(
    authority: Authority, certificate: Issued, begun: bytes, exception: Interrupt, *, reused: bool
) -> None:
    reached, ended = Event(), Event()

    def script(session: Session) -> None:
        if session.number == 1:
            if reused:
                read_request(session)
                session.send(reply(RESPONSE))
            read_request(session)
            if begun:
                session.send(begun)
            reached.set()
            session.wait_for_end()
            ended.set()
        well_behaved()(session)

    other = make_query("other.example.com", id_=0x1234)
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        if reused:
            assert promptly(leaves.first, QUERY) == RESPONSE
        interrupt(leaves.first, reached, exception)
        assert ended.wait(5)  # its connection is closed, not kept
        assert promptly(leaves.first, other) == make_response(other, "192.0.2.1")
        assert (peer.accepts, leaves.stats.recoveries) == (2, 0)
        assert not leaves.first.last.reused


@EXCEPTIONS
def test_an_interrupt_in_the_retry_counts_no_recovery(
    authority: Authority, certificate: Issued, exception: Interrupt
) -> None:
    reached = Event()

    def script(session: Session) -> None:
        read_request(session)
        if session.number == 2:
            reached.set()
            session.wait_for_end()
        session.send(reply(RESPONSE))
        read_request(session)

    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        interrupt(leaves.first, reached, exception)
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert (peer.accepts, leaves.stats.recoveries) == (3, 0)


def test_a_timer_of_the_callers_ends_an_exchange_whose_body_never_ends(
    authority: Authority, certificate: Issued
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        read_request(session)
        session.send(head(DNS_MESSAGE, "Content-Length: 65535"))
        try:
            while True:
                session.send(b"x")
                gevent.sleep(0.001)
        finally:
            ended.set()

    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        timer = gevent.Timeout(0.05)
        with pytest.raises(gevent.Timeout) as raised, timer:
            exchanged(leaves.first, QUERY)
        assert raised.value is timer
        assert ended.wait(5)


def test_one_killed_exchange_disturbs_no_other_of_its_site(
    authority: Authority, certificate: Issued
) -> None:
    gate = Event()
    asked: list[int] = []

    def script(session: Session) -> None:
        query = read_request(session).body
        asked.append(session.number)
        gate.wait()
        session.send(reply(make_response(query)))
        well_behaved()(session)

    queries = [make_query(f"host{n}.example.com") for n in range(4)]
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority, count=4) as leaves,
    ):
        tasks = [
            gevent.spawn(exchanged, leaf, query)
            for leaf, query in zip(leaves.all, queries, strict=True)
        ]
        eventually(lambda: len(asked) == 4)
        tasks[1].kill()
        gate.set()
        gevent.joinall(tasks)
        outcomes = [task.value for task in tasks]
        assert isinstance(outcomes.pop(1), gevent.GreenletExit)
        assert outcomes == [make_response(query) for query in queries[:1] + queries[2:]]


def test_hundreds_of_kills_at_any_moment_leave_no_descriptor_and_mix_no_answers_up(
    authority: Authority, certificate: Issued
) -> None:
    rand = random.Random(8484)

    def script(session: Session) -> None:
        while True:
            query = read_request(session).body
            answer = reply(make_response(query, "192.0.2.1"))
            cut = rand.randrange(len(answer))
            for piece in (answer[:cut], answer[cut:]):
                for _ in range(rand.randrange(3)):
                    gevent.sleep(0)
                if piece:
                    session.send(piece)

    killed = escaped = 0
    with no_descriptor_left(), ExitStack() as stack:
        peer = stack.enter_context(TlsPeer(certificate.openssl_context(), script))
        leaves = stack.enter_context(leaves_at(peer.port, authority, count=4))
        while killed < 300:
            queries = [make_query(f"n{killed}.example.com", id_=n) for n in range(4)]
            tasks = [
                gevent.spawn(exchanged, leaf, query)
                for leaf, query in zip(leaves.all, queries, strict=True)
            ]
            for victim in rand.sample(tasks, 3):
                gevent.sleep(rand.random() * rand.choice([0.0, 0.001, 0.004]))
                victim.kill()
            gevent.joinall(tasks, raise_error=True, timeout=10)
            for task, query in zip(tasks, queries, strict=True):
                if isinstance(task.value, gevent.GreenletExit):
                    killed += 1
                else:
                    assert task.value == make_response(query, "192.0.2.1")
                    escaped += 1
    assert escaped
