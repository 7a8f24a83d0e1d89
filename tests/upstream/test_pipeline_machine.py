"""Sessions under everything a server may do: every exchange ends once, and rightly.

The model is the server's side of it. It knows where each message begins and ends because it made
it, and looks up whom it concerns in plain lists of what was asked and what became of it.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nxdns.dns.framing import frame
from nxdns.upstream.depth import PIPELINE_DEPTH
from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.pipeline import Pipeline
from nxdns.upstream.retry import LIFECYCLE
from nxdns.upstream.rider import Ending, Rider, Verdicts
from tests.support.fake_leaves import SECOND
from tests.support.messages import make_query, make_response

NAMES = ("a.example.com", "b.example.com", "mail.example.org")
DRAWN = 0xFFFE  # whatever is taken already is counted up from here, round the corner
FOREIGN = 0x0BAD  # no session ever gets that far
ATTEMPT = 2 * SECOND
LATE_FOR = 60 * SECOND

EMPTY = Fault(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE)
TRUNCATED = Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED)
WRONG_ID = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)
WRONG_NAME = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME)
EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


@dataclass(eq=False)
class Exchange:
    name: str
    rider: Rider
    #: What the client saw. Exactly one, in the end.
    outcomes: list[bytes | Fault | None] = field(default_factory=list)
    thrown_off: int = 0
    spared: int = 0


@dataclass(eq=False)
class Ask:
    """A query as it reached the server."""

    exchange: Exchange
    message_id: int
    at: int
    answered: bool = False
    gone_at: int | None = None

    @property
    def waits(self) -> bool:
        return not self.answered and self.gone_at is None


@dataclass(eq=False)
class Message:
    """What the server sends; ``begun_at`` is when its first octet arrived."""

    octets: bytes
    message_id: int | None = None
    name: str = ""
    #: Of a message that is none; whoever it concerns.
    flaw: Fault | None = None
    arrived: int = 0
    begun_at: int = 0


class Session:
    """One session as the server sees it."""

    def __init__(self, now: int) -> None:
        self.pipeline = Pipeline(lambda: DRAWN, strict=False)
        self.asks: list[Ask] = []
        self.sending: list[Message] = []
        self.late = 0
        self.answered_late = 0
        self.last_byte_at = now
        self.last_answer_at = now
        self.busy_since = now
        #: Whether it was dialled for some that another had thrown off, and has been busy since.
        self.redialled_for = False

    @property
    def waiting(self) -> list[Ask]:
        return [ask for ask in self.asks if ask.waits]

    @property
    def has_answered(self) -> bool:
        return self.answers > 0

    @property
    def answers(self) -> int:
        """Those that came too late for anybody included: the server did answer."""
        return sum(bool(ask.answered) for ask in self.asks) + self.answered_late

    def gave_up(self, message_id: int, now: int) -> bool:
        return any(
            ask.gone_at is not None and now - ask.gone_at <= LATE_FOR
            for ask in self.asks
            if ask.message_id == message_id
        )

    def whose(self, message_id: int) -> Ask | None:
        return next((ask for ask in self.waiting if ask.message_id == message_id), None)

    def is_late(self, message_id: int, now: int) -> bool:
        return self.gave_up(message_id, now) or any(
            ask.answered for ask in self.asks if ask.message_id == message_id
        )

    def was_ever_asked(self, message_id: int) -> bool:
        return any(ask.message_id == message_id for ask in self.asks)


class Sessions(RuleBasedStateMachine):
    """One client, and one server after another."""

    @initialize()
    def dial(self) -> None:
        self.now = 1_000 * SECOND
        self.exchanges: list[Exchange] = []
        self.ended_sessions: list[Session] = []
        self.session = Session(self.now)
        self.addresses = 0

    # What clients do.

    @precondition(lambda self: len(self.session.waiting) < 12)
    @rule(
        asked=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2)), min_size=1, max_size=4)
    )
    def ask(self, asked: list[tuple[str, int]]) -> None:
        for name, client_id in asked:
            exchange = Exchange(name, Rider(make_query(name, id_=client_id)))
            self.exchanges.append(exchange)
            self.board(exchange)

    def board(self, exchange: Exchange) -> None:
        self.now += 1
        session, rider = self.session, exchange.rider
        if not session.waiting:
            session.busy_since = self.now
            # Nobody reads while nobody waits, so that time makes nothing late.
            for ask in session.asks:
                if ask.gone_at is not None:
                    ask.gone_at += self.now - session.last_answer_at
            session.redialled_for = False
        session.redialled_for |= exchange.thrown_off > 0
        session.pipeline.board(rider, self.now)
        message_id = int.from_bytes(rider.message[:2], "big")
        assert rider.message[2:] == rider.query[2:]
        assert session.whose(message_id) is None
        assert not any(
            ask.message_id == message_id
            and ask.gone_at is not None
            and self.now - ask.gone_at <= LATE_FOR
            for ask in session.asks
        ), "it was given to one that has given up since"
        session.asks.append(Ask(exchange, message_id, self.now))

    @precondition(lambda self: self.session.waiting)
    @rule(pick=st.integers(0, 11))
    def give_up(self, pick: int) -> None:
        """Killed, or its time is up; as in the sessions of a leaf."""
        self.now += 1
        session = self.session
        ask = session.waiting[pick % len(session.waiting)]
        silent_for = self.now - max(session.last_byte_at, session.busy_since)
        session.pipeline.abandon(ask.exchange.rider, self.now)
        ask.gone_at = self.now
        ask.exchange.outcomes.append(None)
        if not session.waiting:
            self.next_session()
        elif silent_for >= ATTEMPT:
            self.peer_ends(EXPIRED)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 3, 6]))
    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    # What a server does. It may send whatever it likes; it arrives later.

    def send(self, octets: bytes, message_id: int, name: str) -> None:
        self.session.sending.append(Message(octets, message_id, name))

    def answer(self, message_id: int, name: str) -> None:
        """No two answers are the same, so none can be taken for another."""
        self.addresses += 1
        address = f"10.{self.addresses >> 16}.{self.addresses >> 8 & 255}.{self.addresses & 255}"
        query = make_query(name, id_=message_id)
        self.send(frame(make_response(query, address)), message_id, name)

    @precondition(lambda self: self.session.waiting)
    @rule(picks=st.lists(st.integers(0, 11), min_size=1, max_size=4), capitals=st.booleans())
    def answer_some_that_wait(self, picks: list[int], capitals: bool) -> None:
        waiting = self.session.waiting
        for pick in picks:
            ask = waiting[pick % len(waiting)]
            name = ask.exchange.name
            self.answer(ask.message_id, name.upper() if capitals else name)

    @precondition(lambda self: self.session.asks)
    @rule(picks=st.lists(st.integers(0, 40), min_size=1, max_size=2))
    def answer_some_who_ever_asked(self, picks: list[int]) -> None:
        for pick in picks:
            ask = self.session.asks[pick % len(self.session.asks)]
            self.answer(ask.message_id, ask.exchange.name)

    @precondition(lambda self: self.session.asks)
    @rule(
        how=st.sampled_from(["zero", "one octet", "a piece", "another question", "another id"]),
        pick=st.integers(0, 40),
        length=st.integers(2, 11),
    )
    def send_what_is_no_answer(self, how: str, pick: int, length: int) -> None:
        ask = self.session.asks[pick % len(self.session.asks)]
        message_id, sending = ask.message_id, self.session.sending
        match how:
            case "zero":
                sending.append(Message(b"\0\0", flaw=EMPTY))
            case "one octet":
                sending.append(Message(b"\0\1x", flaw=TRUNCATED))
            case "a piece":
                octets = message_id.to_bytes(2, "big") + ask.exchange.rider.query[2:length]
                sending.append(Message(frame(octets), message_id, flaw=TRUNCATED))
            case "another question":
                self.answer(message_id, "elsewhere.example.net")
            case _:
                self.answer(FOREIGN, ask.exchange.name)

    # What arrives of it.

    @precondition(lambda self: self.session.sending)
    @rule(number=st.integers(1, 130))
    def some_octets_arrive(self, number: int) -> None:
        self.arrive(number)

    @precondition(lambda self: self.session.sending)
    @rule()
    def everything_arrives(self) -> None:
        self.arrive(sum(len(message.octets) for message in self.session.sending))

    def arrive(self, number: int) -> None:
        self.now += 1
        session = self.session
        self.read_at = self.now if session.waiting else session.last_answer_at
        plaintext, whole = self.take_from_the_wire(number)
        expected: list[tuple[Exchange, bytes]] = []
        bad: tuple[Fault, Exchange | None] | None = None
        foreign = False
        for message in whole:
            if bad is None:
                bad = self.judge(message, expected)
                foreign |= bad is None and not self.concerned_somebody
        late_before, answered_before = session.late, session.pipeline.answered
        answers, ending = session.pipeline.feed(plaintext, self.now)
        session.last_byte_at = self.now
        if expected:
            session.last_answer_at = self.now
        assert late_before <= session.pipeline.late == session.late
        assert session.pipeline.answered == answered_before + len(expected)
        assert [(rider, response.wire) for rider, response in answers] == [
            (exchange.rider, response) for exchange, response in expected
        ]
        for exchange, response in expected:
            assert exchange.rider.first_byte_ns >= 0
            assert exchange.rider.rest_ns >= 0
            exchange.outcomes.append(response)
        if bad is None:
            assert ending is None
        else:
            fault, charged = bad
            assert ending is not None
            assert ending.ours
            assert ending.fault == fault
            assert ending.culprit is (charged.rider if charged else None)
            self.we_end(ending, charged)
            return
        if session.pipeline.surplus:
            assert not session.waiting, "what one waits for is nothing that nobody waits for"
            self.next_session()
        else:
            assert not foreign, "the next query would get an answer that nobody asked for"

    def take_from_the_wire(self, number: int) -> tuple[bytes, list[Message]]:
        """Octets that arrive now, and the messages that are whole with them."""
        plaintext, whole = b"", []
        sending = self.session.sending
        while number and sending:
            message = sending[0]
            if not message.arrived:
                message.begun_at = self.now
            piece = message.octets[message.arrived : message.arrived + number]
            plaintext += piece
            number -= len(piece)
            message.arrived += len(piece)
            if message.arrived == len(message.octets):
                whole.append(sending.pop(0))
        return plaintext, whole

    def judge(
        self, message: Message, expected: list[tuple[Exchange, bytes]]
    ) -> tuple[Fault, Exchange | None] | None:
        """What a whole message means: an answer, something late, or the end of the session."""
        session = self.session
        self.concerned_somebody = True
        oldest = session.waiting[0].exchange if session.waiting else None
        if message.message_id is None:
            assert message.flaw is not None
            return message.flaw, oldest
        ask = session.whose(message.message_id)
        if ask is not None:
            if message.flaw is not None:
                return message.flaw, ask.exchange
            if message.name.lower() != ask.exchange.name:
                return WRONG_NAME, ask.exchange
            ask.answered = True
            query = ask.exchange.rider.query
            expected.append((ask.exchange, query[:2] + message.octets[4:]))
            return None
        if session.is_late(message.message_id, self.read_at):
            session.late += 1
            session.answered_late += session.gave_up(message.message_id, self.read_at)
            return None
        if oldest is not None:
            return message.flaw or WRONG_ID, oldest
        self.concerned_somebody = False
        return None

    # Ends of sessions.

    @rule(cause=st.sampled_from([*sorted(LIFECYCLE), Cause.TLS_ALERT]))
    def the_session_dies(self, cause: Cause) -> None:
        """At whatever octet it has come to."""
        self.now += 1
        self.peer_ends(Fault(FaultKind.RECEIVE_FAILED, cause))

    def peer_ends(self, fault: Fault) -> None:
        session = self.session
        waiting = session.waiting
        begun, is_sure = self.begun()
        verdicts = session.pipeline.verdicts(Ending(fault, by_peer=True))
        riding_on = [ask.exchange for ask in waiting if ask is not begun]
        if not is_sure:
            # Nobody's, or the oldest's: that it was given up is long enough ago to be forgotten.
            assert set(verdicts.final) <= {waiting[0].exchange.rider} or not session.has_answered
            riding_on = [a.exchange for a in waiting if a.exchange.rider not in verdicts.final]
        if not session.has_answered or fault.cause not in LIFECYCLE:
            riding_on = []
        closes_behind_answers = session.answers < PIPELINE_DEPTH
        assert verdicts.serial == (
            session.redialled_for and closes_behind_answers and bool(riding_on)
        )
        for exchange in riding_on:
            exchange.thrown_off += 1
        self.ride_on(verdicts, riding_on)

    def begun(self) -> tuple[Ask | None, bool]:
        """Whose response had begun, as far as a client can tell; and whether it can."""
        session = self.session
        head = session.sending[0] if session.sending else None
        if head is None or not head.arrived or not session.waiting:
            return None, True
        if head.arrived < 4 or head.message_id is None:
            ask: Ask | None = session.waiting[0]
        else:
            ask = session.whose(head.message_id)
            if ask is None and not session.is_late(head.message_id, self.now):
                if session.was_ever_asked(head.message_id):
                    return None, False
                ask = session.waiting[0]
        if ask is not None and ask.at > head.begun_at:
            return None, True
        return ask, True

    def we_end(self, ending: Ending, charged: Exchange | None) -> None:
        waiting = [ask.exchange for ask in self.session.waiting]
        verdicts = self.session.pipeline.verdicts(ending)
        riding_on = [exch for exch in waiting if exch is not charged and not exch.spared]
        assert not verdicts.serial, "that we end it says nothing of when the server would"
        for exchange in riding_on:
            exchange.spared += 1
        self.ride_on(verdicts, riding_on)

    def ride_on(self, verdicts: Verdicts, riding_on: list[Exchange]) -> None:
        """Everybody who waited has one verdict; those that ride on do so together."""
        waiting = [ask.exchange for ask in self.session.waiting]
        assert verdicts.riding_on == [exchange.rider for exchange in riding_on]
        final = [exchange for exchange in waiting if exchange not in riding_on]
        assert verdicts.final == [exchange.rider for exchange in final]
        for exchange in final:
            exchange.outcomes.append(verdicts.fault)
        for ask in self.session.waiting:
            ask.gone_at = self.now
        self.next_session()
        for exchange in riding_on:
            self.board(exchange)

    def next_session(self) -> None:
        self.ended_sessions.append(self.session)
        self.session = Session(self.now)

    # What holds at any time.

    @invariant()
    def the_session_knows_exactly_those_who_wait_in_the_order_of_their_boarding(self) -> None:
        session = self.session
        assert list(session.pipeline.waiting.items()) == [
            (ask.message_id, ask.exchange.rider) for ask in session.waiting
        ]

    @invariant()
    def a_session_is_silent_and_owes_an_answer_only_while_somebody_waits(self) -> None:
        session, now = self.session, self.now
        silent = now - max(session.last_byte_at, session.busy_since) if session.waiting else 0
        owing = now - max(session.last_answer_at, session.busy_since) if session.waiting else 0
        assert session.pipeline.silent_for(now) == silent
        assert session.pipeline.unanswered_for(now) == owing

    @invariant()
    def every_exchange_has_ended_once_or_waits(self) -> None:
        waiting = [ask.exchange for ask in self.session.waiting]
        for exchange in self.exchanges:
            assert len(exchange.outcomes) == (0 if exchange in waiting else 1)

    @invariant()
    def a_session_that_has_ended_has_nobody_on_it(self) -> None:
        for session in self.ended_sessions:
            assert not session.pipeline.waiting
            assert not session.waiting

    @invariant()
    def whoever_rides_on_was_paid_for_by_an_answer_or_has_been_spared_once(self) -> None:
        answering = sum(session.has_answered for session in self.ended_sessions)
        for exchange in self.exchanges:
            assert exchange.spared <= 1
            assert exchange.thrown_off <= answering

    def teardown(self) -> None:
        """Everyone gives up, and nothing is left."""
        if not hasattr(self, "session"):
            return
        while self.session.waiting:
            self.give_up(0)
        assert all(len(exchange.outcomes) == 1 for exchange in self.exchanges)
        self.a_session_that_has_ended_has_nobody_on_it()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
