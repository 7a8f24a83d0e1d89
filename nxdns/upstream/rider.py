"""One exchange on a session, and what the end of that session means for it. Pure."""

from typing import Any

from nxdns.dns.framing import PREFIX_LENGTH
from nxdns.upstream.errors import Fault
from nxdns.upstream.exchange import DIAL, ExchangeInfo


class Rider(ExchangeInfo):
    """One exchange on its way, and afterwards what is known of it."""

    __slots__ = (
        "boarded_at",
        "frame",
        "message_id",
        "query",
        "question_end",
        "spared",
        "thrown_off_by",
        "waiter",
    )

    def __init__(self, query: bytes, question_end: int = 0) -> None:
        """``question_end`` is what :func:`~nxdns.dns.hop.complete` says of ``query``."""
        # What ExchangeInfo's does, spelled out: this is the path of every query.
        self.reused = False
        self.tls_version = self.hint = ""
        self.opened_at = 0
        self.phase = DIAL
        self.dial_ns = self.tls_ns = self.send_ns = self.first_byte_ns = self.rest_ns = 0
        self.query = query
        self.question_end = question_end
        #: Who waits for the outcome; None while nobody does.
        self.waiter: Any = None
        #: How the last session ended that was stale under it, and that it was redialled for.
        self.thrown_off_by: Fault | None = None
        #: Whether it has already ridden on from a session that *we* ended for another's fault.
        self.spared = False
        self.message_id = 0
        self.boarded_at = 0
        #: The query as it is sent: with its length prefix, and the ID that it has on the session.
        self.frame = b""

    @property
    def message(self) -> bytes:
        """The query, with the ID that it has on the session."""
        return self.frame[PREFIX_LENGTH:]


class Ending:
    """Why a session ends, and whose answer it was if that is why."""

    __slots__ = ("culprit", "fault", "ours")

    def __init__(
        self, fault: Fault, culprit: Rider | None = None, *, by_peer: bool = False
    ) -> None:
        self.fault = fault
        self.culprit = culprit
        #: Whether we end it, for a bad answer.
        self.ours = not by_peer


class Verdicts:
    """What became of those that waited on a session that has ended."""

    __slots__ = ("fault", "final", "riding_on", "serial")

    def __init__(self, fault: Fault) -> None:
        #: That of all who are in ``final``.
        self.fault = fault
        self.final: list[Rider] = []
        self.riding_on: list[Rider] = []
        #: Whether the upstream has shown that it closes behind its answers.
        self.serial = False
