"""Records behind an OPT that goes or grows: their names still say what they said."""

from collections.abc import Callable

import dns.name
import dns.rdatatype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns import packet
from nxdns.dns.edns import Opt
from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.hop import to_client
from nxdns.dns.records import MoveError
from tests.dns.strategies import names
from tests.dns.test_hop import seen
from tests.dns.test_linear_work import assert_linear, pointer
from tests.dns.wires import ADDITIONAL, RDATAS, opt_rrset, raw_message, raw_record, render, rrset

QUESTION = b"\x03www\x07example\x03com\0\0\x01\0\x01"
OPT = raw_record(41, rclass=1232, rdata=b"\0\x0c\0\x20" + bytes(32))
ASKED = Opt(1232, 0, 0, False, b"")
OURS = b"\0\0\x29\x10\0\0\0\0\0\0\0"

#: Where the first record behind the OPT begins, and what its owner is.
BEHIND = 12 + len(QUESTION) + len(OPT)
OWNER = b"\x05moved\x03net\0"
FIRST = raw_record(1, owner=OWNER, rdata=b"\xc0\0\2\1")
TO_OWNER = pointer(BEHIND)
TO_NET = pointer(BEHIND + 6)


def reply_of(*behind: bytes, opt: bytes = OPT) -> bytes:
    return raw_message(question=QUESTION, sections=((), (), (opt, *behind)))


def moved(*behind: bytes) -> bytes:
    """What has become of the records behind the OPT, the same with an OPT of ours and without."""
    reply = packet.parse(reply_of(*behind))
    without, with_one = to_client(reply, None), to_client(reply, ASKED)
    start = 12 + len(QUESTION)
    assert with_one[start:] == without[start:] + OURS
    assert packet.parse(without).arcount == packet.parse(with_one).arcount - 1 == len(behind)
    return without[start:]


@settings(max_examples=200, deadline=None)
@given(
    names(), st.lists(st.tuples(names(), st.sampled_from(sorted(RDATAS))), min_size=2, max_size=9)
)
def test_whatever_dnspython_compresses_behind_an_opt_stays_the_same(
    name: dns.name.Name, records: list[tuple[dns.name.Name, str]]
) -> None:
    # Each owner twice: the second time it is a pointer to behind the OPT.
    glue = [(ADDITIONAL, rrset(owner, kind)) for owner, kind in [*records, *records]]
    wire = render(name, 1, [(ADDITIONAL, opt_rrset(1232)), *glue])
    for asked in (None, ASKED):
        assert seen(to_client(packet.parse(wire), asked)) == seen(wire)


def test_an_owner_that_points_at_what_has_moved_is_written_out() -> None:
    second = raw_record(1, owner=TO_OWNER, rdata=b"\xc0\0\2\2")
    third = raw_record(1, owner=b"\x01a" + TO_NET, rdata=b"\xc0\0\2\3")
    assert moved(FIRST, second, third) == (
        FIRST
        + raw_record(1, owner=OWNER, rdata=b"\xc0\0\2\2")
        + raw_record(1, owner=b"\x01a\x03net\0", rdata=b"\xc0\0\2\3")
    )


def test_a_record_that_points_at_nothing_that_has_moved_is_the_same_byte_for_byte() -> None:
    # Its address, and its text, look like pointers to behind the OPT.
    address = raw_record(1, owner=b"\xc0\x0c", rdata=pointer(BEHIND) * 2)
    text = raw_record(16, owner=b"\x01a\xc0\x10", rdata=b"\x02" + pointer(BEHIND))
    mail = raw_record(15, owner=b"\xc0\x0c", rdata=b"\xc0\xff\x04mail\xc0\x10")
    assert moved(FIRST, address, text, mail) == FIRST + address + text + mail


def test_a_pointer_into_the_opt_itself_is_written_out() -> None:
    root = pointer(12 + len(QUESTION))
    record = raw_record(1, owner=root, rdata=b"\xc0\0\2\1")
    assert moved(record) == raw_record(1, rdata=b"\xc0\0\2\1")


IN_RDATA = [
    pytest.param(rtype, before, count, behind, id=dns.rdatatype.RdataType(rtype).name)
    for rtype, before, count, behind in [
        (2, b"", 1, b""),
        (3, b"", 1, b""),
        (4, b"", 1, b""),
        (5, b"", 1, b""),
        (6, b"", 2, bytes(range(20))),
        (7, b"", 1, b""),
        (8, b"", 1, b""),
        (9, b"", 1, b""),
        (12, b"", 1, b""),
        (14, b"", 2, b""),
        (15, b"\xc0\xff", 1, b""),
        (17, b"", 2, b""),
        (18, b"\0\1", 1, b""),
        (21, b"\0\1", 1, b""),
        (24, b"\xc0\xff" * 9, 1, b"signature\xc0\xff"),
        (26, b"\0\1", 2, b""),
        (30, b"", 1, b"\x40\xc0\xff"),
        (33, b"\0\1\0\2\0\3", 1, b""),
        (35, b"\0\1\0\2\x01s\x03SIP\x02\xc0\xff", 1, b""),
    ]
]


