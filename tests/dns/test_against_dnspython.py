"""Whatever dnspython accepts as a one-question message, we walk to the same question and OPT."""

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns import packet
from nxdns.dns.edns import Opt, find_opt
from nxdns.dns.header import HEADER_LENGTH
from nxdns.dns.name import expand_name, skip_name
from nxdns.dns.packet import Packet
from tests.dns.strategies import Built, any_bytes, built, mutants, tangled_names
from tests.dns.wires import ADDITIONAL, ANSWER, AUTHORITY, CORPUS, RDATAS, render, rrset

thorough = settings(max_examples=200, deadline=None)


def accepted(wire: bytes) -> dns.message.Message | None:
    """The message as dnspython reads it, None when it refuses it or it has not one question."""
    try:
        # keyring=False: a signature need not be verified for its message to be well-formed.
        message = dns.message.from_wire(wire, keyring=False)
    except Exception:  # noqa: BLE001 - whatever it raises, it refuses
        return None
    return message if len(message.question) == 1 else None


def assert_read_alike(wire: bytes, message: dns.message.Message) -> None:
    """Our walk of ``wire`` finds what dnspython found in it."""
    walked = packet.parse(wire)
    assert walked.qdcount == 1
    asked, question = message.question[0], walked.question()
    assert expand_name(wire, HEADER_LENGTH) == asked.name.to_wire()
    assert (question.qtype, question.qclass) == (asked.rdtype, asked.rdclass)
    assert (walked.id, walked.flags) == (message.id, message.flags)
    opt = find_opt(walked)
    assert (opt is None) == (message.opt is None)
    if opt is not None:
        assert_same_opt(walked, opt, message)


def assert_same_opt(walked: Packet, opt: Opt, message: dns.message.Message) -> None:
    assert opt.payload_size == message.payload
    assert opt.version == message.edns
    assert opt.dnssec_ok == bool(message.ednsflags & dns.flags.DO)
    assert opt.extended_rcode << 4 | walked.rcode == message.rcode()
    # dnspython decodes options, and drops some octets of some; so it is made to read ours too.
    payload = dns.rdataclass.from_text(f"CLASS{opt.payload_size}")
    options = dns.rdata.from_wire(payload, dns.rdatatype.OPT, opt.options, 0, len(opt.options))
    assert message.opt is not None
    assert options == message.opt[0]


@settings(max_examples=200, deadline=None)
@given(built())
def test_a_message_is_walked_to_what_dnspython_built_it_from(message: Built) -> None:
    walked = packet.parse(message.wire)
    question = walked.question()
    assert question.name == message.name.to_wire()
    assert (question.qtype, question.qclass) == (message.rdtype, message.rdclass)
    opt = find_opt(walked)
    assert (opt is None) == (message.opt is None)
    if opt is not None and message.opt is not None:
        payload, ttl, options = message.opt
        assert (opt.payload_size, opt.options) == (payload, options)
        assert (opt.extended_rcode, opt.version) == (ttl >> 24, ttl >> 16 & 0xFF)
        assert opt.dnssec_ok == bool(ttl & dns.flags.DO)
    read = accepted(message.wire)
    assert read is not None  # else the strategy builds what nobody can judge
    assert_read_alike(message.wire, read)


@settings(max_examples=600, deadline=None)
@given(mutants())
def test_a_mutated_message_that_dnspython_accepts_is_walked_alike(wire: bytes) -> None:
    message = accepted(wire)
    if message is not None:
        assert_read_alike(wire, message)


@thorough
@given(any_bytes())
def test_bytes_that_dnspython_accepts_are_walked_alike(wire: bytes) -> None:
    message = accepted(wire)
    if message is not None:
        assert_read_alike(wire, message)


@thorough
@given(tangled_names(), st.integers(0, 70))
def test_a_name_that_dnspython_reads_is_skipped_and_expanded_alike(wire: bytes, start: int) -> None:
    try:
        name, used = dns.name.from_wire(wire, start)
    except Exception:  # noqa: BLE001 - whatever it raises, it refuses
        return
    assert skip_name(wire, start, {}) == start + used
    assert expand_name(wire, start) == name.to_wire()


@pytest.mark.parametrize("rtype", sorted(RDATAS))
@pytest.mark.parametrize(
    "section",
    [
        pytest.param(ANSWER, id="answer"),
        pytest.param(AUTHORITY, id="authority"),
        pytest.param(ADDITIONAL, id="additional"),
    ],
)
def test_a_record_of_any_type_is_walked_over_in_every_section(rtype: str, section: int) -> None:
    name = dns.name.from_text("www.example.com.")
    records = [(section, rrset(name, rtype)), (ADDITIONAL, rrset(name, "MX"))]
    wire = render(name, dns.rdatatype.from_text(rtype), records)
    assert_read_alike(wire, dns.message.from_wire(wire))


def test_every_type_fits_one_message_and_the_opt_is_found_among_them() -> None:
    message = dns.message.make_response(dns.message.make_query("example.com", "ANY", payload=1400))
    message.use_edns(0, dns.flags.DO, 1400)
    message.set_rcode(dns.rcode.BADCOOKIE)
    for rtype in RDATAS:
        owner = dns.name.from_text(f"{rtype}.example.com.")
        message.answer.append(rrset(owner, rtype))
        message.additional.append(rrset(owner, rtype))
    wire = message.to_wire(max_size=65535)
    assert_read_alike(wire, dns.message.from_wire(wire))


@pytest.mark.parametrize("wire", CORPUS.values(), ids=CORPUS)
def test_what_is_mutated_here_is_accepted_before(wire: bytes) -> None:
    message = accepted(wire)
    assert message is not None
    assert_read_alike(wire, message)
