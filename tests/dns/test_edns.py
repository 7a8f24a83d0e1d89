"""The OPT record: where it may stand, what it says, and what it lets a client be sent."""

import dns.edns
import dns.exception
import dns.flags
import dns.message
import pytest

from nxdns.dns import edns, packet
from nxdns.dns.edns import MAX_DATAGRAM, Opt, OptError, find_opt, parse_opt, udp_limit
from tests.dns.wires import options_wire, raw_message, raw_record
from tests.support.messages import make_query

QUESTION = b"\x03www\x07example\x03com\x00\x00\x01\x00\x01"
A = raw_record(1, owner=b"\xc0\x0c", rdata=b"\xc0\x00\x02\x01")


def opt_record(*, owner: bytes = b"\0", ttl: int = 0, rdata: bytes = b"") -> bytes:
    return raw_record(41, owner=owner, rclass=1232, ttl=ttl, rdata=rdata)


def with_additional(*records: bytes) -> bytes:
    return raw_message(question=QUESTION, sections=((A,), (), records))


def find(wire: bytes) -> Opt | None:
    return find_opt(packet.parse(wire))


def test_a_message_without_an_opt_has_none() -> None:
    assert find(with_additional()) is None
    assert find(with_additional(A, A)) is None
    assert find(raw_message()) is None


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((opt_record(), A, A), id="first"),
        pytest.param((A, opt_record(), A), id="amid"),
        pytest.param((A, A, opt_record()), id="last"),
        pytest.param((opt_record(),), id="alone"),
    ],
)
def test_the_opt_is_found_wherever_it_stands_among_the_additional(
    records: tuple[bytes, ...],
) -> None:
    opt = find(with_additional(*records))
    assert opt is not None
    assert opt.payload_size == 1232


def test_the_first_opt_record_is_at_hand_undecoded() -> None:
    record = packet.parse(
        with_additional(A, opt_record(ttl=0x01028000, rdata=b"junk"))
    ).opt_record()
    assert record is not None
    assert (record.rtype, record.rclass, record.ttl) == (41, 1232, 0x01028000)
    assert record.rdata == b"junk"
    assert record.root_owner


@pytest.mark.parametrize(
    ("ttl", "extended_rcode", "version", "dnssec_ok"),
    [
        pytest.param(0, 0, 0, False, id="nothing"),
        pytest.param(0x00008000, 0, 0, True, id="do"),
        pytest.param(0x01000000, 1, 0, False, id="extended-rcode"),
        pytest.param(0x00010000, 0, 1, False, id="version-1"),
        pytest.param(0x00007FFF, 0, 0, False, id="every-flag-but-do"),
        pytest.param(0xFFFFFFFF, 255, 255, True, id="every-bit"),
    ],
)
def test_the_ttl_is_extended_rcode_version_and_do(
    ttl: int, extended_rcode: int, version: int, dnssec_ok: bool
) -> None:
    opt = find(with_additional(opt_record(ttl=ttl)))
    assert opt is not None
    assert (opt.extended_rcode, opt.version) == (extended_rcode, version)
    assert opt.dnssec_ok is dnssec_ok


@pytest.mark.parametrize("payload", [0, 1, 511, 512, 1232, 4096, 65535])
def test_the_class_is_the_payload_size(payload: int) -> None:
    opt = find(with_additional(raw_record(41, rclass=payload)))
    assert opt is not None
    assert opt.payload_size == payload


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(b"", id="none"),
        pytest.param(b"\0\x0c\0\0", id="an-empty-one"),
        pytest.param(b"\0\x0c\0\x02\0\0", id="one"),
        pytest.param(b"\0\x0c\0\0\0\x0a\0\x08clientck", id="two"),
        pytest.param(b"\0\x0c\0\x01\0" * 3, id="the-same-thrice"),
        pytest.param(b"\xfd\xe9\xff\xf0" + bytes(0xFFF0 - 100 + 100), id="a-long-one"),
    ],
)
def test_options_are_kept_as_they_came(options: bytes) -> None:
    opt = find(raw_message(sections=((), (), (opt_record(rdata=options),))))
    assert opt is not None
    assert opt.options == options


def test_options_that_dnspython_made_are_kept_as_they_came() -> None:
    options = [dns.edns.ECSOption("192.0.2.0", 24), dns.edns.CookieOption(b"clientck", b"")]
    query = dns.message.make_query("example.com", "A", use_edns=0, options=options)
    opt = find(query.to_wire())
    assert opt is not None
    assert opt.options == options_wire(options)


