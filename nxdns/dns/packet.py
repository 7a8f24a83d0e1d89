"""Walk a whole message by offset, decoding no RDATA (RFC 1035 §4.1).

This is the hot path: every query and every response passes it once, so it is one loop over
bytes and builds one object.
"""

import struct
from typing import Final

from nxdns.dns.header import HEADER_LENGTH, Header, Truncated, WalkError, unpack_header
from nxdns.dns.name import NameLengths, expand_name, skip_name
from nxdns.dns.question import Question

OPT: Final = 41  # dnspython's RdataType.OPT as a plain integer: an enumeration costs on this path
RECORD_FIXED: Final = 10  # TYPE, CLASS, TTL and RDLENGTH behind the owner name
# The usual owner name, with HEADER_LENGTH in the second octet.
_FIRST_QUESTION_POINTER: Final = 0xC0

unpack_record: Final = struct.Struct("!HHIH").unpack_from


class Record:
    """Where one resource record stands in its message."""

    __slots__ = ("rclass", "rdata", "root_owner", "rtype", "ttl")

    def __init__(self, wire: bytes, start: int, fixed: int) -> None:
        """``start`` is the offset of the owner name, ``fixed`` that of TYPE."""
        fields: tuple[int, int, int, int] = unpack_record(wire, fixed)
        self.rtype, self.rclass, self.ttl, length = fields
        self.root_owner = wire[start] == 0 or expand_name(wire, start) == b"\0"
        self.rdata = wire[fixed + RECORD_FIXED : fixed + RECORD_FIXED + length]


class Packet(Header):
    """A message whose every section was walked to its end."""

    __slots__ = (
        "known_names",
        "opt_count",
        "opt_fixed",
        "opt_misplaced",
        "opt_start",
        "question_end",
        "wire",
    )

    def __init__(self, wire: bytes) -> None:
        """Read the header of ``wire``, which has one; :func:`parse` walks the rest."""
        fields: tuple[int, int, int, int, int, int] = unpack_header(wire)
        self.id, self.flags, self.qdcount, self.ancount, self.nscount, self.arcount = fields
        self.wire = wire
        #: What the walk has learnt of names that are pointed at, but for the first question's.
        self.known_names: NameLengths = {}
        #: Offset behind the first question; that of the header's end when there is none.
        self.question_end = HEADER_LENGTH
        #: OPT records in all sections; ``opt_start`` and ``opt_fixed`` are offsets in the first.
        self.opt_count = 0
        self.opt_start = 0
        self.opt_fixed = 0
        #: Whether an OPT record stands outside the additional section (RFC 6891 §6.1.1).
        self.opt_misplaced = False

    def question(self) -> Question:
        """The first question. Only to be called when QDCOUNT is not 0."""
        return Question(self.wire, self.question_end)

    def opt_record(self) -> Record | None:
        """The first OPT record, wherever it stands."""
        if not self.opt_count:
            return None
        return Record(self.wire, self.opt_start, self.opt_fixed)


def parse(wire: bytes, question_end: int = 0) -> Packet:
    """Walk ``wire``: header, every question, every record of every section.

    ``question_end`` is where the question ends of a message that has one, and whose question is
    known to walk; it is not walked again.

    Raises Truncated when it ends in the middle of a structure, and WalkError for anything else
    that cannot be walked, bytes behind the last record included.
    """
    size = len(wire)
    if size < HEADER_LENGTH:
        raise Truncated(f"a header has {HEADER_LENGTH} bytes, not {size}")
    packet = Packet(wire)
    known = packet.known_names
    qdcount = packet.qdcount

    offset = HEADER_LENGTH
    if question_end:
        offset = packet.question_end = question_end
        qdcount = 0
    for index in range(qdcount):
        offset = skip_name(wire, offset, known) + 4
        if offset > size:
            raise Truncated("the message ends within a question")
        if index == 0:
            packet.question_end = offset

    first_additional = packet.ancount + packet.nscount
    named = packet.question_end > HEADER_LENGTH
    try:
        for index in range(first_additional + packet.arcount):
            start = offset
            octet = wire[offset]
            if octet == 0:
                offset += 1
            elif octet == _FIRST_QUESTION_POINTER and wire[offset + 1] == HEADER_LENGTH and named:
                offset += 2  # the first question's name, which was walked above
            else:
                offset = skip_name(wire, offset, known)
            if wire[offset + 1] == OPT and wire[offset] == 0:
                if packet.opt_count == 0:
                    packet.opt_start = start
                    packet.opt_fixed = offset
                packet.opt_count += 1
                if index < first_additional:
                    packet.opt_misplaced = True
            offset += RECORD_FIXED + (wire[offset + 8] << 8 | wire[offset + 9])
    except IndexError:
        raise Truncated("the message ends within a record") from None
    if offset > size:
        raise Truncated("the message ends within RDATA")
    if offset < size:
        raise WalkError(f"{size - offset} bytes behind the last record")
    return packet
