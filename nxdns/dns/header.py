"""The twelve bytes every DNS message begins with (RFC 1035 §4.1.1), and the errors of a walk."""

import struct
from typing import Final

HEADER_LENGTH: Final = 12  # RFC 1035 §4.1.1: ID, flags and four counts of two octets each

QR: Final = 0x8000
AA: Final = 0x0400
TC: Final = 0x0200
RD: Final = 0x0100
RA: Final = 0x0080
AD: Final = 0x0020
CD: Final = 0x0010
OPCODE_SHIFT: Final = 11
OPCODE_MASK: Final = 0x7800
RCODE_MASK: Final = 0x000F

unpack_header: Final = struct.Struct("!HHHHHH").unpack_from
pack_header: Final = struct.Struct("!HHHHHH").pack


class WalkError(ValueError):
    """A message that cannot be walked: bad label, bad pointer, name too long, bytes left over…"""


class Truncated(WalkError):
    """The message ran off its end in the middle of a structure."""


class Header:
    """ID, flags and counts of one message. Flag accessors carry the RFC's names in lower case."""

    __slots__ = ("ancount", "arcount", "flags", "id", "nscount", "qdcount")

    def __init__(
        self, id_: int, flags: int, qdcount: int, ancount: int, nscount: int, arcount: int
    ) -> None:
        self.id = id_
        self.flags = flags
        self.qdcount = qdcount
        self.ancount = ancount
        self.nscount = nscount
        self.arcount = arcount

    @classmethod
    def parse(cls, wire: bytes) -> "Header":
        """The header of ``wire``; whatever follows it is not looked at.

        Raises Truncated below 12 bytes.
        """
        if len(wire) < HEADER_LENGTH:
            raise Truncated(f"a header has {HEADER_LENGTH} bytes, not {len(wire)}")
        return Header(*unpack_header(wire))

    @property
    def qr(self) -> bool:
        return bool(self.flags & QR)

    @property
    def opcode(self) -> int:
        return (self.flags & OPCODE_MASK) >> OPCODE_SHIFT

    @property
    def aa(self) -> bool:
        return bool(self.flags & AA)

    @property
    def tc(self) -> bool:
        return bool(self.flags & TC)

    @property
    def rd(self) -> bool:
        return bool(self.flags & RD)

    @property
    def ra(self) -> bool:
        return bool(self.flags & RA)

    @property
    def ad(self) -> bool:
        return bool(self.flags & AD)

    @property
    def cd(self) -> bool:
        return bool(self.flags & CD)

    @property
    def rcode(self) -> int:
        """The four bits of the header; the OPT record may extend them (RFC 6891 §6.1.3)."""
        return self.flags & RCODE_MASK


def set_id(wire: bytes, id_: int) -> bytes:
    """``wire`` with its message ID replaced by ``id_`` (0 to 65535)."""
    return id_.to_bytes(2, "big") + wire[2:]
