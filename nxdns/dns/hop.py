"""The OPT record hop by hop (RFC 6891 §6.1): what of a client's goes upstream, what comes back.

Upstream goes an OPT of ours: our payload size, the client's DO, and of its options Client Subnet
alone, if it sent one. Back to a client that sent an OPT goes one of ours again, with the upstream's
extended RCODE, and of its options Client Subnet and Extended Errors (RFC 8914). Cookie, keepalive and
padding belong to the one connection that they were sent on, and never cross. Whatever is outside
the OPT passes byte for byte.
"""

from collections.abc import Iterable, Iterator

import dns.exception
import dns.message
import dns.name

from nxdns.dns.edns import DO, MAX_DATAGRAM, Opt, parse_opt
from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.name import POINTER
from nxdns.dns.packet import OPT, RECORD_FIXED, Packet, Record

CLIENT_SUBNET = 8  # RFC 7871 §6
KEEPALIVE = 11  # RFC 7828 §3.1
PADDING = 12  # RFC 7830 §3
EXTENDED_ERROR = 15  # RFC 8914 §2

PADDING_BLOCK = 128  # RFC 8467 §4.1, for queries

_ARCOUNT = 10  # offset in the header
_OPTION_HEAD = 4  # OPTION-CODE and OPTION-LENGTH
_ASK_FOR_KEEPALIVE = bytes([0, KEEPALIVE, 0, 0])  # RFC 7828 §3.2.1: of a client, without a time
_EMPTY_OPT_TAIL = b"\0\0\x29"  # the root, TYPE OPT

Option = tuple[int, bytes]


def options_of(opt: Opt) -> Iterator[Option]:
    """Code and data of each option. ``opt`` has been found to parse."""
    data = opt.options
    offset = 0
    while offset < len(data):
        end = offset + _OPTION_HEAD + (data[offset + 2] << 8 | data[offset + 3])
        yield data[offset] << 8 | data[offset + 1], data[offset + _OPTION_HEAD : end]
        offset = end


def encode_options(options: Iterable[Option]) -> bytes:
    """The RDATA of an OPT."""
    return b"".join(
        code.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for code, data in options
    )


def encode_opt(*, extended_rcode: int = 0, dnssec_ok: bool = False, options: bytes = b"") -> bytes:
    """An OPT record of ours: version 0, our payload size."""
    return b"".join(
        (
            b"\0\0\x29",
            MAX_DATAGRAM.to_bytes(2, "big"),
            bytes([extended_rcode, 0]),
            (DO if dnssec_ok else 0).to_bytes(2, "big"),
            len(options).to_bytes(2, "big"),
            options,
        )
    )


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
    if query[start : start + 3] == _EMPTY_OPT_TAIL and query[-2:] == b"\0\0" and query[10:12] > b"\0\0":
        options = b""
    else:
        found = _last_opt(query)
        if found < 0:
            return query
        start, options = found, query[found + 1 + RECORD_FIXED :]
    if keepalive:
        options += _ASK_FOR_KEEPALIVE
    head = query[: start + 1 + RECORD_FIXED - 2]
    size = len(head) + 2 + len(options) + _OPTION_HEAD
    padding = -size % PADDING_BLOCK
    if size + padding <= MAX_MESSAGE:
        options += b"\0\x0c" + padding.to_bytes(2, "big") + bytes(padding)
    return head + len(options).to_bytes(2, "big") + options


def _last_opt(query: bytes) -> int:
    """Where the OPT of a Client Subnet begins that ends ``query``; -1 when nothing such does."""
    # 8 octets of fixed data and at most 16 of an address, behind the head of the option.
    for start in range(len(query) - 1 - RECORD_FIXED, len(query) - 48, -1):
        if start < 12:
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
    """The first OPT, if it can be read: what an upstream gets wrong there is no client's business."""
    record = packet.opt_record()
    if record is None:
        return None
    try:
        return parse_opt(record)
    except ValueError:
        return Opt(record.rclass, 0, 0, False, b"")
