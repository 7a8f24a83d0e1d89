"""Well-formed messages for the tests of the wire core, rendered by dnspython."""

import struct
from collections.abc import Sequence
from typing import Any

import dns.edns
import dns.flags
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.OPT
import dns.renderer
import dns.rrset

HEADER = struct.Struct("!HHHHHH")
RECORD = struct.Struct("!HHIH")

ANSWER, AUTHORITY, ADDITIONAL = 1, 2, 3

_TEXTS = {
    "A": "192.0.2.1",
    "AAAA": "2001:db8::1",
    "AFSDB": "1 afs.example.com.",
    "CAA": '0 issue "ca.example.net"',
    "CNAME": "www.example.com.",
    "DNAME": "example.net.",
    "DNSKEY": "257 3 8 AwEAAag=",
    "DS": "60485 5 1 2BB183AF5F22588179A53B0A98631FAD1A292118",
    "HINFO": '"PDP-11" "UNIX"',
    "HTTPS": "1 . alpn=h2,h3 ipv4hint=192.0.2.1",
    "LOC": "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m",
    "MX": "10 mail.example.com.",
    "NAPTR": '100 50 "s" "z3950+I2L+I2C" "" _z3950._tcp.example.com.',
    "NS": "ns1.example.com.",
    "NSEC": "a.example.com. A MX RRSIG NSEC TYPE1234",
    "NSEC3": "1 1 12 aabbccdd 2t7b4g4vsa5smi47k61mv5bv1a22bojr MX DNSKEY",
    "PTR": "host.example.com.",
    "RRSIG": "A 8 3 3600 20300101000000 20200101000000 12345 example.com. AwEAAag=",
    "SOA": "ns1.example.com. admin.example.com. 1 7200 3600 1209600 300",
    "SRV": "0 5 853 dot.example.com.",
    "SSHFP": "2 1 123456789abcdef67890123456789abcdef67890",
    "SVCB": "0 svc.example.com.",
    "TLSA": "3 1 1 0d6fce3398cd0ef2e8c1d9a2e3c8c6d3e0f1b8fd0a0f1c2d3e4f5a6b7c8d9e0f",
    "TXT": '"v=spf1 -all" "and more"',
    "TYPE65280": r"\# 3 c00c29",
}

RDATAS: dict[str, dns.rdata.Rdata] = {
    rtype: dns.rdata.from_text("IN", rtype, text) for rtype, text in _TEXTS.items()
}
"""RDATA of many types; dnspython compresses the names in some of them."""

# dnspython leaves these two without types.
_Renderer: Any = dns.renderer.Renderer
_Opt: Any = dns.rdtypes.ANY.OPT.OPT


def rrset(owner: dns.name.Name, rtype: str, ttl: int = 300) -> dns.rrset.RRset:
    """One record with the RDATA of its type in RDATAS."""
    return dns.rrset.from_rdata(owner, ttl, RDATAS[rtype])


def opt_rrset(
    payload: int, ttl: int = 0, options: Sequence[dns.edns.Option] = ()
) -> dns.rrset.RRset:
    """An OPT record with any 16 bits as its class and any 32 as its TTL."""
    rdclass = dns.rdataclass.from_text(f"CLASS{payload}")
    return dns.rrset.from_rdata(dns.name.root, ttl, _Opt(rdclass, dns.rdatatype.OPT, options))


def options_wire(options: Sequence[dns.edns.Option]) -> bytes:
    """OPTION-CODE, OPTION-LENGTH and OPTION-DATA of each (RFC 6891 §6.1.2)."""
    wire = b""
    for option in options:
        data = option.to_wire()
        assert data is not None
        wire += struct.pack("!HH", option.otype, len(data)) + data
    return wire


def name_wire(name: dns.name.Name) -> bytes:
    """An absolute name without pointers, case kept."""
    wire = name.to_wire()
    assert wire is not None
    return wire


def render(
    name: dns.name.Name,
    rdtype: int,
    records: Sequence[tuple[int, dns.rrset.RRset]] = (),
    *,
    rdclass: int = dns.rdataclass.IN,
    id_: int = 7,
    flags: int = dns.flags.QR,
) -> bytes:
    """A one-question message with ``records``, each in its section, in the order they are given.

    Message.to_wire() would move an OPT to the end; a Renderer leaves it where it stands.
    """
    renderer = _Renderer(id_, flags)
    renderer.add_question(name, rdtype, rdclass)
    for section, record in records:
        renderer.add_rrset(section, record)
    renderer.write_header()
    wire: bytes = renderer.get_wire()
    return wire


def raw_record(
    rtype: int, *, owner: bytes = b"\0", rclass: int = 1, ttl: int = 0, rdata: bytes = b""
) -> bytes:
    """A record byte by byte."""
    return owner + RECORD.pack(rtype, rclass, ttl, len(rdata)) + rdata


def raw_message(
    *, question: bytes = b"", sections: Sequence[Sequence[bytes]] = ((), (), ()), id_: int = 7
) -> bytes:
    """A message byte by byte: at most one question, and records in the three sections."""
    counts = [len(section) for section in sections]
    records = b"".join(record for section in sections for record in section)
    return HEADER.pack(id_, dns.flags.QR, int(bool(question)), *counts) + question + records


def _corpus() -> dict[str, bytes]:
    name = dns.name.from_text("www.example.com.")
    other = dns.name.from_text("Mail.Example.NET.")
    options = [
        dns.edns.ECSOption("192.0.2.0", 24),
        dns.edns.CookieOption(b"clientck", b"servercookie"),
    ]
    opt = (ADDITIONAL, opt_rrset(1232, dns.flags.DO, options))
    every_bit = (ADDITIONAL, opt_rrset(0xFFFF, 0xFF01_8000))
    glue = [(ADDITIONAL, rrset(name, "A")), (ADDITIONAL, rrset(other, "AAAA"))]
    answers = [(ANSWER, rrset(owner, "CNAME")) for owner in (name, other)]
    referral = [(AUTHORITY, rrset(other, "SOA")), *glue]
    a = dns.rdatatype.A
    wires = {
        "query": render(name, a, flags=dns.flags.RD),
        "query-with-opt": render(name, a, [opt], flags=dns.flags.RD),
        "opt-first": render(dns.name.root, dns.rdatatype.NS, [opt, *glue]),
        "opt-amid": render(name, a, [*answers, glue[0], opt, glue[1]]),
        "opt-last": render(name, a, [*answers, *referral, opt]),
        "opt-with-every-bit": render(other, dns.rdatatype.TXT, [every_bit]),
    }
    for rtype in RDATAS:
        records = [(ANSWER, rrset(name, rtype)), (AUTHORITY, rrset(other, rtype)), opt]
        wires[rtype] = render(name, dns.rdatatype.from_text(rtype), records)
    return wires


CORPUS = _corpus()
"""Messages to mutate and to cut: each type, compressed names, an OPT everywhere and none."""
