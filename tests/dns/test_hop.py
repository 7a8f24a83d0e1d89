"""What of an OPT crosses, and that nothing else changes; dnspython reads both sides."""

from typing import NamedTuple

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns import packet
from nxdns.dns.edns import Opt, encode_opt, find_opt
from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.hop import complete, idle_time, to_client, to_upstream
from nxdns.dns.name import expand_name
from nxdns.dns.packet import parse
from nxdns.dns.records import MoveError
from tests.dns.strategies import Built, built
from tests.dns.wires import options_wire, raw_message, raw_record
from tests.support.messages import OPT_LENGTH, big_response, make_query, make_response, with_our_opt

thorough = settings(max_examples=300, deadline=None)

QUESTION = b"\x03www\x07example\x03com\0\0\x01\0\x01"
A = raw_record(1, owner=b"\xc0\x0c", rdata=b"\xc0\0\2\1")


def generic(code: int, data: bytes) -> dns.edns.Option:
    return dns.edns.GenericOption(dns.edns.OptionType.make(code), data)


SUBNET = dns.edns.ECSOption("192.0.2.0", 24)
SUBNET_6 = dns.edns.ECSOption("2001:db8::", 128)
COOKIE = dns.edns.CookieOption(b"clientck", b"servercookie")
KEEPALIVE = generic(11, b"\0\x64")
PADDING = generic(12, bytes(40))
NSID = dns.edns.NSIDOption(b"ns-1")
ERROR = dns.edns.EDEOption(dns.edns.EDECode.BLOCKED, "blocked here")
UNKNOWN = generic(65001, b"whatever")
EVERYTHING = [COOKIE, KEEPALIVE, PADDING, SUBNET, NSID, ERROR, UNKNOWN]

ASKED_WITHOUT = Opt(1232, 0, 0, False, b"")
ASKED_WITH_DO = Opt(1232, 0, 0, True, options_wire([COOKIE, PADDING]))
ASKED_WITH_SUBNET = Opt(1232, 0, 0, False, options_wire([SUBNET]))
CLIENT_OPTS = [None, ASKED_WITHOUT, ASKED_WITH_DO, ASKED_WITH_SUBNET]


class Seen(NamedTuple):
    """A message without its OPT, names written out and their case kept."""

    head: tuple[int, int]
    sections: tuple[tuple[tuple[bytes, int, int, int, bytes], ...], ...]


def seen(wire: bytes) -> Seen:
    message = dns.message.from_wire(wire, one_rr_per_rrset=True)
    sections = []
    for section in (message.question, message.answer, message.authority, message.additional):
        records = []
        for rrset in section:
            rdata = rrset[0].to_wire() if len(rrset) else b""
            owner = rrset.name.to_wire()
            assert owner is not None
            assert rdata is not None
            records.append((owner, rrset.rdclass, rrset.rdtype, rrset.ttl, rdata))
        sections.append(tuple(records))
    return Seen((message.id, message.flags), tuple(sections))


def opt_of(wire: bytes) -> Opt | None:
    return find_opt(packet.parse(wire))


def codes(options: bytes) -> list[int]:
    record = raw_record(41, rclass=512, rdata=options)
    message = dns.message.from_wire(raw_message(question=QUESTION, sections=((), (), (record,))))
    return [int(option.otype) for option in message.options]


def outside_opt(wire: bytes) -> tuple[bytes, bytes]:
    """The bytes before an OPT that is the last record, if there is one, without ARCOUNT."""
    walked = packet.parse(wire)
    end = walked.opt_start if walked.opt_count else len(wire)
    return wire[:10], wire[12:end]


def is_last(message: Built) -> bool:
    """Whether nothing stands behind its OPT, if it has one."""
    if message.opt is None:
        return True
    end = packet.parse(message.wire).opt_start + OPT_LENGTH + len(message.opt[2])
    return end == len(message.wire)


def completed(query: bytes, *, keepalive: bool) -> bytes:
    """As it is sent. What is told of its question is true, and told of most."""
    sent, question_end = complete(query, keepalive=keepalive)
    if question_end:
        walked = parse(sent)
        assert (walked.qdcount, walked.arcount, walked.question_end) == (1, 1, question_end)
        assert not walked.known_names
    return sent


def up(query: bytes) -> bytes:
    asked = packet.parse(query)
    return to_upstream(asked, find_opt(asked))


def down(reply: bytes, opt: Opt | None) -> bytes:
    return to_client(packet.parse(reply), opt)


