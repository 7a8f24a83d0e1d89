"""Records that move within their message: what their compressed names point at may move as well.

Only what is needed is changed: a record whose names point at nothing that has moved is copied byte
for byte, and of any other the names are written out (RFC 1035 §4.1.4).
"""

from collections.abc import Iterator
from typing import Final

from dns.rdatatype import RdataType

from nxdns.dns.header import WalkError
from nxdns.dns.name import MAX_LABEL, NameLengths, skip_name
from nxdns.dns.packet import OPT, RECORD_FIXED, Packet

# Octets before the first name in RDATA, and the names: the types that RFC 3597 §4 wants to be
# decompressed. Other types' names must not be compressed, so that nobody needs to look for them.
_NAMES: Final[dict[int, tuple[int, int]]] = {
    RdataType.NS: (0, 1),
    RdataType.MD: (0, 1),
    RdataType.MF: (0, 1),
    RdataType.CNAME: (0, 1),
    RdataType.SOA: (0, 2),
    RdataType.MB: (0, 1),
    RdataType.MG: (0, 1),
    RdataType.MR: (0, 1),
    RdataType.PTR: (0, 1),
    RdataType.MINFO: (0, 2),
    RdataType.MX: (2, 1),
    RdataType.RP: (0, 2),
    RdataType.AFSDB: (2, 1),
    RdataType.RT: (2, 1),
    RdataType.SIG: (18, 1),
    RdataType.PX: (2, 2),
    RdataType.NXT: (0, 1),
    RdataType.NAPTR: (4, 1),  # and three character strings before it
    RdataType.SRV: (6, 1),
}
_NAPTR: Final = int(RdataType.NAPTR)
_NAPTR_STRINGS: Final = 3  # FLAGS, SERVICES, REGEXP (RFC 3403 §4.1)


class MoveError(ValueError):
    """A record that cannot stand elsewhere: a name in its RDATA cannot be read."""


class Span:
    """Where a record stands."""

    __slots__ = ("end", "fixed", "is_opt", "rtype", "start")

    def __init__(self, wire: bytes, start: int, fixed: int) -> None:
        """``start`` is the offset of the owner name, ``fixed`` that of TYPE."""
        self.start = start
        self.fixed = fixed
        self.rtype = wire[fixed] << 8 | wire[fixed + 1]
        self.is_opt = self.rtype == OPT
        self.end = fixed + RECORD_FIXED + (wire[fixed + 8] << 8 | wire[fixed + 9])


def records_of(packet: Packet, known: NameLengths) -> Iterator[tuple[int, Span]]:
    """Every record of a message with one question, with its section: 0 for the answers.

    ``known`` is what has been learnt of names so far, and is at first empty.
    """
    wire = packet.wire
    offset = packet.question_end
    for section, count in enumerate((packet.ancount, packet.nscount, packet.arcount)):
        for _ in range(count):
            record = Span(wire, offset, skip_name(wire, offset, known))
            offset = record.end
            yield section, record


class Mover:
    """Makes the records of one message fit to stand elsewhere. Linear in what it gives."""

    def __init__(self, wire: bytes, stays: int) -> None:
        """What is before ``stays`` stays where it is, and can be pointed at as before."""
        self._wire = wire
        self._stays = stays
        self._known: NameLengths = {}
        #: Where a chain of pointers leads: a message may have thousands, each at the one before.
        self._beyond: dict[int, int] = {}

    def moved(self, record: Span) -> bytes:
        """``record``, whose owner has been walked. Raises MoveError."""
        wire, start, fixed, end = self._wire, record.start, record.fixed, record.end
        begin = fixed + RECORD_FIXED
        owner = self._written_out(start) if self._points_at_moved(start) else None
        rdata = self._rdata(record.rtype, begin, end)
        if owner is None and rdata is None:
            return wire[start:end]
        if owner is None:
            owner = wire[start:fixed]
        if rdata is None:
            rdata = wire[begin:end]
        return owner + wire[fixed : begin - 2] + len(rdata).to_bytes(2, "big") + rdata

    def _rdata(self, rtype: int, begin: int, end: int) -> bytes | None:
        """RDATA with its names written out; None when it can stay as it is."""
        before, names = _NAMES.get(rtype, (0, 0))
        if not names or begin == end:
            return None
        wire = self._wire
        offset = begin + before
        if rtype == _NAPTR:
            for _ in range(_NAPTR_STRINGS):
                offset += wire[offset] + 1 if offset < end else 0
        parts = [wire[begin:offset]]
        changed = False
        for _ in range(names):
            try:
                behind = skip_name(wire, offset, self._known)
            except WalkError as exc:
                raise MoveError(f"a name in RDATA: {exc}") from exc
            if behind > end:
                raise MoveError("RDATA that ends before its names")
            if self._points_at_moved(offset):
                parts.append(self._written_out(offset))
                changed = True
            else:
                parts.append(wire[offset:behind])
            offset = behind
        return b"".join([*parts, wire[offset:end]]) if changed else None

    def _points_at_moved(self, offset: int) -> bool:
        """Whether the name at ``offset``, which has been walked, ends in such a pointer.

        One to what stays leads on to what stays, for pointers go backwards; unless the labels there
        run on into what moves.
        """
        wire, stays = self._wire, self._stays
        while octet := wire[offset]:
            if octet > MAX_LABEL:
                target = self._target(offset)
                return target >= stays or self._runs_on(target)
            offset += octet + 1
        return False

    def _runs_on(self, offset: int) -> bool:
        """Whether what is read of the name at ``offset`` does not all stay."""
        wire, stays = self._wire, self._stays
        while offset < stays - 1:
            octet = wire[offset]
            if octet == 0:
                return False
            offset = self._behind_pointers(offset) if octet > MAX_LABEL else offset + octet + 1
        return offset >= stays or wire[offset] != 0

    def _written_out(self, offset: int) -> bytes:
        wire = self._wire
        name = bytearray()
        while octet := wire[offset]:
            if octet <= MAX_LABEL:
                name += wire[offset : offset + octet + 1]
                offset += octet + 1
            else:
                offset = self._behind_pointers(offset)
        name.append(0)
        return bytes(name)

    def _behind_pointers(self, offset: int) -> int:
        beyond = self._beyond
        passed = []
        while offset not in beyond and self._wire[offset] > MAX_LABEL:
            passed.append(offset)
            offset = self._target(offset)
        offset = beyond.get(offset, offset)
        for each in passed:
            beyond[each] = offset
        return offset

    def _target(self, offset: int) -> int:
        return (self._wire[offset] & 0x3F) << 8 | self._wire[offset + 1]
