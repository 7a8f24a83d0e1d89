"""The whole forwarder with more queries than sessions: serial, closing and broken upstreams."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import gevent
import pytest
from gevent.event import Event
from gevent.pool import Pool

from nxdns.app import App
from nxdns.cli import burst
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.riders import GatedPeer, answer
from tests.support.tls_peer import Script, Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SESSIONS = 8
NAMES = 30
MANY = 200

# Eight sessions at a time are four waves, where one session would be thirty; what is between is a
# margin for eight handshakes and a busy machine.
_WAVES_ALLOWED = 12.0


@contextmanager
def forwarding_to(peer: TlsPeer, folder: Path, authority: Authority) -> Iterator[App]:
    body = f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'
    with running(folder, authority.ca_file, [body]) as app:
        yield app


def rcode_of(app: App, name: str = "www.example.com") -> dns.rcode.Rcode:
    return dns.message.from_wire(ask_udp(address_of(app), make_query(name))).rcode()


def answer_serially(seconds: float) -> Script:
    """One query at a time on each session: what comes meanwhile waits."""

    def slowly(query: bytes) -> bytes:
        gevent.sleep(seconds)
        return answer(query)

    return answer_all(slowly)


# One query at a time.


def test_an_upstream_that_answers_one_at_a_time_clears_thirty_names_in_four_waves(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answer_serially(0.05)) as peer,
        forwarding_to(peer, tmp_path, authority) as app,
    ):
        cold = burst.ask(address_of(app), NAMES)
        started = time.monotonic()
        rcode_of(app)
        single_ms = (time.monotonic() - started) * 1000
        warm = burst.ask(address_of(app), NAMES)
        snapshot = app.snapshot()[0]
        assert cold.ok
        assert warm.ok
        assert cold.wall_ms <= _WAVES_ALLOWED * single_ms
        assert warm.wall_ms <= _WAVES_ALLOWED * single_ms
        assert snapshot.peak_in_flight == NAMES
        assert (snapshot.queued_total, snapshot.failures_total) == (0, 0)
        assert snapshot.dials_total == peer.accepts == SESSIONS


def test_two_hundred_names_at_once_are_all_answered_one_at_a_time(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answer_serially(0.005)) as peer,
        forwarding_to(peer, tmp_path, authority) as app,
    ):
        for _ in range(2):
            assert burst.ask(address_of(app), MANY).ok
        snapshot = app.snapshot()[0]
        assert snapshot.successes_total == 2 * MANY
        assert (snapshot.queued_total, snapshot.failures_total) == (0, 0)
        assert snapshot.dials_total == peer.accepts == SESSIONS


# Handshakes.


def test_queries_that_arrive_while_sessions_open_ride_on_their_handshakes(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with (
        GatedPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        forwarding_to(peer, tmp_path, authority) as app,
    ):
        # In two lots: the second one finds every session begun, and none open.
        asking = gevent.spawn(burst.ask, address_of(app), SESSIONS)
        eventually(lambda: peer.accepts == SESSIONS)
        more = gevent.spawn(burst.ask, address_of(app), MANY)
        eventually(lambda: app.snapshot()[0].in_flight == SESSIONS + MANY)
        gevent.idle()
        snapshot = app.snapshot()[0]
        assert (snapshot.dials_total, snapshot.open_sessions) == (SESSIONS, 0)
        peer.gate.set()
        assert asking.get().ok
        assert more.get().ok
        snapshot = app.snapshot()[0]
        assert snapshot.dials_total == peer.accepts == snapshot.open_sessions == SESSIONS
        assert snapshot.queued_total == 0


# Closing behind answers.


@pytest.mark.timeout(120)
@pytest.mark.parametrize("answers", [1, 3])
def test_a_server_that_closes_behind_its_answers_serves_thirty_at_a_time_without_a_failure(
    tmp_path: Path, authority: Authority, certificate: Issued, answers: int
) -> None:
    queries = 1000
    gate, held = Event(), []
    gate.set()

    def script(session: Session) -> None:
        for _ in range(answers):
            query = session.read_query()
            if not gate.is_set():
                held.append(query)
                gate.wait()
            session.send_message(answer(query))

    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), script) as peer,
        forwarding_to(peer, tmp_path, authority) as app,
    ):
        rcodes: list[int] = []

        def client() -> None:
            rcodes.append(rcode_of(app))

        clients = Pool(NAMES)
        for _ in range(queries):
            clients.spawn(client)
        clients.join(raise_error=True)
        snapshot = app.snapshot()[0]
        assert rcodes == [dns.rcode.NOERROR] * queries
        assert (snapshot.successes_total, snapshot.failures_total) == (queries, 0)
        assert snapshot.reuse_recoveries_total > 0

        # So many ride on each session that some are thrown off a second time. From then on, and
        # for the time being, it is asked one at a time on each session, and the rest wait.
        assert burst.ask(address_of(app), 12 * SESSIONS).ok
        gate.clear()
        queued = app.snapshot()[0].queued_total
        asking = gevent.spawn(burst.ask, address_of(app), NAMES)
        eventually(lambda: len(held) == SESSIONS)
        gevent.idle()
        assert app.snapshot()[0].in_flight == SESSIONS
        gate.set()
        assert asking.get().ok
        assert app.snapshot()[0].queued_total >= queued + NAMES - SESSIONS
        assert app.snapshot()[0].failures_total == 0


# One fault.


def _another_question(query: bytes) -> bytes:
    return make_response(make_query("other.example.com", id_=int.from_bytes(query[:2], "big")))


def _another_id(query: bytes) -> bytes:
    response = bytearray(answer(query))
    response[0] ^= 0xFF
    return bytes(response)


def _zero_length(_query: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("bad_answer", [_another_question, _another_id, _zero_length])
def test_one_bad_answer_among_many_is_one_servfail(
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
    bad_answer: Callable[[bytes], bytes],
) -> None:
    names = 3 * SESSIONS
    heard: list[bytes] = []
    all_there = Event()
    bad: list[bytes] = []

    def script(session: Session) -> None:
        # Behind the first of each session, when all that shall ride on it are there.
        while True:
            query = session.read_query()
            heard.append(query)
            if len(heard) == SESSIONS:
                all_there.set()
            all_there.wait()
            gevent.idle()
            if not bad:
                bad.append(query)
                session.send(_framed(bad_answer(query)))
            else:
                session.send_message(answer(query))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        forwarding_to(peer, tmp_path, authority) as app,
    ):
        asking = [gevent.spawn(rcode_of, app, f"name{n}.example.com") for n in range(names)]
        gevent.joinall(asking, raise_error=True)
        rcodes = [each.value for each in asking]
        assert rcodes.count(dns.rcode.SERVFAIL) == 1
        assert rcodes.count(dns.rcode.NOERROR) == names - 1
        snapshot = app.snapshot()[0]
        assert (snapshot.failures_total, snapshot.successes_total) == (1, names - 1)
        assert not snapshot.tripped
        assert peer.accepts == SESSIONS + 1


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message