def with_options(message: bytes, options: list[dns.edns.Option], ttl: int = 0) -> bytes:
    """``message``, which has no OPT, ending in one."""
    arcount = int.from_bytes(message[10:12], "big") + 1
    opt = raw_record(41, rclass=1232, ttl=ttl, rdata=options_wire(options))
    return message[:10] + arcount.to_bytes(2, "big") + message[12:] + opt


# Whatever dnspython builds.


@thorough
@given(built())
def test_a_query_goes_up_with_an_opt_of_ours_at_its_end_and_nothing_else_changed(
    message: Built,
) -> None:
    theirs = opt_of(message.wire)
    sent = up(message.wire)
    ours = opt_of(sent)
    assert ours is not None
    assert (ours.payload_size, ours.extended_rcode, ours.version) == (4096, 0, 0)
    assert ours.dnssec_ok is (theirs is not None and theirs.dnssec_ok)
    subnets = [code for code in codes(theirs.options) if code == 8] if theirs else []
    assert codes(ours.options) == subnets
    assert seen(sent) == seen(message.wire)
    assert packet.parse(sent).opt_start + OPT_LENGTH + len(ours.options) == len(sent)
    if is_last(message):
        assert outside_opt(sent) == outside_opt(message.wire)


@thorough
@given(built(), st.sampled_from(CLIENT_OPTS))
def test_a_reply_comes_down_with_an_opt_for_who_sent_one_and_nothing_else_changed(
    message: Built, asked: Opt | None
) -> None:
    theirs = opt_of(message.wire)
    reply = down(message.wire, asked)
    ours = opt_of(reply)
    if asked is None:
        assert ours is None
    else:
        assert ours is not None
        assert (ours.payload_size, ours.version) == (4096, 0)
        assert ours.dnssec_ok is asked.dnssec_ok
        assert ours.extended_rcode == (theirs.extended_rcode if theirs else 0)
        crossing = {8, 15} if asked is ASKED_WITH_SUBNET else {15}
        wanted = [code for code in codes(theirs.options) if code in crossing] if theirs else []
        assert codes(ours.options) == wanted
    if asked is None and theirs is not None and theirs.extended_rcode:
        assert dns.message.from_wire(reply).rcode() == dns.rcode.SERVFAIL
        reply = reply[:3] + message.wire[3:4] + reply[4:]
    assert seen(reply) == seen(message.wire)
    if is_last(message):
        assert outside_opt(reply) == outside_opt(message.wire)


@thorough
@given(built(), st.booleans())
def test_what_goes_on_the_wire_is_padded_and_says_nothing_else(
    message: Built, keepalive: bool
) -> None:
    query = up(message.wire)
    sent = completed(query, keepalive=keepalive)
    assert len(sent) % 128 == 0
    assert len(sent) - len(query) < 128 + 4 + 4
    before, after = opt_of(query), opt_of(sent)
    assert before is not None
    assert after is not None
    assert codes(after.options) == codes(before.options) + ([11] if keepalive else []) + [12]
    assert after.options.startswith(before.options)
    asked = after.options[len(before.options) :][:4]
    assert (asked == b"\0\x0b\0\0") is keepalive, "without a time, as a client must"
    assert seen(sent) == seen(query)
    assert outside_opt(sent) == outside_opt(query)


def test_of_a_query_with_nothing_but_our_opt_it_is_told_where_its_question_ends() -> None:
    for query in (make_query(), make_query(".", "NS"), make_query(payload=1232, dnssec_ok=True)):
        assert complete(up(query), keepalive=True)[1] == packet.parse(query).question_end


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(up(with_options(make_query(), [SUBNET])), id="Client-Subnet"),
        # To the second octet of the flags, which is the root there.
        pytest.param(
            raw_message(question=b"\xc0\x03\0\1\0\1", sections=((), (), (encode_opt(),))),
            id="a-pointer",
        ),
        # To the first octet of the ID, which is the root there.
        pytest.param(
            raw_message(question=b"\xc0\0\0\1\0\1", sections=((), (), (encode_opt(),))),
            id="a-pointer-that-ends-as-the-root-does",
        ),
        pytest.param(up(make_query())[:4] + b"\0\2" + up(make_query())[6:], id="two-questions"),
        pytest.param(make_query(), id="no-OPT"),
        pytest.param(make_query(payload=1232), id="another-OPT"),
    ],
)
def test_of_any_other_it_is_not(query: bytes) -> None:
    assert complete(query, keepalive=True)[1] == 0


