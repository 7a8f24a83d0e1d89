"""The kernel's routing messages, as far as they tell which prefixes are on link. Pure.

rtnetlink(7) of Linux. A prefix is on link when an address of ours is in it; or, in IPv6, when a
router has announced it so, and our address came by DHCPv6 and is of 128 bits (RFC 4861 §6.3.4).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

Prefix = IPv4Network | IPv6Network

DONE, ERROR = 3, 2
NEW_ADDRESS, DELETED_ADDRESS, GET_ADDRESSES = 20, 21, 22
NEW_ROUTE, DELETED_ROUTE, GET_ROUTES = 24, 25, 26
DUMP_INTERRUPTED = 0x10  # what was told meanwhile belongs to two moments

_REQUEST, _DUMP = 0x1, 0x300
_INET, _INET6 = 2, 10
_SIZES = {_INET: 4, _INET6: 16}

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface
_ROUTE = struct.Struct("=BBBBBBBBI")  # family, lengths, TOS, table, protocol, scope, type, flags
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_ERRNO = struct.Struct("=i")

_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DESTINATION, _RTA_GATEWAY, _RTA_MULTIPATH, _RTA_VIA, _RTA_NEXTHOP = 1, 5, 9, 18, 30
_ELSEWHERE = frozenset({_RTA_GATEWAY, _RTA_MULTIPATH, _RTA_VIA, _RTA_NEXTHOP})
_MAIN_TABLE, _UNICAST = 254, 1

ANNOUNCED = (2, 9)
"""The protocols of a route on link: RTPROT_KERNEL, where it reads announcements itself, and
RTPROT_RA, where a network manager does."""


@dataclass(frozen=True, slots=True)
class Message:
    """One of them."""

    kind: int
    flags: int
    sequence: int
    body: bytes


def request_addresses(sequence: int) -> bytes:
    """Asks for every address of every interface."""
    return _request(GET_ADDRESSES, sequence, _ADDRESS.pack(0, 0, 0, 0, 0))


def request_routes(protocol: int, sequence: int) -> bytes:
    """Asks for the IPv6 routes of the main table that ``protocol``, one of ANNOUNCED, has made.

    An old kernel tells of all routes instead, so what it says is looked at all the same.
    """
    wanted = _ROUTE.pack(_INET6, 0, 0, 0, _MAIN_TABLE, protocol, 0, _UNICAST, 0)
    return _request(GET_ROUTES, sequence, wanted)


def _request(kind: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _DUMP, sequence, 0) + body


def messages(data: bytes) -> Iterator[Message]:
    """Those in one datagram; what comes behind one that is no message is left."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            return
        yield Message(kind, flags, sequence, data[offset + _HEADER.size : offset + length])
        offset += _aligned(length)


def error_of(message: Message) -> int:
    """The errno in one of kind ERROR, or in DONE when the answer broke off; else 0."""
    if len(message.body) < _ERRNO.size:
        return 0
    return -int(_ERRNO.unpack_from(message.body)[0])


def prefixes_of(message: Message) -> set[Prefix]:
    """What it says to be on link (or to be so no longer): none, one, or two."""
    if message.kind in (NEW_ADDRESS, DELETED_ADDRESS):
        return _of_address(message.body)
    if message.kind in (NEW_ROUTE, DELETED_ROUTE):
        return _of_route(message.body)
    return set()


def _of_address(body: bytes) -> set[Prefix]:
    if len(body) < _ADDRESS.size:
        return set()
    family, length, *_ = _ADDRESS.unpack_from(body)
    size = _SIZES.get(family)
    if size is None or length > size * 8:
        return set()
    attributes = _attributes(body[_ADDRESS.size :])
    # On a link between two, IFA_ADDRESS and its length are of the other end.
    other = attributes.get(_IFA_ADDRESS, b"")
    own = attributes.get(_IFA_LOCAL, other)
    found: set[Prefix] = set()
    if len(own) == size:
        found.add(ip_network((own, size * 8)))
    if len(other) == size and length:
        found.add(ip_network((other, length), strict=False))
    return found


def _of_route(body: bytes) -> set[Prefix]:
    if len(body) < _ROUTE.size:
        return set()
    family, length, _, _, table, protocol, _, kind, _ = _ROUTE.unpack_from(body)
    if family != _INET6 or not 0 < length <= 128 or (table, kind) != (_MAIN_TABLE, _UNICAST):
        return set()
    if protocol not in ANNOUNCED:
        return set()
    attributes = _attributes(body[_ROUTE.size :])
    destination = attributes.get(_RTA_DESTINATION, b"")
    if attributes.keys() & _ELSEWHERE or len(destination) != 16:
        return set()
    return {ip_network((destination, length), strict=False)}


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size or offset + length > len(data):
            break
        found[kind & 0x3FFF] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3
