"""The OPT record hop by hop (RFC 6891 §6.1): what of a client's goes upstream, what comes back.

Upstream goes an OPT of ours: our payload size, the client's DO, and of its options Client Subnet
alone, if it sent one. Back to a client that sent an OPT goes one of ours again, with the extended
RCODE of the upstream, and of its options Client Subnet and Extended Errors (RFC 8914). Cookie,
keepalive and padding belong to the one connection that they were sent on, and never cross. Whatever
is outside the OPT passes byte for byte.
"""

from nxdns.dns.edns import (
    CLIENT_SUBNET,
    EXTENDED_ERROR,
    KEEPALIVE,
    MAX_DATAGRAM,
    OPTION_HEAD,
    PADDING,
    Opt,
    encode_opt,
    encode_options,
    options_of,
    parse_opt,
)
from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.header import HEADER_LENGTH
from nxdns.dns.name import POINTER
from nxdns.dns.packet import OPT, RECORD_FIXED, Packet
from nxdns.dns.records import expanded_records

PADDING_BLOCK = 128  # RFC 8467 §4.1, for queries

_ARCOUNT = 10  # offset in the header
_ASK_FOR_KEEPALIVE = bytes([0, KEEPALIVE, 0, 0])  # RFC 7828 §3.2.1: of a client, without a time
_EMPTY_OPT_TAIL = b"\0\0\x29"  # the root, TYPE OPT

_OPT_WITHOUT_DO = encode_opt()
_OPT_WITH_DO = encode_opt(dnssec_ok=True)


def to_upstream(asked: Packet, opt: Opt | None) -> bytes:
    """The query to send for ``asked``, whose own OPT is ``opt``: it ends in an OPT of ours."""
    wire = asked.wire
    if opt is None:
        return _with_arcount(wire, asked.arcount + 1) + _OPT_WITHOUT_DO
    if opt.options:
        subnet = [option for option in options_of(opt) if option[0] == CLIENT_SUBNET]
        ours = encode_opt(dnssec_ok=opt.dnssec_ok, options=encode_options(subnet[:1]))
    else:
        ours = _OPT_WITH_DO if opt.dnssec_ok else _OPT_WITHOUT_DO
    return without_opt(asked, ours)


def complete(query: bytes, *, keepalive: bool) -> bytes:
    """Of a query that ends in an OPT of ours: with what concerns this hop alone in it.

    Padding to a multiple of 128 octets, and on a TLS session the wish to know how long it may stay
    idle. A query without such an end is returned as it is.
    """
    start = len(query) - 1 - RECORD_FIXED
    if start < HEADER_LENGTH:
        return query
    if (
        query[start : start + 3] == _EMPTY_OPT_TAIL
        and query[-2:] == b"\0\0"
        and query[_ARCOUNT + 1]
    ):
        options = b""
    else:
        found = _last_opt(query)
        if found < 0:
            return query
        start, options = found, query[found + 1 + RECORD_FIXED :]
    if keepalive:
        options += _ASK_FOR_KEEPALIVE
    head = query[: start + 1 + RECORD_FIXED - 2]
    size = len(head) + 2 + len(options) + OPTION_HEAD
    padding = -size % PADDING_BLOCK
    if size + padding <= MAX_MESSAGE:
        options += bytes([0, PADDING]) + padding.to_bytes(2, "big") + bytes(padding)
    return head + len(options).to_bytes(2, "big") + options


def _last_opt(query: bytes) -> int:
    """Where the OPT of a Client Subnet begins that ends ``query``; -1 when nothing such does."""
    # 8 octets of fixed data and at most 16 of an address, behind the head of the option.
    for start in range(len(query) - 1 - RECORD_FIXED, len(query) - 48, -1):
        if start < HEADER_LENGTH:
            break
        length = len(query) - start - 1 - RECORD_FIXED
        if (
            query[start : start + 3] == _EMPTY_OPT_TAIL
            and query[start + 3] << 8 | query[start + 4] == MAX_DATAGRAM
            and query[start + 9] << 8 | query[start + 10] == length
        ):
            return start
    return -1


def to_client(reply: Packet, opt: Opt | None) -> bytes:
    """The reply to send to a client whose own OPT was ``opt``, for an upstream's ``reply``."""
    if opt is None:
        return reply.wire if not reply.opt_count else without_opt(reply, b"")
    theirs = _opt_of(reply)
    if theirs is None:
        return _with_arcount(reply.wire, reply.arcount + 1) + (
            _OPT_WITH_DO if opt.dnssec_ok else _OPT_WITHOUT_DO
        )
    crossing = [o for o in options_of(theirs) if o[0] in (CLIENT_SUBNET, EXTENDED_ERROR)]
    ours = encode_opt(
        extended_rcode=theirs.extended_rcode,
        dnssec_ok=opt.dnssec_ok,
        options=encode_options(crossing),
    )
    return without_opt(reply, ours)


def _opt_of(packet: Packet) -> Opt | None:
    """The first OPT; of one that cannot be read, what can be."""
    record = packet.opt_record()
    if record is None:
        return None
    try:
        return parse_opt(record)
    except ValueError:
        return Opt(record.rclass, 0, 0, False, b"")


def without_opt(packet: Packet, ours: bytes) -> bytes:
    """The message of ``packet`` without its OPT records, and with ``ours``, if any, at its end."""
    wire = packet.wire
    start, end = packet.opt_start, _end_of_opt(packet)
    if packet.opt_count == 1 and (end == len(wire) or not _may_point_behind(wire, start, end)):
        arcount = packet.arcount - 1 + (1 if ours else 0)
        return _with_arcount(wire[:start], arcount) + wire[end:] + ours
    kept = [record for rtype, record in expanded_records(wire, start) if rtype != OPT]
    arcount = packet.arcount - packet.opt_count + (1 if ours else 0)
    return _with_arcount(wire[:start], arcount) + b"".join(kept) + ours


def _end_of_opt(packet: Packet) -> int:
    fixed = packet.opt_fixed
    return fixed + RECORD_FIXED + (packet.wire[fixed + 8] << 8 | packet.wire[fixed + 9])


def _may_point_behind(wire: bytes, start: int, end: int) -> bool:
    """Whether something behind ``end`` could be a compression pointer to behind ``start``.

    Such a one would be wrong once what is between the two is gone.
    """
    return any(
        octet >= POINTER and (octet & ~POINTER & 0xFF) << 8 | following >= start
        for octet, following in zip(wire[end:], wire[end + 1 :], strict=False)
    )


def _with_arcount(wire: bytes, arcount: int) -> bytes:
    return wire[:_ARCOUNT] + arcount.to_bytes(2, "big") + wire[_ARCOUNT + 2 :]
