"""The exchanges that ride on one session: who waits, what answers whom, who pays for what. Pure.

A response is matched by its message ID and its question. IDs are the session's own: two clients
may have chosen the same one. What an ID can be, when a response comes with it::

    waiting             the response of that rider, if it answers its question
    retired             late: its rider has given up, or has its answer; counted, ignored
    neither             nobody asked: WrongId, and whose it was meant to be is the oldest's guess

A rider takes the fault only of what was its own: a bad answer to it, or a response that had begun
when the session died. The others are told to ride on, on the next session, as far as that can
not hide a sick upstream: see :meth:`Pipeline.verdicts`.
"""

from collections.abc import Callable
from typing import Final

from nxdns.dns.framing import PREFIX_LENGTH
from nxdns.dns.packet import Packet
from nxdns.units import NS_PER_SECOND
from nxdns.upstream.depth import PIPELINE_DEPTH
from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.exchange import REST
from nxdns.upstream.retry import Decision, retry_decision
from nxdns.upstream.rider import Ending, Rider, Verdicts
from nxdns.upstream.validate import validate_response

# A resolver that cannot reach an authority says so after 10 to 30 s, long after we have given up.
# That is late, and no reason to end the session under others.
RETIRED_NS: Final = 60 * NS_PER_SECOND

# Answers remembered, so that one which comes twice is known for what it is. Twice as many at most.
_ANSWERED: Final = 256

_ID_OCTETS: Final = 2
_SMALLEST: Final = PREFIX_LENGTH + _ID_OCTETS  # octets of a frame that says whose it is
_ID_MASK: Final = 0xFFFF

EMPTY_MESSAGE: Final = Fault(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE)
WRONG_ID: Final = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)
NO_MESSAGE_ID: Final = Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED)


