"""DNS messages made by dnspython, which is the oracle of these tests."""

import dns.flags
import dns.message
import dns.rrset

OPT_LENGTH = 11  # octets of an OPT without options


def make_query(
    name: str = "www.example.com",
    rtype: str = "A",
    *,
    id_: int | None = None,
    payload: int | None = None,
    dnssec_ok: bool = False,
) -> bytes:
    """A query; with an OPT of that payload size if there is one, or DO is wanted."""
    message = dns.message.make_query(name, rtype, use_edns=False)
    if payload is not None or dnssec_ok:
        message.use_edns(0, dns.flags.DO if dnssec_ok else 0, payload or 1232)
    if id_ is not None:
        message.id = id_
    return message.to_wire()


def make_response(query: bytes, *rdatas: str, rtype: str = "A", ttl: int = 300) -> bytes:
    """A NOERROR response to ``query`` with one answer record for each RDATA text."""
    asked = dns.message.from_wire(query)
    reply = dns.message.make_response(asked, recursion_available=True, pad=0)
    if rdatas:
        reply.answer.append(dns.rrset.from_text(asked.question[0].name, ttl, "IN", rtype, *rdatas))
    return reply.to_wire(max_size=65535)


def big_response(query: bytes, size: int) -> bytes:
    """A valid response to ``query`` of exactly ``size`` bytes: TXT records, the last one padded.

    To a query with an OPT it ends in one.
    """
    base = make_response(query)
    question_end = len(base) - (OPT_LENGTH if base[11] else 0)
    records: list[bytes] = []
    left = size - len(base)
    while left:
        # name pointer, TYPE, CLASS, TTL, RDLENGTH: 12 bytes; a record of at least 13
        record = left if left <= 60_000 else 30_000
        rdata = _txt(record - 12)
        records.append(
            b"\xc0\x0c\x00\x10\x00\x01\x00\x00\x01\x2c" + len(rdata).to_bytes(2, "big") + rdata
        )
        left -= record
    head = bytearray(base[:question_end])
    head[6:8] = len(records).to_bytes(2, "big")
    return bytes(head) + b"".join(records) + base[question_end:]


def with_our_opt(message: bytes, *, dnssec_ok: bool = False, options: bytes = b"") -> bytes:
    """``message``, which ends in an OPT without options, with the one of a forwarder in its place:
    version 0, a payload size of 4096."""
    assert message[-OPT_LENGTH:][:3] == b"\0\0\x29"
    assert message[-2:] == b"\0\0"
    flags = b"\x80\0" if dnssec_ok else b"\0\0"
    opt = b"\0\0\x29\x10\0\0\0" + flags + len(options).to_bytes(2, "big") + options
    return message[:-OPT_LENGTH] + opt


def _txt(length: int) -> bytes:
    """RDATA of a TXT record of exactly ``length`` bytes: character strings of at most 255."""
    strings = bytearray()
    while length:
        piece = min(length, 256)
        strings += bytes([piece - 1]) + b"x" * (piece - 1)
        length -= piece
    return bytes(strings)
