"""The OPT record hop by hop (RFC 6891 §6.1): what of a client's goes upstream, what comes back.

Upstream goes an OPT of ours: our payload size, the client's DO, and of its options Client Subnet
alone, if it sent one. Back to a client that sent an OPT goes one of ours again, with the extended
RCODE of the upstream, and of its options Extended Errors (RFC 8914), and Client Subnet if the
client sent one. Cookie, keepalive and padding belong to the one connection that they were sent on,
and never cross. Whatever is outside the OPT passes byte for byte.

Ours is the last record. What stood behind the other one moves up, see :mod:`nxdns.dns.records`.
"""

from typing import Final

from dns.rcode import Rcode

from nxdns.dns.edns import (
    CLIENT_SUBNET,
    EXTENDED_ERROR,
    KEEPALIVE,
    MIN_PAYLOAD,
    OPT_LENGTH,
    OPTION_HEAD,
    PADDING,
    Opt,
    encode_opt,
    select_options,
)
from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.header import HEADER_LENGTH, RCODE_MASK, WalkError
from nxdns.dns.name import POINTER, NameLengths
from nxdns.dns.packet import RECORD_FIXED, Packet, parse
from nxdns.dns.records import MoveError, Mover, records_of

PADDING_BLOCK: Final = 128  # RFC 8467 §4.1, for queries

_COUNTS: Final = 4  # offset of QDCOUNT in the header
_ARCOUNT: Final = 10
_ONE_QUESTION_ONE_ADDITIONAL: Final = bytes([0, 1, 0, 0, 0, 0, 0, 1])
# RFC 7828 §3.2.1: of a client, without a time
_ASK_FOR_KEEPALIVE: Final = bytes([0, KEEPALIVE, 0, 0])
_KEEPALIVE_LENGTH: Final = 2  # octets of a server's: units of 100 ms (RFC 7828 §3.1)
_SERVFAIL: Final = int(Rcode.SERVFAIL)

_OPT_WITHOUT_DO: Final = encode_opt()
_OPT_WITH_DO: Final = encode_opt(dnssec_ok=True)
_OPTS: Final = frozenset({_OPT_WITHOUT_DO, _OPT_WITH_DO})
_OPT_BEGINS: Final = _OPT_WITHOUT_DO[:5]  # owner, TYPE and payload size: of any OPT of ours
_RDLENGTH: Final = OPT_LENGTH - 2  # offset in an OPT

_SUBNET: Final = frozenset({CLIENT_SUBNET})
_ERRORS: Final = frozenset({EXTENDED_ERROR})
_ERRORS_AND_SUBNET: Final = _ERRORS | _SUBNET


def to_upstream(asked: Packet, opt: Opt | None) -> bytes:
    """The query to send for ``asked``, whose own OPT is ``opt``: it ends in an OPT of ours.

    One so long that no OPT fits goes as it is: better asked without than not at all. Raises
    MoveError when something behind the client's OPT cannot stand elsewhere, or a name is read from
    the header.
    """
    wire = asked.wire
    if asked.known_names:
        _refuse_names_in_header(asked)
    if opt is None:
        if len(wire) > MAX_MESSAGE - OPT_LENGTH:
            return wire
        return _with_arcount(wire, asked.arcount + 1) + _OPT_WITHOUT_DO
    ours = _OPT_WITH_DO if opt.dnssec_ok else _OPT_WITHOUT_DO
    if opt.options:
        subnet = select_options(opt.options, _SUBNET)
        if subnet:
            ours = encode_opt(dnssec_ok=opt.dnssec_ok, options=subnet)
    return _with_opt(asked, ours)


def complete(query: bytes, *, keepalive: bool) -> tuple[bytes, int]:
    """``query`` with what concerns this hop alone in the OPT that it ends in; where its question
    ends.

    That is padding to a multiple of 128 octets and, on a TLS session, the wish to know how long it
    may stay idle. A query that ends in no OPT, or has no room, is returned as it is. The end of the
    question is told of one that has nothing else but this OPT, and whose name has no pointer, as
    nearly all are; else it is 0.
    """
    size = len(query)
    if size > MAX_MESSAGE - OPT_LENGTH:
        return query, 0
    start = size - OPT_LENGTH
    if (
        size <= MIN_PAYLOAD
        and query[_COUNTS:HEADER_LENGTH] == _ONE_QUESTION_ONE_ADDITIONAL
        and query[start:] in _OPTS
        # A Client Subnet may end in what looks like one, behind the OPT that it is in.
        and query.find(_OPT_BEGINS, HEADER_LENGTH) == start
    ):
        tails = _TAILS_WITH_KEEPALIVE if keepalive else _TAILS
        # A name ends in the root's zero, or in a pointer; QTYPE and QCLASS follow.
        no_pointer = query[start - 5] == 0 and query[start - 6] < POINTER
        completed = query[: start + _RDLENGTH] + tails[start % PADDING_BLOCK]
        return completed, start if no_pointer else 0
    start = _last_opt(query)
    if start < 0:
        return query, 0
    return query[: start + _RDLENGTH] + _tail(start, query[start + OPT_LENGTH :], keepalive), 0


def _tail(start: int, options: bytes, keepalive: bool) -> bytes:
    """RDLENGTH and RDATA of an OPT that begins at ``start``, has ``options`` and what is added."""
    if keepalive:
        options += _ASK_FOR_KEEPALIVE
    padding = -(start + OPT_LENGTH + len(options) + OPTION_HEAD) % PADDING_BLOCK
    if start + OPT_LENGTH + len(options) + OPTION_HEAD + padding <= MAX_MESSAGE:
        options += bytes((0, PADDING, 0, padding)) + bytes(padding)
    return len(options).to_bytes(2, "big") + options


