"""Does this response answer that query? Pure."""

from typing import Final

from nxdns.dns.header import HEADER_LENGTH, QR, Truncated, WalkError
from nxdns.dns.name import POINTER
from nxdns.dns.packet import Packet, parse
from nxdns.upstream.errors import Cause, Fault, FaultKind

_QR_BYTE: Final = QR >> 8


def validate_response(query: bytes, response: bytes, question_end: int = 0) -> Packet | Fault:
    """``response``, walked, when it answers ``query``, else the fault of whoever sent it.

    ID equal, QR set, one question on both sides (RFC 9619), type and class equal, name equal
    without regard to case (RFC 4343). Nothing else is judged: an upstream's SERVFAIL is an
    answer. A query that is itself broken, a caller's bug, is a BadResponse and never a crash;
    but not where the caller has walked it, and gives ``question_end``: see
    :func:`~nxdns.dns.hop.complete`.
    """
    # What is equal is not empty, so the response has a header.
    known = (
        question_end > HEADER_LENGTH
        and query[HEADER_LENGTH:question_end] == response[HEADER_LENGTH:question_end]
        and query[0] == response[0]
        and query[1] == response[1]
        and response[2] >= _QR_BYTE
        and response[4] == 0
        and response[5] == 1
    )
    try:
        answer = parse(response, question_end if known else 0)
        return answer if known else _judged(query, answer)
    except Truncated:
        return Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED if response else Cause.EMPTY_MESSAGE)
    except WalkError:
        return Fault(FaultKind.BAD_RESPONSE, Cause.MALFORMED)


def _judged(query: bytes, answer: Packet) -> Packet | Fault:
    """The same of a response that has been walked. Raises WalkError for a broken query."""
    if not answer.flags & QR:
        return Fault(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE)
    if answer.qdcount != 1:
        return Fault(FaultKind.BAD_RESPONSE, Cause.QUESTION_COUNT)
    asked = parse(query)
    if asked.qdcount != 1:
        return Fault(FaultKind.BAD_RESPONSE, Cause.QUESTION_COUNT)
    if answer.id != asked.id:
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)
    end = asked.question_end
    if query[HEADER_LENGTH:end] == answer.wire[HEADER_LENGTH:end] and not _may_point(query, end):
        return answer
    return _compare(asked, answer) or answer


def _may_point(query: bytes, end: int) -> bool:
    """Whether QNAME may end in a pointer: that leads into the header, which differs in a response.

    A name without one ends in the root's zero, which only a label of binary data makes look like
    the second octet of a pointer.
    """
    return query[end - 5] != 0 or query[end - 6] >= POINTER


def _compare(asked: Packet, answer: Packet) -> Fault | None:
    """The slow way, for questions whose bytes differ: another case, a pointer, another question."""
    question, echoed = asked.question(), answer.question()
    if echoed.qtype != question.qtype:
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_TYPE)
    if echoed.qclass != question.qclass:
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_CLASS)
    if not echoed.same_name(question):
        return Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME)
    return None
