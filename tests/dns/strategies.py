"""Hypothesis strategies for the tests of the wire core: well-formed, mutated and hostile bytes."""

from dataclasses import dataclass

import dns.edns
import dns.name
import dns.opcode
from hypothesis import strategies as st

from tests.dns.wires import (
    ADDITIONAL,
    ANSWER,
    AUTHORITY,
    CORPUS,
    HEADER,
    RDATAS,
    opt_rrset,
    options_wire,
    render,
    rrset,
)

words = st.integers(0, 0xFFFF)

_labels = st.one_of(
    st.sampled_from([b"www", b"WWW", b"example", b"eXample", b"com", b"a", b"\xc0\x0c"]),
    st.binary(min_size=1, max_size=63),
)


@st.composite
def names(draw: st.DrawFn) -> dns.name.Name:
    """Any absolute name."""
    labels = draw(st.lists(_labels, max_size=9))
    while sum(len(label) + 1 for label in labels) > 254:
        labels.pop()
    return dns.name.Name([*labels, b""])


@dataclass(frozen=True)
class Built:
    """A message as dnspython rendered it, and what it was built from."""

    wire: bytes
    name: dns.name.Name
    rdtype: int
    rdclass: int
    #: None, or (payload size, TTL, options as they stand on the wire).
    opt: tuple[int, int, bytes] | None


_options = st.one_of(
    st.builds(
        dns.edns.GenericOption,
        # Codes that dnspython does not decode: it would refuse some data of the others.
        st.sampled_from([5, 6, 7, 9, 11, 12, 26946, 65001, 65534]),
        st.binary(max_size=40),
    ),
    st.sampled_from(
        [
            dns.edns.ECSOption("192.0.2.0", 24),
            dns.edns.ECSOption("2001:db8::", 56),
            dns.edns.CookieOption(b"clientck", b"servercookie"),
            dns.edns.EDEOption(dns.edns.EDECode.BLOCKED, "blocked here"),
            dns.edns.NSIDOption(b"ns-1"),
        ]
    ),
)


@st.composite
def built(draw: st.DrawFn) -> Built:
    """A one-question message: any header flags, many record types, compressed names.

    Half of them have an OPT, which stands anywhere among the additional records.
    """
    name = draw(names())
    rdtype, rdclass = draw(words), draw(st.one_of(st.just(1), words))
    opcode = draw(st.sampled_from([dns.opcode.QUERY, dns.opcode.STATUS, dns.opcode.NOTIFY]))
    flags = draw(words) & ~0x7800 | dns.opcode.to_flags(opcode)
    owners = st.one_of(st.just(name), names())
    kinds = st.sampled_from(sorted(RDATAS))
    records = [
        (section, rrset(draw(owners), kind))
        for section in (ANSWER, AUTHORITY, ADDITIONAL)
        for kind in draw(st.lists(kinds, max_size=3))
    ]
    opt = None
    if draw(st.booleans()):
        payload, ttl = draw(words), draw(st.integers(0, 0xFFFFFFFF))
        options = draw(st.lists(_options, max_size=4))
        opt = (payload, ttl, options_wire(options))
        additional = sum(section == ADDITIONAL for section, _ in records)
        place = len(records) - draw(st.integers(0, additional))
        records.insert(place, (ADDITIONAL, opt_rrset(payload, ttl, options)))
    wire = render(name, rdtype, records, rdclass=rdclass, id_=draw(words), flags=flags)
    return Built(wire, name, rdtype, rdclass, opt)


# Octets that mean something where a walk looks: label types, pointers, OPT's type, small lengths.
_octets = st.one_of(
    st.sampled_from([0, 1, 2, 12, 41, 63, 64, 127, 128, 191, 192, 193, 255]), st.integers(0, 255)
)
_corpus = st.sampled_from(list(CORPUS.values()))


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A well-formed message after one to three accidents."""
    wire = bytearray(draw(_corpus))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(wire)))
        accident = draw(
            st.sampled_from(["flip", "flip", "point", "count", "cut", "splice", "drop"])
        )
        if accident == "flip":
            wire[at : at + 1] = bytes([draw(_octets)])
        elif accident == "point":
            wire[at : at + 1] = b"\xc0" + bytes([draw(_octets)])
        elif accident == "count":
            field = draw(st.sampled_from([4, 6, 8, 10]))
            wire[field : field + 2] = draw(st.integers(0, 12)).to_bytes(2, "big")
        elif accident == "cut":
            del wire[at:]
        elif accident == "splice":
            donor = draw(_corpus)
            begin = draw(st.integers(0, len(donor)))
            wire[at:at] = donor[begin : begin + draw(st.integers(1, 40))]
        else:
            del wire[at : at + draw(st.integers(1, 16))]
    return bytes(wire)


_pieces = st.one_of(
    st.sampled_from(
        [
            b"\0",
            b"\xc0\x0c",
            b"\xc0\x00",
            b"\xc0\x10",
            b"\x01a",
            b"\x3f",
            b"\x40",
            b"\x80",
            b"\x00\x01\x00\x01",
            b"\x00\x29\x10\x00\x00\x00\x80\x00\x00\x00",
            b"\x00\x29\x02\x00\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x00",
            b"\x00\x00\x00\x00\x00\x00",
        ]
    ),
    st.binary(max_size=12),
)


@st.composite
def _assembled(draw: st.DrawFn) -> bytes:
    """A header with small counts, and pieces of records behind it in any order."""
    counts = [draw(st.integers(0, 3)) for _ in range(4)]
    return HEADER.pack(draw(words), draw(words), *counts) + b"".join(draw(st.lists(_pieces)))


def any_bytes() -> st.SearchStrategy[bytes]:
    """Any byte string: noise, and what looks like a message for long enough to be walked into."""
    return st.one_of(st.binary(max_size=512), _assembled(), mutants())


def tangled_names() -> st.SearchStrategy[bytes]:
    """Bytes dense with labels and pointers, for reading a name at any offset of them."""
    pointers = st.one_of(st.integers(0, 20), st.integers(0, 120)).map(lambda to: bytes([0xC0, to]))
    labels = st.sampled_from([b"\x01a", b"\x01B", b"\x02xy\0", b"\x03\x01z\0"])
    octets = st.sampled_from([b"\0", b"\0", b"\0\0", b"\x01", b"\x3f", b"\x40", b"\xff"])
    return st.lists(st.one_of(pointers, labels, octets), max_size=50).map(b"".join)
