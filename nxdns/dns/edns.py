"""EDNS(0): the OPT record and what a client may be sent over UDP (RFC 6891)."""

from collections.abc import Container, Iterable
from typing import Final

from nxdns.dns.packet import Packet, Record

MAX_DATAGRAM: Final = 4096  # RFC 6891 §6.2.5 suggests it as the largest payload size to advertise
# RFC 1035 §4.2.1: what every client takes; RFC 6891 §6.2.3 reads less as this
MIN_PAYLOAD: Final = 512
CLIENT_SUBNET: Final = 8  # RFC 7871 §6
KEEPALIVE: Final = 11  # RFC 7828 §3.1
PADDING: Final = 12  # RFC 7830 §3
EXTENDED_ERROR: Final = 15  # RFC 8914 §2

OPT_LENGTH: Final = 11  # of one without options: the root, TYPE, CLASS, TTL, RDLENGTH
OPTION_HEAD: Final = 4  # OPTION-CODE and OPTION-LENGTH, two octets each
DO: Final = 0x8000  # RFC 3225 §3: the first of the 16 flag bits in the OPT's TTL


Option = tuple[int, bytes]
"""OPTION-CODE and OPTION-DATA."""


# Clients differ in their payload size and DO. One that sends ever new ones costs the others little.
_MOST_PLAIN: Final = 64


class OptError(ValueError):
    """An OPT record that is malformed, misplaced or not alone; RFC 6891 §6.1.1 asks for FORMERR."""


class Opt:
    """What one OPT record says. Not to be changed: many packets may have the same."""

    __slots__ = ("dnssec_ok", "extended_rcode", "options", "payload_size", "version")

    def __init__(
        self, payload_size: int, extended_rcode: int, version: int, dnssec_ok: bool, options: bytes
    ) -> None:
        self.payload_size = payload_size
        #: The upper eight bits of the RCODE.
        self.extended_rcode = extended_rcode
        self.version = version
        self.dnssec_ok = dnssec_ok
        #: OPTION-CODE, OPTION-LENGTH, OPTION-DATA, repeated; as they came.
        self.options = options


_plain: Final[dict[bytes, Opt]] = {}


def parse_opt(record: Record) -> Opt:
    """Decode one OPT record (RFC 6891 §6.1.2, §6.1.3).

    Raises OptError when its owner is not the root or its RDATA does not parse as options.
    """
    if not record.root_owner:
        raise OptError("the owner of an OPT record must be the root")
    options = record.rdata
    offset = 0
    while offset < len(options):
        if offset + OPTION_HEAD > len(options):
            raise OptError("an OPT option ends within its head")
        offset += OPTION_HEAD + (options[offset + 2] << 8 | options[offset + 3])
    if offset != len(options):
        raise OptError("an OPT option runs off its RDATA")
    ttl = record.ttl
    return Opt(record.rclass, ttl >> 24, ttl >> 16 & 0xFF, bool(ttl & DO), options)


def find_opt(packet: Packet) -> Opt | None:
    """The one OPT of ``packet``, or None when it has none.

    Raises OptError for one outside the additional section, a second one, or a malformed one.
    """
    if packet.opt_count == 0:
        return None
    if packet.opt_misplaced:
        raise OptError("an OPT record outside the additional section")
    if packet.opt_count > 1:
        raise OptError(f"{packet.opt_count} OPT records")
    wire, start, fixed = packet.wire, packet.opt_start, packet.opt_fixed
    if wire[start] or wire[fixed + 8] or wire[fixed + 9]:
        return parse_opt(Record(wire, start, fixed))
    # The root's, and without options, as nearly all are, and few different ones.
    encoded = wire[start : start + OPT_LENGTH]
    opt = _plain.get(encoded)
    if opt is None:
        opt = parse_opt(Record(wire, start, fixed))
        if len(_plain) >= _MOST_PLAIN:
            _plain.clear()
        _plain[encoded] = opt
    return opt


def udp_limit(opt: Opt | None) -> int:
    """The largest UDP reply in bytes that a client with this OPT takes from us."""
    if opt is None:
        return MIN_PAYLOAD
    return min(max(opt.payload_size, MIN_PAYLOAD), MAX_DATAGRAM)


def select_options(options: bytes, codes: Container[int]) -> bytes:
    """Of an OPT's RDATA the options with ``codes``, as they came; none if it does not parse."""
    selected = b""
    offset, size = 0, len(options)
    while offset < size:
        if offset + OPTION_HEAD > size:
            return b""
        end = offset + OPTION_HEAD + (options[offset + 2] << 8 | options[offset + 3])
        if end > size:
            return b""
        if options[offset] << 8 | options[offset + 1] in codes:
            selected += options[offset:end]
        offset = end
    return selected


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
