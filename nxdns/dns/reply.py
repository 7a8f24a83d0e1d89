"""Replies of our own making to a query (RFC 1035 §4.1.1, RFC 6891 §6.1.1)."""

import struct
from typing import Final

from nxdns.dns.edns import Opt, encode_opt
from nxdns.dns.header import OPCODE_MASK, QR, RA, RCODE_MASK, RD, TC, Header, pack_header

QUESTION_OWNER: Final = b"\xc0\x0c"  # a pointer to the first question's name, behind the header

_pack_record: Final = struct.Struct("!HHIH").pack


class ResponseBuilder:
    """A reply to one query: its ID, opcode and RD are kept, QR and RA set."""

    def __init__(self, query: Header, question: bytes = b"") -> None:
        """``question`` is echoed as it is given, and must be free of pointers; b"" for none."""
        self._id = query.id
        self._flags = QR | RA | query.flags & (OPCODE_MASK | RD)
        self._question = question
        self._answers: list[bytes] = []
        self._opt = b""

    def set_rcode(self, rcode: int) -> "ResponseBuilder":
        """``rcode`` must fit the header's four bits."""
        if not 0 <= rcode <= RCODE_MASK:
            raise ValueError(f"RCODE {rcode} does not fit a header")
        self._flags = self._flags & ~RCODE_MASK | rcode
        return self

    def set_truncated(self) -> "ResponseBuilder":
        """Set TC: the client shall ask again over TCP (RFC 2181 §9)."""
        self._flags |= TC
        return self

    def add_answer(
        self, rtype: int, rclass: int, ttl: int, rdata: bytes, owner: bytes = QUESTION_OWNER
    ) -> "ResponseBuilder":
        """Append a record to the answer section; RDATA is taken as it is given."""
        self._answers.append(owner + _pack_record(rtype, rclass, ttl, len(rdata)) + rdata)
        return self

    def add_opt_echo(self, opt: Opt) -> "ResponseBuilder":
        """End the reply with an OPT of ours: version 0, no options, the client's DO (RFC 3225)."""
        self._opt = encode_opt(dnssec_ok=opt.dnssec_ok)
        return self

    def add_opt(
        self, opt: Opt, *, extended_rcode: int = 0, options: bytes = b""
    ) -> "ResponseBuilder":
        """As add_opt_echo, with the upper eight bits of an RCODE, and options."""
        self._opt = encode_opt(
            extended_rcode=extended_rcode, dnssec_ok=opt.dnssec_ok, options=options
        )
        return self

    def build(self) -> bytes:
        """The wire form."""
        counts = (int(bool(self._question)), len(self._answers), 0, int(bool(self._opt)))
        head = pack_header(self._id, self._flags, *counts)
        return b"".join((head, self._question, *self._answers, self._opt))
