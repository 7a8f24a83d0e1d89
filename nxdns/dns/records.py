"""Records written anew without compression, so that they can stand anywhere (RFC 1035 §4.1.4)."""

from collections.abc import Iterator

from dns.rdatatype import RdataType

from nxdns.dns.name import expand_name, skip_name
from nxdns.dns.packet import RECORD_FIXED

# Octets before the first name in RDATA, and the names: all types whose names may be compressed, as
# RFC 3597 §4 has them, so that no other type's RDATA needs to be looked into.
_NAMES: dict[int, tuple[int, int]] = {
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
    RdataType.SRV: (6, 1),
}


def expanded_records(wire: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """TYPE and wire form of each record from ``start`` to the end, names written out.

    The message has been walked. Raises WalkError for a name in RDATA that cannot be.
    """
    offset = start
    while offset < len(wire):
        owner = expand_name(wire, offset)
        fixed = skip_name(wire, offset, {})
        rtype = wire[fixed] << 8 | wire[fixed + 1]
        begin = fixed + RECORD_FIXED
        offset = begin + (wire[fixed + 8] << 8 | wire[fixed + 9])
        rdata = _expanded_rdata(wire, rtype, begin, offset)
        head = owner + wire[fixed : fixed + 8]
        yield rtype, head + len(rdata).to_bytes(2, "big") + rdata


def _expanded_rdata(wire: bytes, rtype: int, begin: int, end: int) -> bytes:
    before, names = _NAMES.get(rtype, (0, 0))
    if not names or begin == end:
        return wire[begin:end]
    parts = [wire[begin : begin + before]]
    offset = begin + before
    for _ in range(names):
        parts.append(expand_name(wire, offset))
        offset = skip_name(wire, offset, {})
    return b"".join([*parts, wire[offset:end]])
