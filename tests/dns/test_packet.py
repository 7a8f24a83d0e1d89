"""A message is walked to its very end, and only to its end."""

import dns.exception
import dns.flags
import dns.message
import pytest
from hypothesis import given, settings

from nxdns.dns import packet
from nxdns.dns.edns import find_opt
from nxdns.dns.header import HEADER_LENGTH, Truncated, WalkError
from tests.dns.strategies import Built, built
from tests.dns.wires import CORPUS, HEADER, raw_message, raw_record

QUESTION = b"\x03www\x07example\x03com\x00\x00\x1c\x00\x01"
POINTER = b"\xc0\x0c"


def test_the_header_of_a_walked_message_is_at_hand() -> None:
    walked = packet.parse(raw_message(question=QUESTION, sections=((), (), ()), id_=0xBEEF))
    assert walked.id == 0xBEEF
    assert walked.qr
    assert (walked.qdcount, walked.ancount, walked.nscount, walked.arcount) == (1, 0, 0, 0)


def test_the_question_is_the_name_as_it_stands_its_type_and_its_class() -> None:
    wire = raw_message(question=b"\x03wWw\x00\xff\xfe\xff\xfd")
    walked = packet.parse(wire)
    question = walked.question()
    assert question.name == b"\x03wWw\x00"
    assert (question.qtype, question.qclass) == (0xFFFE, 0xFFFD)
    assert walked.question_end == question.end == len(wire)
    assert question.echo() == b"\x03wWw\x00\xff\xfe\xff\xfd"


def test_the_question_can_stand_in_another_message_though_it_points_into_its_own() -> None:
    # A pointer at the ID, which reads as the name "a".
    walked = packet.parse(HEADER.pack(0x0161, 0, 1, 0, 0, 0) + b"\xc0\x00\x00\x01\x00\x01")
    assert walked.question().name == b"\xc0\x00"
    assert walked.question().echo() == b"\x01a\x00\x00\x01\x00\x01"


def test_a_message_without_a_question_is_walked() -> None:
    walked = packet.parse(raw_message(sections=((raw_record(1),), (), ())))
    assert (walked.qdcount, walked.ancount) == (0, 1)
    assert walked.question_end == HEADER_LENGTH


def test_of_two_questions_the_first_is_the_question_and_both_are_counted() -> None:
    second = POINTER + b"\x00\x01\x00\x01"
    walked = packet.parse(HEADER.pack(7, 0, 2, 0, 0, 0) + QUESTION + second)
    assert walked.qdcount == 2
    assert walked.question().echo() == QUESTION


@pytest.mark.parametrize("section", [0, 1, 2])
def test_records_of_every_section_are_walked(section: int) -> None:
    sections: list[list[bytes]] = [[], [], []]
    sections[section] = [raw_record(1, owner=POINTER, rdata=bytes(4))] * 3
    wire = raw_message(question=QUESTION, sections=sections)
    packet.parse(wire)
    with pytest.raises(Truncated):
        packet.parse(wire[:-1])


def test_rdata_is_not_decoded() -> None:
    # dnspython reads it, and refuses: an A record of three octets, a CNAME that is no name.
    bad = [raw_record(1, rdata=b"\x01\x02\x03"), raw_record(5, rdata=b"\xff\xff\x00\x29\x40")]
    wire = raw_message(question=QUESTION, sections=(bad, (), ()))
    with pytest.raises(dns.exception.DNSException):
        dns.message.from_wire(wire)
    assert packet.parse(wire).ancount == 2


def test_an_owner_may_be_compressed_against_rdata_or_another_owner() -> None:
    target = b"\x01a" + POINTER
    start = HEADER_LENGTH + len(QUESTION) + len(raw_record(5, owner=POINTER))
    records = [
        raw_record(5, owner=POINTER, rdata=target),
        raw_record(1, owner=(0xC000 | start).to_bytes(2, "big"), rdata=bytes(4)),
    ]
    wire = raw_message(question=QUESTION, sections=(records, (), ()))
    dns.message.from_wire(wire)
    assert packet.parse(wire).ancount == 2