@pytest.mark.parametrize(("rtype", "before", "count", "behind"), IN_RDATA)
def test_names_in_rdata_that_point_at_what_has_moved_are_written_out(
    rtype: int, before: bytes, count: int, behind: bytes
) -> None:
    pointing = before + (b"\x02ns" + TO_OWNER) * count + behind
    written = before + (b"\x02ns" + OWNER) * count + behind
    record = raw_record(rtype, owner=b"\xc0\x0c", rdata=pointing)
    assert moved(FIRST, record) == FIRST + raw_record(rtype, owner=b"\xc0\x0c", rdata=written)
    # And one of two that points at what stays, stays as it is.
    if count == 2:
        pointing = before + b"\x02ns" + TO_OWNER + b"\x02ns\xc0\x0c" + behind
        written = before + b"\x02ns" + OWNER + b"\x02ns\xc0\x0c" + behind
        record = raw_record(rtype, rdata=pointing)
        assert moved(FIRST, record) == FIRST + raw_record(rtype, rdata=written)


def test_rdata_of_no_octets_and_of_other_types_is_not_looked_into() -> None:
    for record in (raw_record(2), raw_record(15), raw_record(46, rdata=bytes(18) + TO_OWNER)):
        assert moved(FIRST, record) == FIRST + record


@pytest.mark.parametrize(
    "rdata",
    [
        pytest.param(b"\0\1\x05mail", id="label-runs-off"),
        pytest.param(b"\0\1\xff\xff", id="pointer-forward"),
        pytest.param(b"\0\1\x80", id="label-type-10"),
        pytest.param(b"\0", id="shorter-than-its-fields"),
        pytest.param(b"\0\1", id="no-name"),
        pytest.param(b"\0\1\x02ns", id="name-goes-on-behind-it"),
    ],
)
def test_a_name_in_rdata_that_cannot_be_read_cannot_be_moved(rdata: bytes) -> None:
    record = raw_record(15, rdata=rdata)
    reply = packet.parse(reply_of(record, FIRST))
    for asked in (None, ASKED):
        with pytest.raises(MoveError):
            to_client(reply, asked)
    # Where nothing moves, nobody looks.
    last = packet.parse(raw_message(question=QUESTION, sections=((), (), (record, OPT))))
    expected = raw_message(question=QUESTION, sections=((), (), (record,)))
    assert to_client(last, None) == expected


def test_what_compression_has_saved_must_fit_when_it_is_written_out() -> None:
    longest = (b"\x3f" + b"a" * 63) * 3 + b"\x3d" + b"b" * 61 + b"\0"
    first = raw_record(1, owner=longest)
    again = raw_record(1, owner=TO_OWNER)
    fits = (MAX_MESSAGE - 12 - len(QUESTION) - len(OURS)) // len(first)
    assert (
        len(to_client(packet.parse(reply_of(first, *[again] * (fits - 1))), ASKED)) <= MAX_MESSAGE
    )
    with pytest.raises(MoveError):
        to_client(packet.parse(reply_of(first, *[again] * fits)), ASKED)


# Work.


def _chained(records: Callable[[int], bytes]) -> bytes:
    """A message of nearly 65535 octets: pointers, each at the one before, and who uses them."""
    links = 7000
    chain = OWNER + TO_OWNER_IN_RDATA
    for number in range(links - 1):
        chain += pointer(CHAIN + len(OWNER) + 2 * number)
    behind = [raw_record(16, rdata=chain)]
    left = MAX_MESSAGE - len(reply_of(*behind))
    last = CHAIN + len(chain) - 2
    while len(record := records(last)) <= left:
        behind.append(record)
        left -= len(record)
    return reply_of(*behind)


CHAIN = BEHIND + 11
TO_OWNER_IN_RDATA = pointer(CHAIN)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(lambda last: raw_record(1, owner=pointer(last)), id="owners"),
        pytest.param(lambda last: raw_record(2, rdata=pointer(last)), id="rdata"),
        pytest.param(lambda last: raw_record(6, rdata=pointer(last) * 2), id="two-in-rdata"),
    ],
)
def test_the_work_is_in_proportion_to_the_message(records: Callable[[int], bytes]) -> None:
    wire = _chained(records)

    def move(counted: bytes) -> object:
        reply = packet.parse(counted)
        try:
            return to_client(reply, ASKED)
        except MoveError:
            return None

    assert_linear(wire, move, per_octet=30)
