"""validate_response: does this response answer that query?"""

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.dns.header import WalkError
from nxdns.dns.name import POINTER
from nxdns.dns.packet import Packet, parse
from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.validate import validate_response
from tests.support.messages import big_response, make_query, make_response

QUERY = make_query("www.example.com", "A", id_=0x1234)
RESPONSE = make_response(QUERY, "93.184.216.34")
OTHER_ID = b"\x43\x21"


def question_of(
    name: str = "www.example.com", rtype: str = "A", rclass: str = "IN", *, id_: int = 0x1234
) -> bytes:
    """A response without a record, to any question."""
    query = dns.message.make_query(name, rtype, rclass)
    query.id = id_
    return dns.message.make_response(query).to_wire()


def with_count(message: bytes, count: int) -> bytes:
    """``message`` with another QDCOUNT and its first question that often."""
    question = make_query("www.example.com", "A")[12:]
    return message[:4] + count.to_bytes(2, "big") + bytes(6) + question * count


def with_rcode(rcode: dns.rcode.Rcode) -> bytes:
    response = dns.message.make_response(dns.message.from_wire(QUERY))
    response.set_rcode(rcode)
    return response.to_wire()


def fault_of(query: bytes, response: bytes) -> Fault | None:
    """The verdict, which is the same with and without knowing where the question ends."""
    outcome = validate_response(query, response)
    quick = validate_response(query, response, known_end_of(query))
    if isinstance(outcome, Fault):
        assert quick == outcome
        return outcome
    assert isinstance(quick, Packet)
    assert everything_of(quick) == everything_of(outcome) == everything_of(parse(response))
    return None


def known_end_of(query: bytes) -> int:
    """Where the question ends of a query that walks, has one, and no pointer in its name."""
    try:
        asked = parse(query)
    except WalkError:
        return 0
    end = asked.question_end
    return end if asked.qdcount == 1 and not query[end - 5] and query[end - 6] < POINTER else 0


def everything_of(packet: Packet) -> dict[str, object]:
    header = ("id", "flags", "qdcount", "ancount", "nscount", "arcount")
    opt = ("opt_count", "opt_start", "opt_fixed", "opt_misplaced")
    walked = ("wire", "question_end", "known_names")
    return {name: getattr(packet, name) for name in (*header, *opt, *walked)}


def as_response(query: bytes) -> bytes:
    return query[:2] + b"\x81\x80" + query[4:]


@pytest.mark.parametrize(
    ("query", "response"),
    [
        pytest.param(QUERY, RESPONSE, id="an answer"),
        pytest.param(QUERY, question_of(), id="no data"),
        pytest.param(QUERY, question_of("wWw.eXaMpLe.CoM"), id="mixed case"),
        pytest.param(QUERY, with_rcode(dns.rcode.SERVFAIL), id="SERVFAIL"),
        pytest.param(QUERY, with_rcode(dns.rcode.REFUSED), id="REFUSED"),
        pytest.param(QUERY, with_rcode(dns.rcode.NXDOMAIN), id="NXDOMAIN"),
        pytest.param(QUERY, RESPONSE[:2] + b"\x83" + RESPONSE[3:], id="TC set"),
        pytest.param(make_query(".", "NS", id_=1), question_of(".", "NS", id_=1), id="the root"),
        pytest.param(QUERY, big_response(QUERY, 65535), id="65535 bytes"),
    ],
)
def test_a_response_that_answers_its_query_is_accepted(query: bytes, response: bytes) -> None:
    assert fault_of(query, response) is None


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        pytest.param(OTHER_ID + RESPONSE[2:], Cause.WRONG_ID, id="id"),
        pytest.param(question_of(rtype="AAAA"), Cause.WRONG_TYPE, id="type"),
        pytest.param(question_of(rclass="CH"), Cause.WRONG_CLASS, id="class"),
        pytest.param(question_of("example.com"), Cause.WRONG_NAME, id="name: a label less"),
        pytest.param(question_of("a.www.example.com"), Cause.WRONG_NAME, id="name: a label more"),
        pytest.param(question_of("wwv.example.com"), Cause.WRONG_NAME, id="name: another letter"),
        pytest.param(
            # 0x57 is W and 0x77 is w, but 0x17 is no letter.
            question_of("\\023\\023\\023.example.com"),
            Cause.WRONG_NAME,
            id="name: one bit from the same letters",
        ),
    ],
)
def test_a_response_to_another_query_is_a_mismatch(response: bytes, cause: Cause) -> None:
    assert fault_of(QUERY, response) == Fault(FaultKind.RESPONSE_MISMATCH, cause)


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        pytest.param(b"", Cause.EMPTY_MESSAGE, id="nothing"),
        pytest.param(b"\0", Cause.TRUNCATED, id="one byte"),
        pytest.param(RESPONSE[:11], Cause.TRUNCATED, id="eleven bytes"),
        pytest.param(RESPONSE[:20], Cause.TRUNCATED, id="ends in the question"),
        pytest.param(RESPONSE[:-1], Cause.TRUNCATED, id="ends in the RDATA"),
        pytest.param(RESPONSE + b"\0", Cause.MALFORMED, id="a byte too many"),
        pytest.param(RESPONSE[:12] + b"\x80" + RESPONSE[13:], Cause.MALFORMED, id="bad label"),
        pytest.param(
            RESPONSE[:12] + b"\xc0\x0c" + RESPONSE[14:], Cause.MALFORMED, id="bad pointer"
        ),
        pytest.param(QUERY, Cause.NOT_A_RESPONSE, id="QR clear"),
        pytest.param(with_count(RESPONSE, 0), Cause.QUESTION_COUNT, id="QDCOUNT 0"),
        pytest.param(with_count(RESPONSE, 2), Cause.QUESTION_COUNT, id="QDCOUNT 2"),
        pytest.param(
            RESPONSE[:3] + b"\x82" + bytes(8), Cause.QUESTION_COUNT, id="SERVFAIL without question"
        ),
    ],
)
def test_what_is_no_response_to_one_question_is_bad(response: bytes, cause: Cause) -> None:
    assert fault_of(QUERY, response) == Fault(FaultKind.BAD_RESPONSE, cause)


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        pytest.param(b"", Cause.TRUNCATED, id="empty"),
        pytest.param(QUERY[:-1], Cause.TRUNCATED, id="truncated"),
        pytest.param(QUERY + b"\0", Cause.MALFORMED, id="a byte too many"),
        pytest.param(with_count(QUERY, 0), Cause.QUESTION_COUNT, id="QDCOUNT 0"),
        pytest.param(with_count(QUERY, 2), Cause.QUESTION_COUNT, id="QDCOUNT 2"),
    ],
)
def test_a_query_that_is_itself_broken_is_a_bad_response_and_no_crash(
    query: bytes, cause: Cause
) -> None:
    assert fault_of(query, RESPONSE) == Fault(FaultKind.BAD_RESPONSE, cause)


