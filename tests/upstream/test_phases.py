"""The phase ledger: the time of every exchange is booked, and to the phase that it went to."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import monotonic_ns
from typing import Any

import gevent
import pytest
from gevent import socket

from nxdns.snapshots import FlightSnapshot
from nxdns.upstream.exchange import DIAL, FIRST_BYTE, QUEUE, REST, SEND, TLS
from nxdns.upstream.history import History
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import (
    Leaf,
    LocalKind,
    LocalResource,
    PeerFault,
    Phase,
)
from tests.support.authority import Authority, Issued
from tests.support.dot_leaves import dot_leaf
from tests.support.fake_leaves import (
    MS,
    RESET,
    SECOND,
    GatedLeaf,
    ManualClock,
    ScriptedLeaf,
    entry_of,
    pool_of,
)
from tests.support.http_peer import (
    FixedLookup,
    TcpPeer,
    accept_tls,
    blackhole,
    leaves_at,
    read_request,
    reply,
    small_send_buffers,
)
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query(id_=4711)
HOLD_SECONDS = 0.05
BUDGET_NS = 250 * MS
PATIENT_NS = 10 * SECOND


class Wire:
    """What DoT and DoH have in common, for a peer's script."""

    def __init__(
        self, read: Callable[[Session], bytes], wrap: Callable[[Session, bytes], bytes]
    ) -> None:
        self.read = read
        self.wrap = wrap

    def answer(self, session: Session) -> None:
        session.send(self.wrap(session, make_response(self.read(session), "192.0.2.1")))


DOT = Wire(lambda session: session.read_query(), lambda _, body: len(body).to_bytes(2) + body)
DOH = Wire(lambda session: read_request(session).body, lambda _, body: reply(body))
WIRES = pytest.mark.parametrize("wire", [pytest.param(DOT, id="dot"), pytest.param(DOH, id="doh")])


class House:
    """A pool of one upstream with one leaf, and its ledger."""

    def __init__(self, leaf: Leaf, history: History, *, attempt_ns: int, depth: int) -> None:
        self.history = history
        self.entry = entry_of(leaf, clock=monotonic_ns, history=history, depth=depth)
        self.pool: UpstreamPool = pool_of(
            self.entry, clock=monotonic_ns, attempt_ns=attempt_ns, total_ns=20 * SECOND
        )

    def exchange(self, query: bytes = QUERY) -> list[int]:
        """The phases of one exchange, which must sum to its time."""
        history = self.history
        before = history.phases_ns[:]
        counted = self._counted()
        began = monotonic_ns()
        died_in = self._ask(query)
        took = monotonic_ns() - began
        phases = [now - then for now, then in zip(history.phases_ns, before, strict=True)]
        assert sum(phases) - phases[QUEUE] == self._counted() - counted
        assert died_in in (None, self.last.ended_in)
        assert 0 < sum(phases) <= took
        assert min(phases) >= 0
        assert self.booked == history.phases_ns
        return phases

    def _ask(self, query: bytes) -> str | None:
        """The phase in which it failed."""
        try:
            self.pool.exchange(query)
        except PeerFault as error:
            return "nowhere" if error.phase is None else error.phase.label
        return None

    def _counted(self) -> int:
        """What the histogram has seen, which leaves the queue out."""
        return self.history.durations._sum_ns

    @property
    def booked(self) -> list[int]:
        """As the snapshot tells it, in nanoseconds."""
        [seen] = self.pool.snapshot(0.0)
        assert list(seen.phase_seconds) == ["queue", "dial", "tls", "send", "first_byte", "rest"]
        return [round(seconds * SECOND) for seconds in seen.phase_seconds.values()]

    @property
    def last(self) -> FlightSnapshot:
        return self.pool.flight(0)[0]


@contextmanager
def house_at(
    wire: Wire,
    port: int,
    authority: Authority,
    *,
    attempt_ns: int = PATIENT_NS,
    depth: int = 1,
    lookup: FixedLookup | None = None,
) -> Iterator[House]:
    history = History()
    if wire is DOT:
        leaf = dot_leaf(authority, port, history.sessions, depth=depth)
        with closing(leaf):
            yield House(leaf, history, attempt_ns=attempt_ns, depth=depth)
        return
    host = "127.0.0.1" if lookup is None else "named.test"
    with leaves_at(
        port,
        authority,
        host=host,
        resolver=lookup,
        attempt_seconds=attempt_ns / SECOND,
    ) as leaves:
        history.sessions = leaves.stats
        yield House(leaves.first, history, attempt_ns=attempt_ns, depth=1)


