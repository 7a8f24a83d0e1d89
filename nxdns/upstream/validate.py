"""Does this response answer that query? Pure."""

from typing import Final

from nxdns.dns import packet
from nxdns.dns.header import HEADER_LENGTH, QR, Truncated, WalkError
from nxdns.dns.name import POINTER
from nxdns.upstream.errors import Cause, Fault, FaultKind

_ONE_QUESTION: Final = bytes([0, 1, 0, 0, 0, 0, 0, 0])  # QDCOUNT, ANCOUNT, NSCOUNT, ARCOUNT
_ONE_QUESTION_ONE_ADDITIONAL: Final = bytes([0, 1, 0, 0, 0, 0, 0, 1])


def validate_response(query: bytes, response: bytes) -> Fault | None:
    """None when ``response`` answers ``query``, else the fault of whoever sent it.

    ID equal, QR set, one question on both sides (RFC 9619), type and class equal, name equal
    without regard to case (RFC 4343). Nothing else is judged: an upstream's SERVFAIL is an
    answer. A query that is itself broken, a caller's bug, is a BadResponse and never a crash.
    """
    if not response:
        return Fault(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE)
    try:
        answer = packet.parse(response)
        if not answer.flags & QR:
            return Fault(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE)
        if answer.qdcount != 1:
            return Fault(FaultKind.BAD_RESPONSE, Cause.QUESTION_COUNT)
        end = answer.question_end
        if (
            query[:2] == response[:2]
            and query[HEADER_LENGTH:end] == response[HEADER_LENGTH:end]
            and _is_usual(query, end)
        ):
            return None
        asked = packet.parse(query)
        if asked.qdcount != 1:
            return Fault(FaultKind.BAD_RESPONSE, Cause.QUESTION_COUNT)
    except Truncated:
        return Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED)
    except WalkError:
        return Fault(FaultKind.BAD_RESPONSE, Cause.MALFORMED)
    if answer.id != asked.id:
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)
    end = asked.question_end
    if query[HEADER_LENGTH:end] == response[HEADER_LENGTH:end] and not _may_point(query, end):
        return None
    return _compare(asked, answer)


def _is_usual(query: bytes, end: int) -> bool:
    """Whether ``query`` walks to its end, as nearly all do: one question, whose name ends in the
    root's zero before ``end``, and behind it nothing, or one record of the root, as an OPT is.

    To know so much of a query, whose question is known to walk, spares a second walk.
    """
    counts = query[4:HEADER_LENGTH]
    if query[end - 5] or query[end - 6] >= POINTER:
        return False
    if counts == _ONE_QUESTION:
        return len(query) == end
    return (
        counts == _ONE_QUESTION_ONE_ADDITIONAL
        and len(query) >= end + 1 + packet.RECORD_FIXED
        and query[end] == 0
        and len(query) == end + 11 + (query[end + 9] << 8 | query[end + 10])
    )


def _may_point(query: bytes, end: int) -> bool:
    """Whether QNAME may end in a pointer: that leads into the header, which differs in a response.

    A name without one ends in the root's zero, which only a label of binary data makes look like
    the second octet of a pointer.
    """
    return query[end - 5] != 0 or query[end - 6] >= POINTER


def _compare(asked: packet.Packet, answer: packet.Packet) -> Fault | None:
    """The slow way, for questions whose bytes differ: another case, a pointer, another question."""
    question, echoed = asked.question(), answer.question()
    if echoed.qtype != question.qtype:
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_TYPE)
    if echoed.qclass != question.qclass:
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_CLASS)
    if not echoed.same_name(question):
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME)
    return None