@given(st.binary(max_size=30), st.booleans(), st.booleans())
def test_a_client_subnet_that_ends_in_what_looks_like_an_opt_is_not_taken_for_one(
    before: bytes, do_in_it: bool, keepalive: bool
) -> None:
    option = generic(8, before + encode_opt(dnssec_ok=do_in_it))
    query = up(with_options(make_query(), [option]))
    sent = completed(query, keepalive=keepalive)
    assert complete(query, keepalive=keepalive)[1] == 0
    ours = opt_of(sent)
    assert ours is not None
    assert ours.options.startswith(options_wire([option]))
    assert outside_opt(sent) == outside_opt(query)


# Options.


@pytest.mark.parametrize(
    ("options", "crossing"),
    [
        pytest.param([], [], id="none"),
        pytest.param([COOKIE, KEEPALIVE, PADDING, NSID, ERROR, UNKNOWN], [], id="all-others"),
        pytest.param([SUBNET], [SUBNET], id="Client-Subnet"),
        pytest.param([PADDING, SUBNET_6, COOKIE], [SUBNET_6], id="Client-Subnet-amid"),
        pytest.param(EVERYTHING, [SUBNET], id="everything"),
    ],
)
def test_of_a_clients_options_client_subnet_alone_goes_up(
    options: list[dns.edns.Option], crossing: list[dns.edns.Option]
) -> None:
    sent = opt_of(up(with_options(make_query(), options)))
    assert sent is not None
    assert sent.options == options_wire(crossing)


def test_no_client_subnet_is_added() -> None:
    for query in (make_query(), make_query(payload=1232, dnssec_ok=True)):
        sent = dns.message.from_wire(completed(up(query), keepalive=True))
        assert [option.otype for option in sent.options] == [11, 12]


@pytest.mark.parametrize(
    ("asked", "crossing"),
    [
        pytest.param(ASKED_WITHOUT, [ERROR], id="without-options"),
        pytest.param(ASKED_WITH_DO, [ERROR], id="other-options"),
        pytest.param(ASKED_WITH_SUBNET, [SUBNET, ERROR], id="Client-Subnet"),
    ],
)
def test_of_an_upstreams_options_its_errors_come_down_and_client_subnet_to_who_sent_it(
    asked: Opt, crossing: list[dns.edns.Option]
) -> None:
    reply = opt_of(down(with_options(make_response(make_query()), EVERYTHING), asked))
    assert reply is not None
    assert reply.options == options_wire(crossing)


@pytest.mark.parametrize("rcode", [dns.rcode.BADVERS, dns.rcode.BADCOOKIE, 0xFF7, 3])
def test_an_extended_rcode_crosses(rcode: int) -> None:
    bare = make_response(make_query())
    bare = bare[:3] + bytes([bare[3] & 0xF0 | rcode & 15]) + bare[4:]
    reply = with_options(bare, [COOKIE], ttl=rcode >> 4 << 24)
    for asked in (ASKED_WITHOUT, ASKED_WITH_DO):
        assert dns.message.from_wire(down(reply, asked)).rcode() == rcode


@pytest.mark.parametrize("rcode", [dns.rcode.BADVERS, dns.rcode.BADCOOKIE, 0xFF2])
def test_an_rcode_that_a_client_without_opt_cannot_be_told_is_a_server_failure(rcode: int) -> None:
    # The four bits that fit would say NOERROR for BADVERS: a name that has no such records.
    bare = make_response(make_query(), "192.0.2.1")
    bare = bare[:3] + bytes([bare[3] & 0xF0 | rcode & 15]) + bare[4:]
    reply = down(with_options(bare, [], ttl=rcode >> 4 << 24), None)
    assert reply == bare[:3] + bytes([bare[3] & 0xF0 | 2]) + bare[4:]


def test_the_do_bit_of_a_reply_is_the_clients() -> None:
    reply = with_options(make_response(make_query()), [], ttl=dns.flags.DO)
    for asked in (ASKED_WITHOUT, ASKED_WITH_DO):
        message = dns.message.from_wire(down(reply, asked))
        assert bool(message.ednsflags & dns.flags.DO) is asked.dnssec_ok
        assert message.edns == 0


# OPT records that an upstream should not have sent.