@contextmanager
def house(
    wire: Wire,
    authority: Authority,
    certificate: Issued,
    script: Callable[[Session], None],
    **how: Any,
) -> Iterator[House]:
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        house_at(wire, peer.port, authority, **how) as at,
    ):
        yield at


def hold(held: list[int]) -> None:
    """Let the client wait, and note for how long."""
    began = monotonic_ns()
    gevent.sleep(HOLD_SECONDS)
    held.append(monotonic_ns() - began)


# Answers.


@WIRES
def test_a_fresh_exchange_dials_shakes_hands_sends_and_waits_and_a_reused_one_does_not_dial(
    authority: Authority, certificate: Issued, wire: Wire
) -> None:
    held: list[int] = []

    def script(session: Session) -> None:
        while True:
            query = wire.read(session)
            hold(held)
            session.send(wire.wrap(session, make_response(query, "192.0.2.1")))

    with house(wire, authority, certificate, script) as at:
        fresh = at.exchange()
        assert min(fresh[DIAL], fresh[TLS], fresh[SEND]) > 0
        assert fresh[FIRST_BYTE] >= held[0]
        assert not at.last.reused
        reused = at.exchange()
        assert (reused[DIAL], reused[TLS]) == (0, 0)
        assert reused[SEND] > 0
        assert reused[FIRST_BYTE] >= held[1]
        assert at.last.reused
        assert not at.last.failed
        assert at.last.outcome == "NOERROR"


@WIRES
def test_an_answer_that_comes_in_two_pieces_has_a_rest(
    authority: Authority, certificate: Issued, wire: Wire
) -> None:
    held: list[int] = []

    def script(session: Session) -> None:
        message = wire.wrap(session, make_response(wire.read(session), "192.0.2.1"))
        session.send(message[:-4])
        hold(held)
        session.send(message[-4:])
        session.wait_for_end()

    with house(wire, authority, certificate, script) as at:
        phases = at.exchange()
        assert phases[REST] >= held[0] / 2


