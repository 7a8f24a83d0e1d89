"""Replies of our own making, as dnspython and our own walk read them."""

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns import packet
from nxdns.dns.edns import MAX_DATAGRAM, Opt, find_opt
from nxdns.dns.header import Header
from nxdns.dns.name import expand_name
from nxdns.dns.reply import ResponseBuilder
from tests.dns.strategies import Built, built, names, words
from tests.dns.wires import HEADER, RDATAS, name_wire, raw_message
from tests.support.messages import make_query

thorough = settings(max_examples=200, deadline=None)


def query(*, payload: int | None = None) -> bytes:
    return make_query("wWw.example.com", id_=0x1234, payload=payload)


def builder(wire: bytes) -> ResponseBuilder:
    walked = packet.parse(wire)
    return ResponseBuilder(walked, walked.question().echo())


@thorough
@given(words, words)
def test_id_opcode_and_rd_are_kept_qr_and_ra_set_and_nothing_else(id_: int, flags: int) -> None:
    reply = ResponseBuilder(Header.parse(HEADER.pack(id_, flags, 1, 2, 3, 4))).build()
    header = Header.parse(reply)
    opcode_and_rd = 0x7800 | dns.flags.RD
    assert header.id == id_
    assert header.flags == dns.flags.QR | dns.flags.RA | flags & opcode_and_rd
    assert reply == reply[:4] + bytes(8)
    packet.parse(reply)


@pytest.mark.parametrize(
    "rcode",
    [
        pytest.param(dns.rcode.FORMERR, id="formerr"),
        pytest.param(dns.rcode.SERVFAIL, id="servfail"),
        pytest.param(dns.rcode.NOTIMP, id="notimp"),
        pytest.param(dns.rcode.NOERROR, id="noerror"),
        pytest.param(15, id="the-last-of-four-bits"),
    ],
)
def test_the_rcode_is_set(rcode: int) -> None:
    reply = dns.message.from_wire(builder(query()).set_rcode(rcode).build())
    assert reply.rcode() == rcode
    assert not reply.flags & dns.flags.TC


def test_an_rcode_can_be_set_again() -> None:
    reply = builder(query()).set_rcode(dns.rcode.FORMERR).set_rcode(dns.rcode.SERVFAIL).build()
    assert dns.message.from_wire(reply).rcode() == dns.rcode.SERVFAIL


@pytest.mark.parametrize("rcode", [-1, 16, 4095])
def test_an_rcode_that_needs_more_than_four_bits_is_refused(rcode: int) -> None:
    with pytest.raises(ValueError, match=str(rcode)):
        builder(query()).set_rcode(rcode)


def test_a_truncated_reply_says_so_and_keeps_its_rcode() -> None:
    reply = builder(query()).set_rcode(dns.rcode.NXDOMAIN).set_truncated().build()
    read = dns.message.from_wire(reply)
    assert read.flags & dns.flags.TC
    assert read.rcode() == dns.rcode.NXDOMAIN


@thorough
@given(built())
def test_a_reply_answers_its_query_in_dnspythons_eyes(message: Built) -> None:
    wire = message.wire[:2] + bytes([message.wire[2] & 0x7F]) + message.wire[3:]  # QR clear
    reply = builder(wire).set_rcode(dns.rcode.NOERROR).build()
    read = dns.message.from_wire(reply)
    assert read.question[0].name.labels == message.name.labels  # the case as it was asked
    assert dns.message.from_wire(wire).is_response(read)
    walked = packet.parse(reply)
    assert walked.question().same_name(packet.parse(wire).question())
    assert (walked.qdcount, walked.ancount, walked.nscount, walked.arcount) == (1, 0, 0, 0)


def test_a_question_that_pointed_into_its_own_header_is_echoed_without_pointers() -> None:
    # A pointer at the ID, which reads as the name "a"; the reply's flags would end it otherwise.
    wire = HEADER.pack(0x0161, 0, 1, 0, 0, 0) + b"\xc0\x00\x00\x01\x00\x01"
    asked = dns.message.from_wire(wire)
    assert asked.question[0].name == dns.name.from_text("a.")
    assert asked.is_response(dns.message.from_wire(builder(wire).build()))


def test_a_reply_to_a_query_whose_question_did_not_parse_has_none() -> None:
    wire = HEADER.pack(0x1234, dns.flags.RD, 1, 0, 0, 0) + b"\x80"
    reply = ResponseBuilder(Header.parse(wire)).set_rcode(dns.rcode.FORMERR).build()
    read = dns.message.from_wire(reply)
    assert (read.id, read.rcode(), read.question) == (0x1234, dns.rcode.FORMERR, [])
    assert read.flags & dns.flags.RD
    assert packet.parse(reply).qdcount == 0