OPT = raw_record(41, rclass=1232, ttl=0x0100_0000, rdata=options_wire([ERROR]))
OTHER_OPT = raw_record(41, rclass=512, rdata=options_wire([COOKIE]))
ANSWERED = raw_message(question=QUESTION, sections=((A,), (A,), (A, A)))


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param(((A,), (A,), (OPT, A, OTHER_OPT, A)), id="two"),
        pytest.param(((A,), (A,), (A, A, OPT, OPT, OTHER_OPT)), id="three-at-the-end"),
        pytest.param(((A, OPT), (A,), (A, A)), id="in-the-answer"),
        pytest.param(((A,), (OPT, A), (A, A)), id="in-the-authority"),
        pytest.param(((OPT, A), (OTHER_OPT, A), (A, OTHER_OPT, A)), id="in-every-section"),
    ],
)
def test_of_opts_that_are_too_many_or_misplaced_none_is_left_and_the_first_one_counts(
    sections: tuple[tuple[bytes, ...], ...],
) -> None:
    reply = raw_message(question=QUESTION, sections=sections)
    assert down(reply, None) == ANSWERED[:3] + b"\x02" + ANSWERED[4:]
    with_opt = down(reply, ASKED_WITHOUT)
    assert seen(with_opt) == seen(ANSWERED)
    assert dns.message.from_wire(with_opt).rcode() == dns.rcode.BADVERS
    opt = opt_of(with_opt)
    assert opt is not None
    assert opt.options == options_wire([ERROR])


@pytest.mark.parametrize("section", [0, 1], ids=["answer", "authority"])
def test_a_misplaced_opt_that_is_the_last_record_goes_as_well(section: int) -> None:
    sections = [(A, OTHER_OPT), ()] if section == 0 else [(A,), (A, OTHER_OPT)]
    reply = raw_message(question=QUESTION, sections=(*sections, ()))
    bare = raw_message(question=QUESTION, sections=((A,), (A,) * section, ()))
    assert down(reply, None) == bare
    assert down(reply, ASKED_WITHOUT) == with_our_opt(with_options(bare, []))


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(raw_record(41, rclass=1232, rdata=b"\0\x0f\0"), id="option-head-cut-off"),
        pytest.param(
            raw_record(41, rclass=1232, rdata=options_wire([ERROR]) + b"\0\x0f\0\x09ab"),
            id="option-runs-off",
        ),
        pytest.param(raw_record(41, owner=b"\xc0\x0c", rclass=1232), id="not-at-the-root"),
        pytest.param(raw_record(41, owner=b"\1a\0", rclass=1232, rdata=b"\1"), id="named-and-bad"),
    ],
)
@pytest.mark.parametrize("behind", [(), (A,)], ids=["last", "amid"])
def test_a_broken_opt_of_an_upstream_is_replaced_by_one_without_options(
    record: bytes, behind: tuple[bytes, ...]
) -> None:
    reply = raw_message(question=QUESTION, sections=((A,), (), (record, *behind)))
    bare = raw_message(question=QUESTION, sections=((A,), (), behind))
    assert down(reply, None) == bare
    assert down(reply, ASKED_WITHOUT) == with_our_opt(with_options(bare, []))


@pytest.mark.parametrize("behind", [(), (A,)], ids=["last", "amid"])
def test_a_name_that_runs_on_into_the_opt_cannot_stay_without_it(behind: tuple[bytes, ...]) -> None:
    """A pointer to octets that are no name, but read as one end within the OPT."""
    at = 12 + len(QUESTION)
    stray = raw_record(0x0B00, owner=b"\0", rclass=0, ttl=0)  # its type, read as a label: 11 octets
    pointing = raw_record(1, owner=(0xC000 | at + 1).to_bytes(2, "big"), rdata=bytes(4))
    long = raw_record(0x1900, owner=b"\0", rclass=0, ttl=0)  # 25 octets: past the next record
    opt = raw_record(41, rclass=1232, rdata=options_wire([PADDING]))
    readable = raw_message(question=QUESTION, sections=((stray, pointing), (), (opt, *behind)))
    running_on = raw_message(question=QUESTION, sections=((long, pointing), (), (opt, *behind)))
    packet.parse(readable)
    packet.parse(running_on)
    for client in (None, ASKED_WITHOUT):
        packet.parse(down(readable, client))
        with pytest.raises(MoveError):
            down(running_on, client)


def test_a_name_behind_the_opt_whose_labels_begin_before_it_and_run_on_is_written_out() -> None:
    at = 12 + len(QUESTION)
    # 25 octets from the second of its own: its label ends within the OPT.
    long = raw_record(0x1900, owner=b"\0", rclass=0, ttl=0)
    opt = raw_record(41, rclass=1232, rdata=options_wire([PADDING]))
    pointing = raw_record(1, owner=(0xC000 | at + 1).to_bytes(2, "big"), rdata=bytes(4))
    reply = raw_message(question=QUESTION, sections=((long,), (), (opt, pointing)))
    name = expand_name(reply, at + 1)
    assert len(name) > 25
    moved = raw_record(1, owner=name, rdata=bytes(4))
    bare = raw_message(question=QUESTION, sections=((long,), (), (moved,)))
    assert down(reply, None) == bare


# Lengths.