@pytest.mark.parametrize(
    ("query", "response", "cause"),
    [
        pytest.param(QUERY, QUERY + b"\0", Cause.MALFORMED, id="parsing before QR"),
        pytest.param(QUERY, with_count(QUERY, 2), Cause.NOT_A_RESPONSE, id="QR before QDCOUNT"),
        pytest.param(
            QUERY[:-1], with_count(RESPONSE, 2), Cause.QUESTION_COUNT, id="QDCOUNT before the query"
        ),
        pytest.param(
            QUERY[:-1], OTHER_ID + RESPONSE[2:], Cause.TRUNCATED, id="the query before the id"
        ),
        pytest.param(
            QUERY, question_of("a.", "NS", "CH", id_=1), Cause.WRONG_ID, id="id before type"
        ),
        pytest.param(
            QUERY, question_of("a.", "NS", "CH"), Cause.WRONG_TYPE, id="type before class"
        ),
        pytest.param(
            QUERY, question_of("a.", "A", "CH"), Cause.WRONG_CLASS, id="class before name"
        ),
    ],
)
def test_the_first_check_that_fails_names_the_cause(
    query: bytes, response: bytes, cause: Cause
) -> None:
    fault = fault_of(query, response)
    assert fault is not None
    assert fault.cause == cause


@given(st.data())
def test_any_other_case_of_the_name_is_accepted(data: st.DataObject) -> None:
    flips = data.draw(st.lists(st.booleans(), min_size=len(QUERY), max_size=len(QUERY)))
    response = bytearray(as_response(QUERY))
    for offset in range(12, len(QUERY) - 4):
        if flips[offset] and chr(response[offset]).isalpha():
            response[offset] ^= 0x20
    assert fault_of(QUERY, bytes(response)) is None


@pytest.mark.parametrize(
    "offset", [pytest.param(n, id=f"octet {n}") for n in (0, 1, *range(12, len(QUERY)))]
)
def test_no_bit_of_the_id_or_the_question_may_differ_but_that_of_a_letters_case(
    offset: int,
) -> None:
    for bit in range(8):
        response = bytearray(as_response(QUERY))
        response[offset] ^= 1 << bit
        accepted = fault_of(QUERY, bytes(response)) is None
        assert accepted == (
            bit == 5 and chr(response[offset]).isalpha() and offset < len(QUERY) - 4
        )


def answers_according_to_dnspython(query: bytes, response: bytes) -> bool:
    # The opcode is not judged, and dnspython reads an UPDATE in another way.
    response = response[:2] + bytes(octet & ~0x78 & 0xFF for octet in response[2:3]) + response[3:]
    try:
        asked = dns.message.from_wire(query, question_only=True)
        answer = dns.message.from_wire(response, question_only=True)
    except dns.exception.DNSException:
        return False
    return bool(
        answer.flags & dns.flags.QR
        and answer.id == asked.id
        and len(answer.question) == 1
        and answer.question == asked.question
    )


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_never_a_crash_and_hardly_an_answer(garbage: bytes) -> None:
    if fault_of(QUERY, garbage) is None:
        assert answers_according_to_dnspython(QUERY, garbage)
    fault_of(garbage, RESPONSE)
    fault_of(garbage, garbage)


@given(st.integers(0, len(RESPONSE) - 1), st.binary(max_size=4), st.integers(0, 4), st.booleans())
def test_whatever_is_accepted_answers_the_query_according_to_dnspython(
    at: int, inserted: bytes, removed: int, compressed: bool
) -> None:
    base = RESPONSE if compressed else as_response(QUERY)
    damaged = base[:at] + inserted + base[at + removed :]
    if fault_of(QUERY, damaged) is None:
        assert answers_according_to_dnspython(QUERY, damaged)