def test_one_that_boards_while_the_session_is_opened_and_one_that_rides_along_book_their_own(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        first, second = DOT.read(session), DOT.read(session)
        for query in (second, first):
            session.send(DOT.wrap(session, make_response(query, "192.0.2.1")))
        third, fourth = DOT.read(session), DOT.read(session)
        gevent.sleep(HOLD_SECONDS)
        for query in (third, fourth):
            session.send(DOT.wrap(session, make_response(query, "192.0.2.1")))
        session.wait_for_end()

    with house(DOT, authority, certificate, script, depth=4) as at:
        for dialled in (True, False):
            asking = [gevent.spawn(at.pool.exchange, make_query(f"{n}.example")) for n in "ab"]
            gevent.joinall(asking, raise_error=True)
            for flight in at.pool.flight(0)[:2]:
                assert (flight.phase_seconds[DIAL] > 0) is dialled
                assert (flight.phase_seconds[TLS] > 0) is dialled
                assert flight.phase_seconds[FIRST_BYTE] > 0
        phases = at.history.phases_ns
        assert sum(phases) - phases[QUEUE] == at._counted()


@WIRES
def test_a_redialled_exchange_books_the_wait_on_the_stale_session_too(
    authority: Authority, certificate: Issued, wire: Wire
) -> None:
    held: list[int] = []

    def script(session: Session) -> None:
        wire.answer(session)
        if session.number == 1:
            wire.read(session)
            hold(held)
            session.truncate()
            return
        session.wait_for_end()

    def fresh_ones(session: Session) -> None:
        if session.number == 2:
            wire.answer(session)
            session.wait_for_end()
        script(session)

    with house(wire, authority, certificate, fresh_ones) as at:
        at.exchange()
        phases = at.exchange()
        assert at.history.sessions.recoveries == 1
        assert phases[FIRST_BYTE] >= held[0]
        assert min(phases[DIAL], phases[TLS], phases[SEND]) > 0
        assert not at.last.reused
        assert not at.last.failed


# Expiries of a full attempt: what no phase accounts for goes to the one that it ended in.


def assert_ended_in(at: House, phases: list[int], phase: int) -> None:
    assert at.last.failed
    assert at.last.outcome == "Timeout (cause Timeout)"
    assert at.last.ended_in == Phase(phase).label
    assert phases[phase] > 0
    assert sum(phases) >= BUDGET_NS
    assert all(not phases[later] for later in range(phase + 1, len(Phase)))


@WIRES
def test_an_attempt_that_expires_while_it_dials_is_booked_to_the_dial(
    authority: Authority, wire: Wire
) -> None:
    with blackhole() as port, house_at(wire, port, authority, attempt_ns=BUDGET_NS) as at:
        assert_ended_in(at, at.exchange(), DIAL)


@WIRES
def test_one_that_expires_in_the_handshake_is_booked_to_it(
    authority: Authority, wire: Wire
) -> None:
    with (
        TcpPeer(lambda sock: sock.recv(1) and gevent.sleep(30)) as peer,
        house_at(wire, peer.port, authority, attempt_ns=BUDGET_NS) as at,
    ):
        phases = at.exchange()
        assert_ended_in(at, phases, TLS)
        assert phases[DIAL] > 0


def test_one_that_joins_in_the_handshake_and_expires_there_is_booked_to_it(
    authority: Authority,
) -> None:
    def connected() -> bool:
        session = at.entry.slots.leaves[0]._session  # type: ignore[attr-defined]
        return session is not None and session._connected

    with (
        TcpPeer(lambda sock: sock.recv(1) and gevent.sleep(30)) as peer,
        house_at(DOT, peer.port, authority, attempt_ns=BUDGET_NS, depth=4) as at,
    ):
        first = gevent.spawn(at._ask, QUERY)
        eventually(connected)
        joining = gevent.spawn(at._ask, QUERY)
        gevent.joinall([first, joining])
        latest, _ = at.pool.flight(0)
        assert joining.value == latest.ended_in == "tls"
        assert latest.phase_seconds[DIAL] == 0
        assert latest.outcome == "Timeout (cause Timeout)"


@WIRES
def test_one_that_expires_while_it_sends_is_booked_to_the_sending(
    authority: Authority, certificate: Issued, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_send_buffers(monkeypatch)
    large = bytearray(big_response(QUERY, 65535))
    large[2] &= 0x7F  # QR
    context = certificate.openssl_context()

    def deaf(sock: Any) -> None:
        session = accept_tls(sock, context)
        session.handshake()
        gevent.sleep(30)

    with (
        TcpPeer(deaf, receive_buffer=4096) as peer,
        house_at(wire, peer.port, authority, attempt_ns=BUDGET_NS) as at,
    ):
        assert_ended_in(at, at.exchange(bytes(large)), SEND)


@WIRES
def test_one_that_expires_while_it_waits_is_booked_to_the_wait(
    authority: Authority, certificate: Issued, wire: Wire
) -> None:
    def script(session: Session) -> None:
        wire.read(session)
        session.wait_for_end()

    with house(wire, authority, certificate, script, attempt_ns=BUDGET_NS) as at:
        phases = at.exchange()
        assert_ended_in(at, phases, FIRST_BYTE)
        assert min(phases[DIAL], phases[TLS], phases[SEND]) > 0


@WIRES
def test_one_that_expires_in_the_middle_of_a_message_is_booked_to_the_rest(
    authority: Authority, certificate: Issued, wire: Wire
) -> None:
    def script(session: Session) -> None:
        message = wire.wrap(session, make_response(wire.read(session), "192.0.2.1"))
        session.send(message[:-4])
        session.wait_for_end()

    with house(wire, authority, certificate, script, attempt_ns=BUDGET_NS) as at:
        phases = at.exchange()
        assert_ended_in(at, phases, REST)
        assert phases[FIRST_BYTE] > 0


@WIRES
def test_a_fault_books_what_is_left_to_the_phase_that_it_ended_in(
    authority: Authority, certificate: Issued, wire: Wire
) -> None:
    held: list[int] = []

    def script(session: Session) -> None:
        wire.read(session)
        hold(held)
        session.reset()

    with house(wire, authority, certificate, script) as at:
        phases = at.exchange()
        assert at.last.failed
        assert at.last.ended_in == "first_byte"
        assert phases[FIRST_BYTE] >= held[0]


def test_a_second_address_that_does_not_answer_is_a_dial_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the first one had come as far as its handshake."""
    with blackhole("127.0.0.2") as port:

        def refuse(sock: Any) -> None:
            sock.recv(1)

        with TcpPeer(refuse) as peer:
            real = socket.socket.connect

            def connect(self: Any, address: Any) -> Any:
                to = peer.port if address[0] == "127.0.0.1" else port
                return real(self, (address[0], to))

            monkeypatch.setattr(socket.socket, "connect", connect)
            lookup = FixedLookup(["127.0.0.1", "127.0.0.2"])
            with house_at(DOH, port, authority, attempt_ns=BUDGET_NS, lookup=lookup) as at:
                phases = at.exchange()
                assert peer.accepts == 1
                assert at.last.ended_in == "dial"
                assert phases[TLS] == 0
                assert phases[DIAL] == max(phases)


# The queue, and what is cut short: over fakes, with a clock that stands still.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def advancing(clock: ManualClock, milliseconds: int, outcome: object) -> Callable[[], Any]:
    def step() -> object:
        clock.advance(milliseconds * MS)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return step


def test_a_wait_for_a_slot_is_booked_to_the_queue(clock: ManualClock) -> None:
    leaf = GatedLeaf(make_response(QUERY))
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    asking = [gevent.spawn(pool.exchange, QUERY) for _ in range(2)]
    gevent.idle()
    clock.advance(70 * MS)
    leaf.gate.set()
    gevent.joinall(asking, raise_error=True)
    assert entry.history.phases_ns == [70 * MS, 0, 0, 0, 70 * MS, 0]
    assert [flight.phase_seconds[QUEUE] for flight in pool.flight(0)] == [0.07, 0.0]


def test_a_wait_for_a_slot_in_vain_is_booked_to_the_queue(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock, total_ns=30 * MS)
    holding = gevent.spawn(pool.exchange, QUERY)
    leaf.entered.wait()
    waiting = gevent.spawn(pool.exchange, QUERY)
    gevent.idle()
    clock.advance(30 * MS)
    waiting.join()
    assert isinstance(waiting.exception, PeerFault)
    assert waiting.exception.phase is Phase.QUEUE
    assert entry.history.phases_ns[QUEUE] == entry.history.queue.waited_ns == 30 * MS
    holding.kill()


def test_an_attempt_that_proves_nothing_is_booked_all_the_same(clock: ManualClock) -> None:
    lack = LocalResource(LocalKind.OUT_OF_MEMORY)
    leaf = ScriptedLeaf(advancing(clock, 40, lack))
    leaf.last.begin(reused=False, tls_version="")
    leaf.last.dial_ns = 10 * MS
    leaf.last.phase = TLS
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    with pytest.raises(LocalResource) as raised:
        pool.exchange(QUERY)
    assert raised.value.phase is Phase.TLS
    assert entry.history.phases_ns == [0, 10 * MS, 30 * MS, 0, 0, 0]
    assert pool.flight(0) == ()
    assert entry.health.revision == 0


def test_a_budget_that_an_earlier_upstream_used_up_died_where_that_one_did(
    clock: ManualClock,
) -> None:
    first = ScriptedLeaf(advancing(clock, 50, RESET))
    first.last.phase = FIRST_BYTE
    entries = [entry_of(leaf, clock=clock) for leaf in (first, ScriptedLeaf())]
    with pytest.raises(LocalResource) as raised:
        pool_of(*entries, clock=clock, total_ns=50 * MS).exchange(QUERY)
    assert raised.value.kind is LocalKind.BUDGET_EXHAUSTED
    assert raised.value.phase is Phase.FIRST_BYTE


def test_a_kill_is_booked_nowhere(clock: ManualClock) -> None:
    leaf = GatedLeaf()
    entry = entry_of(leaf, clock=clock)
    pool = pool_of(entry, clock=clock)
    asking = gevent.spawn(pool.exchange, QUERY)
    leaf.entered.wait()
    clock.advance(MS)
    asking.kill()
    assert entry.history.phases_ns == [0] * len(Phase)
    assert pool.flight(0) == ()