@pytest.mark.parametrize("wire", CORPUS.values(), ids=CORPUS)
def test_a_message_cut_anywhere_is_truncated(wire: bytes) -> None:
    for length in range(len(wire)):
        with pytest.raises(Truncated):
            packet.parse(wire[:length])


@settings(max_examples=30, deadline=None)
@given(built())
def test_any_message_cut_anywhere_is_truncated(message: Built) -> None:
    for length in range(len(message.wire)):
        with pytest.raises(Truncated):
            packet.parse(message.wire[:length])


@pytest.mark.parametrize("wire", CORPUS.values(), ids=CORPUS)
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"\0", id="one-zero"),
        pytest.param(b"\xff", id="one-octet"),
        pytest.param(raw_record(41, rclass=1232), id="a-record-that-is-not-counted"),
        pytest.param(bytes(60_000), id="a-lot"),
    ],
)
def test_bytes_behind_the_last_record_are_refused_but_not_as_truncated(
    wire: bytes, rest: bytes
) -> None:
    with pytest.raises(WalkError) as refused:
        packet.parse(wire + rest)
    assert not isinstance(refused.value, Truncated)


def test_bytes_behind_a_bare_header_are_refused() -> None:
    packet.parse(bytes(12))
    with pytest.raises(WalkError) as refused:
        packet.parse(bytes(13))
    assert not isinstance(refused.value, Truncated)


@pytest.mark.parametrize("field", [4, 6, 8, 10])
@pytest.mark.parametrize("count", [7, 65535])
def test_a_count_of_more_than_there_is_is_truncated(field: int, count: int) -> None:
    wire = bytearray(raw_message(question=QUESTION))
    wire[field : field + 2] = count.to_bytes(2, "big")
    with pytest.raises(Truncated):
        packet.parse(bytes(wire))


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(b"\x40" + b"x" * 64 + b"\0", id="label-of-64-octets"),
        pytest.param(b"\xff\xff", id="pointer-forward"),
        pytest.param(b"\xc0\x21", id="pointer-to-itself"),
        pytest.param(b"\x3f" + b"x" * 63 + b"\xc0\x21", id="loop"),
        pytest.param((b"\x3f" + b"x" * 63) * 4 + b"\0", id="name-of-257-octets"),
        pytest.param((b"\x3f" + b"x" * 63) * 3 + b"\x36" + b"y" * 54 + POINTER, id="by-a-pointer"),
    ],
)
@pytest.mark.parametrize("section", [0, 1, 2])
def test_a_bad_owner_name_in_any_section_is_refused_but_not_as_truncated(
    owner: bytes, section: int
) -> None:
    assert HEADER_LENGTH + len(QUESTION) == 0x21
    sections: list[list[bytes]] = [[], [], []]
    sections[section] = [raw_record(1, owner=owner, rdata=bytes(4))]
    with pytest.raises(WalkError) as refused:
        packet.parse(raw_message(question=QUESTION, sections=sections))
    assert not isinstance(refused.value, Truncated)


def test_a_bad_name_in_the_second_question_is_refused() -> None:
    with pytest.raises(WalkError) as refused:
        packet.parse(HEADER.pack(7, 0, 2, 0, 0, 0) + QUESTION + b"\x80\0\0\1\0\1")
    assert not isinstance(refused.value, Truncated)


def test_a_record_may_not_point_at_the_place_of_a_question_that_is_not_there() -> None:
    # At offset 12 stands the pointer itself: a loop.
    with pytest.raises(WalkError):
        packet.parse(raw_message(sections=((raw_record(1, owner=POINTER),), (), ())))


def test_the_longest_message_is_walked() -> None:
    head = raw_message(question=QUESTION, sections=((raw_record(16, owner=POINTER),), (), ()))
    left = 65535 - len(head)
    wire = raw_message(
        question=QUESTION, sections=((raw_record(16, owner=POINTER, rdata=bytes(left)),), (), ())
    )
    assert len(wire) == 65535
    walked = packet.parse(wire)
    assert walked.ancount == 1
    assert find_opt(walked) is None


def test_a_type_in_the_question_is_no_opt_record() -> None:
    walked = packet.parse(raw_message(question=b"\0\x00\x29\x10\x00"))
    assert walked.question().qtype == 41
    assert walked.opt_record() is None