def test_a_query_that_leaves_no_room_for_an_opt_goes_as_it_is() -> None:
    for size in (MAX_MESSAGE - OPT_LENGTH + 1, MAX_MESSAGE):
        query = big_response(make_query(), size)
        assert up(query) == query
        assert completed(query, keepalive=True) == query
    query = big_response(make_query(), MAX_MESSAGE - OPT_LENGTH)
    sent = completed(up(query), keepalive=True)
    assert len(up(query)) == len(sent) == MAX_MESSAGE


def test_a_query_without_an_opt_that_ends_in_what_looks_like_one_is_not_taken_for_it() -> None:
    lookalike = with_options(make_query(), [])[-OPT_LENGTH:]
    lookalike = with_our_opt(lookalike)
    filled = bytes(65000)
    record = raw_record(16, rdata=filled + lookalike)
    query = raw_message(question=QUESTION, sections=((), (), (record,)))
    padded = raw_record(16, rdata=bytes(MAX_MESSAGE - len(query)) + filled + lookalike)
    query = raw_message(question=QUESTION, sections=((), (), (padded,)))
    assert len(query) == MAX_MESSAGE
    assert completed(up(query), keepalive=True) == query


def test_a_query_that_cannot_be_padded_to_a_whole_block_is_sent_without_padding() -> None:
    query = up(big_response(make_query(), MAX_MESSAGE - 40))
    sent = opt_of(completed(query, keepalive=True))
    assert sent is not None
    assert codes(sent.options) == [11]


@pytest.mark.parametrize("payload", [None, 1232], ids=["no-OPT", "OPT"])
def test_what_ends_in_no_opt_is_not_completed(payload: int | None) -> None:
    query = make_query(payload=payload)
    behind = query[:11] + bytes([query[11] + 1]) + query[12:] + A
    assert completed(behind, keepalive=True) == behind
    assert completed(b"", keepalive=True) == b""
    assert completed(b"no message", keepalive=True) == b"no message"


def test_an_answer_that_leaves_no_room_for_an_opt_is_given_without() -> None:
    for size in (MAX_MESSAGE - OPT_LENGTH + 1, MAX_MESSAGE):
        reply = big_response(make_query(), size)
        assert down(reply, ASKED_WITHOUT) == reply
    reply = big_response(make_query(), MAX_MESSAGE - OPT_LENGTH)
    assert len(down(reply, ASKED_WITHOUT)) == MAX_MESSAGE


# Idle times.


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        pytest.param([], None, id="no-option"),
        pytest.param([COOKIE, PADDING], None, id="others"),
        pytest.param([PADDING, KEEPALIVE], 10.0, id="ten-seconds"),
        pytest.param([generic(11, b"\0\1")], 0.1, id="the-unit"),
        pytest.param([generic(11, b"\0\0")], 0.0, id="close-it"),
        pytest.param([generic(11, b"\xff\xff")], 6553.5, id="the-most"),
        pytest.param([generic(11, b"")], None, id="no-time"),
        pytest.param([generic(11, b"\1")], None, id="one-octet"),
        pytest.param([KEEPALIVE, KEEPALIVE], None, id="twice"),
    ],
)
def test_the_idle_time_that_a_server_states_is_read(
    options: list[dns.edns.Option], stated: float | None
) -> None:
    assert idle_time(parse(with_options(make_response(make_query()), options))) == stated


def test_a_message_without_opt_or_with_a_broken_one_states_no_idle_time() -> None:
    assert idle_time(parse(make_response(make_query()))) is None
    broken = raw_record(41, rdata=options_wire([KEEPALIVE]) + b"\0")
    assert idle_time(parse(raw_message(question=QUESTION, sections=((), (), (broken,))))) is None


@pytest.mark.parametrize("opt", [None, Opt(1232, 0, 0, False, b"")], ids=["no opt", "opt"])
def test_a_name_that_is_read_from_the_header_would_be_another_one(opt: Opt | None) -> None:
    """As the last octet of ARCOUNT is: a label of one octet, or of none."""
    question = b"\0\0\1\0\1"
    record = b"\xc0\x0b\0\1\0\1\0\0\0\0\0\4\xc0\0\2\1"
    reply = bytes(2) + b"\x80\0" + bytes([0, 1, 0, 1, 0, 0, 0, 1]) + question + record
    with pytest.raises(MoveError):
        to_client(packet.parse(reply + encode_opt()), opt)
    with pytest.raises(MoveError):
        to_upstream(
            packet.parse(bytes(4) + bytes([0, 1, 0, 0, 0, 0, 0, 0]) + b"\1a\xc0\0\0\1\0\1"), opt
        )
