"""Does this response answer that query? Pure."""

from nxdns.dns import packet
from nxdns.dns.header import HEADER_LENGTH, Truncated, WalkError
from nxdns.dns.name import POINTER
from nxdns.upstream.errors import Cause, Fault, FaultKind


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
        if not answer.qr:
            return Fault(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE)
        if answer.qdcount != 1:
            return Fault(FaultKind.BAD_RESPONSE, Cause.QUESTION_COUNT)
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
