"""The twelve bytes every message begins with."""

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns.header import HEADER_LENGTH, Header, Truncated, set_id
from tests.dns.strategies import words
from tests.dns.wires import CORPUS, HEADER


@pytest.mark.parametrize("length", range(HEADER_LENGTH))
def test_fewer_than_twelve_bytes_are_truncated(length: int) -> None:
    with pytest.raises(Truncated):
        Header.parse(CORPUS["query"][:length])


def test_twelve_bytes_are_enough_whatever_they_count() -> None:
    header = Header.parse(HEADER.pack(0x1234, 0x8180, 1, 2, 3, 65535))
    assert (header.id, header.flags) == (0x1234, 0x8180)
    assert (header.qdcount, header.ancount, header.nscount, header.arcount) == (1, 2, 3, 65535)


def test_what_follows_the_header_is_not_looked_at() -> None:
    header = Header.parse(HEADER.pack(1, 0, 1, 0, 0, 0) + b"\xff" * 40)
    assert (header.id, header.qdcount) == (1, 1)


@pytest.mark.parametrize(
    ("accessor", "flag"),
    [
        pytest.param("qr", dns.flags.QR, id="qr"),
        pytest.param("aa", dns.flags.AA, id="aa"),
        pytest.param("tc", dns.flags.TC, id="tc"),
        pytest.param("rd", dns.flags.RD, id="rd"),
        pytest.param("ra", dns.flags.RA, id="ra"),
        pytest.param("ad", dns.flags.AD, id="ad"),
        pytest.param("cd", dns.flags.CD, id="cd"),
    ],
)
def test_each_flag_is_read_from_its_own_bit(accessor: str, flag: int) -> None:
    alone = Header.parse(HEADER.pack(0, flag, 0, 0, 0, 0))
    others = Header.parse(HEADER.pack(0, ~flag & 0xFFFF, 0, 0, 0, 0))
    assert getattr(alone, accessor) is True
    assert getattr(others, accessor) is False


@settings(deadline=None)
@given(words, words)
def test_id_opcode_and_rcode_are_what_dnspython_reads(id_: int, flags: int) -> None:
    header = Header.parse(HEADER.pack(id_, flags, 0, 0, 0, 0))
    assert header.id == id_
    assert header.opcode == dns.opcode.from_flags(flags)
    assert header.rcode == dns.rcode.from_flags(flags, 0)


@settings(deadline=None)
@given(st.sampled_from(list(CORPUS.values())), words)
def test_a_set_id_changes_the_id_and_nothing_else(wire: bytes, id_: int) -> None:
    changed = set_id(wire, id_)
    assert dns.message.from_wire(changed).id == id_
    assert changed[2:] == wire[2:]