@pytest.mark.parametrize("dnssec_ok", [True, False], ids=["do", "no-do"])
@pytest.mark.parametrize("question", [True, False], ids=["question", "no-question"])
def test_the_opt_echo_carries_do_and_nothing_else_of_the_client(
    dnssec_ok: bool, question: bool
) -> None:
    asked = Opt(700, 9, 3, dnssec_ok, b"\0\x0c\0\0")
    walked = packet.parse(query())
    echo = walked.question().echo() if question else b""
    reply = ResponseBuilder(walked, echo).add_opt_echo(asked).build()
    read = dns.message.from_wire(reply)
    assert (read.edns, read.payload, read.options) == (0, MAX_DATAGRAM, ())
    assert read.ednsflags == (dns.flags.DO if dnssec_ok else 0)
    assert read.rcode() == dns.rcode.NOERROR
    opt = find_opt(packet.parse(reply))
    assert opt is not None
    assert (opt.payload_size, opt.version, opt.extended_rcode) == (MAX_DATAGRAM, 0, 0)
    assert opt.dnssec_ok is dnssec_ok
    assert opt.options == b""


def test_a_reply_has_no_opt_unless_one_is_added() -> None:
    assert dns.message.from_wire(builder(query(payload=1232)).build()).edns == -1


def test_an_opt_that_is_echoed_twice_stands_once() -> None:
    opt = Opt(1232, 0, 0, True, b"")
    reply = builder(query()).add_opt_echo(opt).add_opt_echo(opt).build()
    assert find_opt(packet.parse(reply)) is not None
    assert packet.parse(reply).arcount == 1


@thorough
@given(
    names(),
    st.lists(st.tuples(st.sampled_from(sorted(RDATAS)), st.integers(0, 0x7FFFFFFF)), max_size=6),
    st.booleans(),
)
def test_appended_records_are_read_back_in_order_with_the_opt_behind_them(
    name: dns.name.Name, records: list[tuple[str, int]], dnssec_ok: bool
) -> None:
    reply = builder(raw_message(question=name_wire(name) + b"\0\x01\0\x01"))
    reply.add_opt_echo(Opt(1232, 0, 0, dnssec_ok, b""))  # first, and last on the wire all the same
    for rtype, ttl in records:
        rdata = RDATAS[rtype].to_wire()
        assert rdata is not None
        reply.add_answer(int(RDATAS[rtype].rdtype), 1, ttl, rdata)
    wire = reply.build()
    read = dns.message.from_wire(wire, one_rr_per_rrset=True)
    assert [(r.name, r.rdtype, r.ttl, r[0]) for r in read.answer] == [
        (name, RDATAS[rtype].rdtype, ttl, RDATAS[rtype]) for rtype, ttl in records
    ]
    walked = packet.parse(wire)
    assert walked.ancount == len(records)
    opt = find_opt(walked)
    assert opt is not None
    assert opt.dnssec_ok is dnssec_ok
    assert wire[-11:] == b"\0\x00\x29\x10\x00\0\0" + (b"\x80\0" if dnssec_ok else b"\0\0") + b"\0\0"


def test_a_record_may_have_an_owner_of_its_own() -> None:
    owner = b"\x04mail\x07example\x03com\x00"
    reply = builder(query()).add_answer(1, 1, 60, bytes([192, 0, 2, 9]), owner).build()
    (answer,) = dns.message.from_wire(reply).answer
    assert answer.name == dns.name.from_text("mail.example.com.")
    assert answer[0].to_text() == "192.0.2.9"
    assert expand_name(reply, packet.parse(reply).question_end) == owner


@pytest.mark.parametrize("opcode", [dns.opcode.NOTIFY, dns.opcode.STATUS, dns.opcode.UPDATE, 15])
def test_the_opcode_of_a_notimp_is_the_querys(opcode: int) -> None:
    wire = bytearray(query())
    wire[2] = wire[2] & 0x87 | opcode << 3
    reply = ResponseBuilder(Header.parse(bytes(wire))).set_rcode(dns.rcode.NOTIMP).build()
    assert dns.message.from_wire(reply).opcode() == opcode
    assert dns.message.from_wire(reply).rcode() == dns.rcode.NOTIMP
