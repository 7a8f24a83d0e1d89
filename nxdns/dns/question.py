"""The first question of a message (RFC 1035 §4.1.2)."""

from nxdns.dns.header import HEADER_LENGTH
from nxdns.dns.name import equal_names, expand_name


class Question:
    """Name, type and class of the first question of a message that was walked."""

    __slots__ = ("end", "qclass", "qtype", "wire")

    def __init__(self, wire: bytes, end: int) -> None:
        """``end`` is the offset behind QCLASS; the question begins behind the header."""
        self.wire = wire
        self.end = end
        self.qtype = int.from_bytes(wire[end - 4 : end - 2], "big")
        self.qclass = int.from_bytes(wire[end - 2 : end], "big")

    @property
    def name(self) -> bytes:
        """The name as it stands on the wire."""
        return self.wire[HEADER_LENGTH : self.end - 4]

    def same_name(self, other: "Question") -> bool:
        """Whether both ask for one name, without regard to ASCII case (RFC 4343)."""
        return equal_names(self.wire, HEADER_LENGTH, other.wire, HEADER_LENGTH)

    def echo(self) -> bytes:
        """The question as it can stand in another message: its name without pointers.

        All that a first question can point at is its own header, and a reply's is another.
        """
        return expand_name(self.wire, HEADER_LENGTH) + self.wire[self.end - 4 : self.end]