class Pipeline:
    """What rides on one open session. Times are monotonic nanoseconds, given by the caller."""

    __slots__ = (
        "_answered",
        "_answered_before",
        "_begun_at",
        "_draw_id",
        "_idle_since",
        "_needed",
        "_rest",
        "_retired",
        "answered",
        "answered_late",
        "last_answer_at",
        "last_byte_at",
        "late",
        "redialled_for",
        "strict",
        "surplus",
        "waiting",
        "waiting_since",
    )

    def __init__(self, draw_id: Callable[[], int], *, strict: bool) -> None:
        """``draw_id`` gives integers in [0, 65536). ``strict`` is for a session that carries one
        exchange at a time: there, a byte more than the answer is one that nobody asked for."""
        self._draw_id = draw_id
        self.strict = strict
        #: In the order of boarding, by message ID.
        self.waiting: dict[int, Rider] = {}
        #: Exchanges that were answered on this session.
        self.answered = 0
        #: Answers that came to somebody who had given up: the server did answer.
        self.answered_late = 0
        #: Answers that came when nobody waited for them any more.
        self.late = 0
        #: Whether bytes have come that nobody waits for: not a session for the next query.
        self.surplus = False
        #: Whether somebody boarded who was thrown off a session that had answered others, and
        #: somebody has waited ever since.
        self.redialled_for = False
        #: When the first of those waiting boarded an empty session.
        self.waiting_since = 0
        self.last_byte_at = 0
        self.last_answer_at = 0
        #: When each of them gave up, on a clock that stands still while nobody waits.
        self._retired: dict[int, int] = {}
        self._idle_since = 0
        self._answered: set[int] = set()
        self._answered_before: set[int] = set()
        self._rest = bytearray()
        self._needed = 0
        self._begun_at = 0

    def board(self, rider: Rider, now: int) -> None:
        """Give ``rider`` a message ID of its own, and the message to send."""
        waiting = self.waiting
        if not waiting:
            if self._retired:
                self._stop_clock(now - self._idle_since)
            self.waiting_since = now
            self.redialled_for = False
        if rider.thrown_off_by is not None:
            self.redialled_for = True
        message_id = self._draw_id()
        if message_id in waiting or message_id in self._retired:
            message_id = self._next_free(message_id, now)
        waiting[message_id] = rider
        rider.message_id = message_id
        rider.boarded_at = now
        rest = rider.query[_ID_OCTETS:]
        length = _ID_OCTETS + len(rest)
        rider.frame = (length << 16 | message_id).to_bytes(_SMALLEST, "big") + rest

    def _stop_clock(self, idle_ns: int) -> None:
        """Nobody read while nobody waited: what is read next may have come at any time since."""
        self._retired = {each: at + idle_ns for each, at in self._retired.items()}

    def _next_free(self, message_id: int, now: int) -> int:
        self._forget_retired(now)
        while message_id in self.waiting or message_id in self._retired:
            message_id = (message_id + 1) & _ID_MASK
        return message_id

    def _forget_retired(self, now: int) -> None:
        retired = self._retired
        while retired:
            oldest = next(iter(retired))
            if now - retired[oldest] <= RETIRED_NS:
                return
            del retired[oldest]

    def abandon(self, rider: Rider, now: int) -> None:
        """``rider`` waits no longer: what still comes for it is late."""
        if self.waiting.get(rider.message_id) is rider:
            del self.waiting[rider.message_id]
            self._forget_retired(now)
            self._retired[rider.message_id] = now
            if not self.waiting:
                self._idle_since = now

    def silent_for(self, now: int) -> int:
        """Nanoseconds for which somebody has waited and no byte has come."""
        return now - max(self.last_byte_at, self.waiting_since) if self.waiting else 0

    def unanswered_for(self, now: int) -> int:
        """Nanoseconds for which somebody has waited and nobody was answered."""
        return now - max(self.last_answer_at, self.waiting_since) if self.waiting else 0

    def feed(self, plaintext: bytes, now: int) -> tuple[list[tuple[Rider, Packet]], Ending | None]:
        """Take in what the session gave: the answers in it, and its end if that was bad.

        Whoever got an answer waits no longer; whom the end concerns is still among ``waiting``.
        """
        self.last_byte_at = begun_at = now
        data = plaintext
        if self._rest:
            self._rest += plaintext
            if len(self._rest) < self._needed:
                return [], None
            data = bytes(self._rest)
            self._rest.clear()
            begun_at = self._begun_at
        answers: list[tuple[Rider, Packet]] = []
        ending: Ending | None = None
        waiting = self.waiting
        read_at = now if waiting else self._idle_since
        start, size = 0, len(data)
        while size - start >= _SMALLEST and ending is None:
            end = start + PREFIX_LENGTH + (data[start] << 8 | data[start + 1])
            if end > size or end - start < _SMALLEST:
                break
            message_id = data[start + 2] << 8 | data[start + 3]
            rider = waiting.get(message_id)
            if rider is None:
                message = data[start + PREFIX_LENGTH : end]
                ending = self._unexpected(message_id, message, read_at)
                start = end
                begun_at = now
                continue
            query = rider.query
            answer = validate_response(
                query, query[:_ID_OCTETS] + data[start + _SMALLEST : end], rider.question_end
            )
            if isinstance(answer, Fault):
                ending = Ending(answer, rider)
            else:
                del waiting[message_id]
                self._answered.add(message_id)
                waited_ns = begun_at - rider.boarded_at - rider.send_ns
                rider.first_byte_ns = waited_ns if waited_ns > 0 else 0
                rider.rest_ns = now - begun_at
                answers.append((rider, answer))
            start = end
            begun_at = now
        if answers:
            self.answered += len(answers)
            self.last_answer_at = now
            if not waiting:
                self._idle_since = now
            if len(self._answered) >= _ANSWERED:
                self._answered_before, self._answered = self._answered, set()
        if start < size and ending is None:
            ending = self._keep(data[start:], begun_at)
        return answers, ending

    def _keep(self, rest: bytes, begun_at: int) -> Ending | None:
        """Keep the beginning of a message, or end the session for one that can be none."""
        self._needed = PREFIX_LENGTH
        if len(rest) >= PREFIX_LENGTH:
            length = rest[0] << 8 | rest[1]
            self._needed += length
            if length < _ID_OCTETS and len(rest) >= self._needed:
                return Ending(NO_MESSAGE_ID if length else EMPTY_MESSAGE, self._oldest())
        self._rest += rest
        self._begun_at = begun_at
        if not self.waiting and not self._retired:
            self.surplus = True
        rider = self._begun()
        if rider is not None:
            rider.first_byte_ns = max(0, begun_at - rider.boarded_at - rider.send_ns)
            rider.phase = REST
        return None

    def _unexpected(self, message_id: int, message: bytes, read_at: int) -> Ending | None:
        """A message whose ID is nobody's who waits. ``read_at`` is on the clock of ``_retired``."""
        if self.strict and not self.waiting:
            self.surplus = True
            return None
        self._forget_retired(read_at)
        if self._was_issued(message_id):
            self.late += 1
            if message_id in self._retired:
                self.answered_late += 1
            return None
        oldest = self._oldest()
        if oldest is None:
            self.surplus = True
            return None
        outcome = validate_response(oldest.message, message)
        return Ending(outcome if isinstance(outcome, Fault) else WRONG_ID, oldest)

    def _was_issued(self, message_id: int) -> bool:
        """Whether this is the ID of one that has given up, or has its answer."""
        return (
            message_id in self._retired
            or message_id in self._answered
            or message_id in self._answered_before
        )

    def _oldest(self) -> Rider | None:
        return next(iter(self.waiting.values()), None)

    def _begun(self) -> Rider | None:
        """Whose response has begun to arrive. Nobody's who boarded only after that."""
        rider = self._owner_of_rest()
        return rider if rider is not None and rider.boarded_at <= self._begun_at else None

    def _owner_of_rest(self) -> Rider | None:
        """Whose it is by its ID, or the oldest's if that is nobody's.

        A server that answers in the order of the queries answers the oldest next.
        """
        rest = self._rest
        if not rest:
            return None
        if len(rest) < PREFIX_LENGTH + _ID_OCTETS:
            return self._oldest()
        message_id = rest[PREFIX_LENGTH] << 8 | rest[PREFIX_LENGTH + 1]
        rider = self.waiting.get(message_id)
        return rider if rider is not None or self._was_issued(message_id) else self._oldest()

    def verdicts(self, ending: Ending) -> Verdicts:
        """What the end of the session means for each that waits, who then waits no longer.

        * Of a bad answer the one that it was for takes the fault; the others ride on, once.
        * Of a session that the peer has ended, those ride on that :func:`retry_decision` lets:
          it had answered somebody before, and nothing of their own response had come. A fresh
          session that answers nobody is final, which bounds it all: each new try is paid for by
          an answer to somebody.
        """
        culprit = ending.culprit if ending.ours else self._begun()
        outcome = Verdicts(ending.fault)
        answers = self.answered + self.answered_late
        for rider in self.waiting.values():
            if rider is culprit:
                outcome.final.append(rider)
            elif ending.ours:
                (outcome.final if rider.spared else outcome.riding_on).append(rider)
                rider.spared = True
            elif (
                retry_decision(reused=answers > 0, bytes_received=0, cause=ending.fault.cause)
                is Decision.RETRY
            ):
                rider.thrown_off_by = ending.fault
                outcome.riding_on.append(rider)
            else:
                outcome.final.append(rider)
        # Twice in a row behind a few answers: this server closes behind them. One that closes
        # behind more than it can be asked at once is no worse off for being asked so much.
        outcome.serial = (
            self.redialled_for
            and not ending.ours
            and 0 < answers < PIPELINE_DEPTH
            and bool(outcome.riding_on)
        )
        self.waiting.clear()
        return outcome