# Of queries without options, as nearly all are, by where in a block their OPT begins.
_TAILS: Final = tuple(_tail(start, b"", False) for start in range(PADDING_BLOCK))
_TAILS_WITH_KEEPALIVE: Final = tuple(_tail(start, b"", True) for start in range(PADDING_BLOCK))


def _last_opt(query: bytes) -> int:
    """Where the OPT begins that ``query`` ends in; -1 when it ends in none."""
    try:
        packet = parse(query)
    except WalkError:
        return -1
    one = packet.opt_count == 1 and not query[packet.opt_start]
    return packet.opt_start if one and _end_of_opt(packet) == len(query) else -1


def to_client(reply: Packet, opt: Opt | None) -> bytes:
    """The reply to send to a client whose own OPT was ``opt``, for an upstream's ``reply``.

    One so long that no OPT fits stays without, and is of use all the same. Raises MoveError when
    something behind the upstream's OPT cannot stand elsewhere, or a name is read from the header.
    """
    wire = reply.wire
    if reply.known_names:
        _refuse_names_in_header(reply)
    if opt is None:
        return _without_opt(reply) if reply.opt_count else wire
    empty = _OPT_WITH_DO if opt.dnssec_ok else _OPT_WITHOUT_DO
    if not reply.opt_count:
        if len(wire) > MAX_MESSAGE - OPT_LENGTH:
            return wire
        return _with_arcount(wire, reply.arcount + 1) + empty
    fixed = reply.opt_fixed
    rcode = wire[fixed + 4]
    if wire[fixed + 8] or wire[fixed + 9]:
        codes = _ERRORS
        if opt.options and select_options(opt.options, _SUBNET):
            codes = _ERRORS_AND_SUBNET
        options = select_options(wire[fixed + RECORD_FIXED : _end_of_opt(reply)], codes)
    else:
        options = b""
    if rcode or options:
        empty = encode_opt(extended_rcode=rcode, dnssec_ok=opt.dnssec_ok, options=options)
    return _with_opt(reply, empty)


def idle_time(reply: Packet) -> float | None:
    """Seconds that a server says a session may stay idle in ``reply``; None when it does not.

    RFC 7828 §3.1.
    """
    record = reply.opt_record()
    if record is None:
        return None
    stated = select_options(record.rdata, frozenset({KEEPALIVE}))
    if len(stated) != OPTION_HEAD + _KEEPALIVE_LENGTH:
        return None
    return (stated[OPTION_HEAD] << 8 | stated[OPTION_HEAD + 1]) / 10


def _refuse_names_in_header(packet: Packet) -> None:
    """A name may be read there (RFC 1035 §4.1.4 does not say no), but would be another one behind
    another ID and another ARCOUNT."""
    if min(packet.known_names) < HEADER_LENGTH:
        raise MoveError("a name that is read from the header")


def _refuse_names_into(known: NameLengths, wire: bytes, start: int) -> None:
    """A name that is pointed at may run on into the OPT at ``start``, which does not stay. Its last
    label that has been seen may be the root just before."""
    if not known:
        return
    last = max(known)
    if last >= start or (last == start - 1 and wire[last]):
        raise MoveError("a name that runs on into the OPT")


def _without_opt(reply: Packet) -> bytes:
    """For a client that sent none."""
    bare = _with_opt(reply, b"")
    if not reply.wire[reply.opt_fixed + 4]:
        return bare
    # The RCODE needs more bits than this client can be sent: of BADVERS, a NOERROR would be left.
    return bare[:3] + bytes([bare[3] & ~RCODE_MASK & 0xFF | _SERVFAIL]) + bare[4:]


def _with_opt(packet: Packet, ours: bytes) -> bytes:
    """``packet`` without its OPT records, of which there is one, and with ``ours`` at its end."""
    wire = packet.wire
    start = packet.opt_start
    if packet.opt_misplaced or _end_of_opt(packet) != len(wire):
        return _rebuilt(packet, ours)
    _refuse_names_into(packet.known_names, wire, start)
    if ours:
        return wire[:start] + ours
    return _with_arcount(wire[:start], packet.arcount - 1)


def _rebuilt(packet: Packet, ours: bytes) -> bytes:
    """The same for an OPT that is not alone, not the last, or not among the additional records."""
    wire = packet.wire
    first = packet.opt_start
    mover = Mover(wire, first)
    parts = [wire[HEADER_LENGTH:first]]
    counts = [packet.ancount, packet.nscount, packet.arcount]
    room = MAX_MESSAGE - first - len(ours)
    known: NameLengths = {}
    for section, record in records_of(packet, known):
        if record.start == first:
            _refuse_names_into(known, wire, first)
        if record.is_opt:
            counts[section] -= 1
        elif record.start > first:
            moved = mover.moved(record)
            room -= len(moved)
            if room < 0:
                raise MoveError("no room for what compression has saved")
            parts.append(moved)
    counts[2] += 1 if ours else 0
    head = wire[:6] + b"".join(count.to_bytes(2, "big") for count in counts)
    return b"".join((head, *parts, ours))


def _end_of_opt(packet: Packet) -> int:
    fixed = packet.opt_fixed
    return fixed + RECORD_FIXED + (packet.wire[fixed + 8] << 8 | packet.wire[fixed + 9])


def _with_arcount(wire: bytes, arcount: int) -> bytes:
    return wire[:_ARCOUNT] + arcount.to_bytes(2, "big") + wire[_ARCOUNT + 2 :]