@pytest.mark.parametrize(
    "rdata",
    [
        pytest.param(b"\0", id="one-octet"),
        pytest.param(b"\0\x0c\0", id="three-octets"),
        pytest.param(b"\0\x0c\0\x01", id="data-missing"),
        pytest.param(b"\0\x0c\0\x04abc", id="data-one-short"),
        pytest.param(b"\0\x0c\xff\xff", id="longest-length-no-data"),
        pytest.param(b"\0\x0c\0\0\0", id="a-good-one-and-an-octet"),
        pytest.param(b"\0\x0c\0\0\0\x0c\0\x01", id="a-good-one-and-a-bad-one"),
    ],
)
def test_rdata_that_does_not_parse_as_options_is_a_format_error(rdata: bytes) -> None:
    # The record behind it must not be read as the missing option data.
    wire = with_additional(opt_record(rdata=rdata), A)
    with pytest.raises(dns.exception.DNSException):
        dns.message.from_wire(wire)
    walked = packet.parse(wire)
    with pytest.raises(OptError):
        find_opt(walked)
    record = walked.opt_record()
    assert record is not None
    with pytest.raises(OptError):
        parse_opt(record)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((opt_record(), opt_record()), id="side-by-side"),
        pytest.param((opt_record(), A, opt_record()), id="apart"),
        pytest.param((opt_record(), opt_record(), opt_record()), id="three"),
        pytest.param((opt_record(), opt_record(rdata=b"junk!")), id="the-second-malformed"),
        pytest.param((opt_record(), opt_record(owner=b"\xc0\x0c")), id="the-second-not-the-roots"),
    ],
)
def test_a_second_opt_record_is_a_format_error(records: tuple[bytes, ...]) -> None:
    with pytest.raises(OptError):
        find(with_additional(*records))


def test_of_two_opt_records_the_first_is_at_hand() -> None:
    walked = packet.parse(with_additional(A, opt_record(ttl=1), opt_record(ttl=2)))
    record = walked.opt_record()
    assert record is not None
    assert record.ttl == 1


@pytest.mark.parametrize("section", [pytest.param(0, id="answer"), pytest.param(1, id="authority")])
@pytest.mark.parametrize("also", [(), (opt_record(),)], ids=["alone", "with-a-good-one"])
def test_an_opt_record_outside_the_additional_section_is_a_format_error(
    section: int, also: tuple[bytes, ...]
) -> None:
    sections: list[list[bytes]] = [[A], [A], [A, *also]]
    sections[section].append(opt_record())
    with pytest.raises(OptError):
        find(raw_message(question=QUESTION, sections=sections))


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(b"\x01a\x00", id="a-name"),
        pytest.param(b"\xc0\x0c", id="pointer-to-the-question"),
        pytest.param(b"\x01a\xc0\x0c", id="label-and-pointer"),
        pytest.param(b"\xc0\x10", id="pointer-into-the-question"),
    ],
)
def test_an_opt_record_whose_owner_is_not_the_root_is_a_format_error(owner: bytes) -> None:
    with pytest.raises(OptError):
        find(with_additional(opt_record(owner=owner)))


@pytest.mark.parametrize(
    ("question", "owner"),
    [
        pytest.param(b"\0\0\x01\0\x01", b"\xc0\x0c", id="to-the-question"),
        pytest.param(QUESTION, b"\xc0\x1c", id="to-the-end-of-the-question"),
        pytest.param(QUESTION, b"\xc0\x00", id="to-a-zero-in-the-header"),
    ],
)
def test_an_opt_owner_that_is_a_pointer_to_a_root_is_the_root(
    question: bytes, owner: bytes
) -> None:
    wire = raw_message(question=question, sections=((), (), (opt_record(owner=owner),)))
    assert dns.message.from_wire(wire).payload == 1232
    opt = find(wire)
    assert opt is not None
    assert opt.payload_size == 1232


@pytest.mark.parametrize("rtype", [0x0129, 0x2900, 40, 42])
def test_a_type_that_shares_an_octet_with_opt_is_not_opt(rtype: int) -> None:
    assert find(with_additional(raw_record(rtype), raw_record(rtype))) is None


def test_rdata_that_looks_like_an_opt_record_is_not_one() -> None:
    assert find(with_additional(raw_record(16, rdata=opt_record()))) is None


@pytest.mark.parametrize(
    ("payload", "limit"),
    [
        pytest.param(0, 512, id="0-reads-as-512"),
        pytest.param(200, 512, id="200-reads-as-512"),
        pytest.param(511, 512, id="511-reads-as-512"),
        pytest.param(512, 512, id="512"),
        pytest.param(513, 513, id="513"),
        pytest.param(1232, 1232, id="1232"),
        pytest.param(4096, 4096, id="4096"),
        pytest.param(4097, 4096, id="4097-is-above-our-ceiling"),
        pytest.param(9000, 4096, id="9000-is-above-our-ceiling"),
        pytest.param(65535, 4096, id="65535-is-above-our-ceiling"),
    ],
)
def test_a_client_is_sent_what_it_takes_between_512_and_our_ceiling(
    payload: int, limit: int
) -> None:
    assert MAX_DATAGRAM == 4096
    assert udp_limit(Opt(payload, 0, 0, False, b"")) == limit


def test_a_client_without_edns_is_sent_512() -> None:
    assert udp_limit(None) == 512


def test_the_opts_of_ever_new_clients_are_all_read_and_not_kept_for_ever() -> None:
    for _ in range(2):
        for size in range(512, 512 + 3 * edns._MOST_PLAIN):
            opt = find(make_query(payload=size))
            assert opt is not None
            assert opt.payload_size == size
            assert len(edns._plain) <= edns._MOST_PLAIN
