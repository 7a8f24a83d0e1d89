"""What crosses the forwarder is what the upstream itself says, but for ID and OPT.

5 000 queries of all kinds are asked twice at one upstream: directly over DoT, and through the whole
forwarder. From the direct answer follows, byte for byte, what a client must be given.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rrset
import gevent
import pytest
from dns.rdataclass import RdataClass
from dns.rdatatype import RdataType
from gevent import socket

from nxdns.dns import packet
from nxdns.dns.framing import Unframer, frame
from nxdns.platform.address import ListenAddress
from nxdns.platform.tls_client import open_session
from tests.dns.wires import options_wire
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.tls_peer import TlsPeer, answer_all

pytestmark = pytest.mark.integration

QUERIES = 5000
BY_UDP = 700
WINDOW = 16  # queries that are under way on one connection
UNHURRIED = "[budgets]\nattempt_ms = 20000\ntotal_ms = 25000\n"
CONNECTIONS = 3
PATIENCE_SECONDS = 25.0

SUBNET, COOKIE, KEEPALIVE, PADDING, EXTENDED_ERROR = 8, 10, 11, 12, 15
TYPES = [1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 46, 48, 64, 65, 255, 257, 65534]
CLASSES = [1, 1, 1, 1, 1, 3, 4, 254, 255, 65280]
UNASKABLE = {41, 251, 252}  # the forwarder itself answers OPT, IXFR and AXFR
RCODES = [dns.rcode.Rcode(each) for each in (0, 0, 0, 0, 0, 3, 3, 2, 5, 1, 4, 9, 10, 11, 16, 23)]
COMPRESSIBLE = [
    dns.rrset.from_text("Zone.Example.", 60, "IN", rtype, text)
    for rtype, text in [
        ("NS", "a.zone.example."),
        ("NS", "b.ZONE.example."),
        ("MX", "10 a.zone.example."),
        ("SOA", "a.zone.example. h.zone.example. 1 2 3 4 5"),
        ("AAAA", "2001:db8::1"),
    ]
]


# Queries.


def name_wire(rand: random.Random) -> bytes:
    """A name of any octets, among them those that elsewhere are a pointer, a dot or the root."""
    kind = rand.randrange(4)
    if kind == 0:
        text = "".join(rand.choices("abcXYZ-_09", k=rand.randint(1, 20)))
        labels = [*(each.encode() for each in (text, text[::-1])), b"ExAmPle", b"TEST"]
    elif kind == 1:
        labels = [rand.randbytes(rand.randint(1, 63)) for _ in range(rand.randint(0, 3))]
    elif kind == 2:
        odd = [b"\0", b"\xc0\x0c", b".", b"\xff" * 63, b"\\", b" ", b"\0\0\x29", b"\xc3\xa4", b"A"]
        labels = rand.choices(odd, k=rand.randint(0, 3))
    else:
        labels = [b"a"] * rand.choice([0, 1, 127])
    return b"".join(bytes([len(each)]) + each for each in labels) + b"\0"


def client_opt(rand: random.Random) -> bytes:
    options: list[dns.edns.Option] = []
    if rand.random() < 0.4:
        address, bits = rand.choice([("192.0.2.0", 24), ("2001:db8::", 56), ("0.0.0.0", 0)])
        options.append(dns.edns.ECSOption(address, bits))
    for code, data in ((3, b""), (COOKIE, rand.randbytes(8)), (KEEPALIVE, b""), (PADDING, b"\0\0")):
        if rand.random() < 0.3:
            options.append(dns.edns.GenericOption(dns.edns.OptionType.make(code), data))
    rand.shuffle(options)
    payload = rand.choice([0, 511, 512, 513, 1232, 4096, 65535, rand.randrange(65536)])
    flags = rand.choice([0, 0x8000]) | rand.choice([0, 0, rand.randrange(0x8000)])
    rdata = options_wire(options)
    head = payload.to_bytes(2, "big") + b"\0\0" + flags.to_bytes(2, "big")
    return b"\0\0\x29" + head + len(rdata).to_bytes(2, "big") + rdata


def query_of(rand: random.Random, number: int) -> bytes:
    rtype = rand.choice([*TYPES, rand.randrange(65536)])
    rtype = 1 if rtype in UNASKABLE else rtype
    rclass = rand.choice([*CLASSES, rand.randrange(65536)])
    flags = rand.choice([dns.flags.RD, 0, rand.randrange(0x800) & ~dns.flags.TC & 0x7F0])
    opt = client_opt(rand) if rand.random() < 0.7 else b""
    head = b"".join(each.to_bytes(2, "big") for each in (number, flags, 1, 0, 0, int(bool(opt))))
    question = name_wire(rand) + rtype.to_bytes(2, "big") + rclass.to_bytes(2, "big")
    return head + question + opt


# The upstream: what it says outside the OPT is a function of the question, the flags, DO and Client
# Subnet, which are what an upstream's answer may depend on.


def respond(query: bytes) -> bytes:
    asked = dns.message.from_wire(query)
    [question] = asked.question
    dnssec_ok = asked.ednsflags & dns.flags.DO
    subnets = [each for each in asked.options if isinstance(each, dns.edns.ECSOption)]
    told = f"{query[2:4]!r}{question.name!r}{question}{dnssec_ok}{[str(each) for each in subnets]}"
    rand = random.Random(sha256(told.encode()).digest())

    reply = dns.message.make_response(asked, pad=0)
    reply.flags |= rand.getrandbits(16) & (
        dns.flags.AA | dns.flags.RA | dns.flags.AD | dns.flags.CD | 0x40
    )
    if rand.random() < 0.1:
        reply.flags |= dns.flags.TC
    if rand.random() < 0.1:  # a server may write the question as it keeps it
        question.name = question.name.canonicalize()
        reply.question = [question]
    for section in (reply.answer, reply.authority, reply.additional):
        if rand.random() < 0.6:
            section.extend(records(rand, question, dnssec_ok))
    if rand.random() < 0.04:
        for size in [3000] * rand.randint(0, 19) + [rand.randint(1, 3000)]:
            data = rand.randbytes(size)
            reply.answer.append(generic(rand, question.name, RdataClass.IN, RdataType.TXT, data))
    rcode = rand.choice(RCODES)
    if asked.edns < 0:
        reply.use_edns(False)
        reply.set_rcode(rcode if rcode < 16 else dns.rcode.SERVFAIL)
        return reply.to_wire(max_size=65535)
    options: list[dns.edns.Option] = [*subnets]
    if rand.random() < 0.3:
        options.append(
            dns.edns.EDEOption(dns.edns.EDECode(rand.randrange(25)), rand.choice([None, "why é"]))
        )
    for own, data in ((COOKIE, bytes(16)), (KEEPALIVE, b"\0\x64"), (PADDING, bytes(40))):
        if rand.random() < 0.4:
            options.insert(0, dns.edns.GenericOption(dns.edns.OptionType.make(own), data))
    reply.use_edns(0, dnssec_ok, 1232, options=options)
    reply.set_rcode(rcode)
    return reply.to_wire(max_size=65535)


def records(
    rand: random.Random, question: dns.rrset.RRset, dnssec_ok: int
) -> Iterator[dns.rrset.RRset]:
    """Some whose names can be compressed, and some of the type asked for, of any octets.

    Each is an RRset of its own: dnspython shuffles the records of one.
    """
    for _ in range(rand.randrange(3)):
        data = rand.randbytes(rand.randrange(100))
        yield generic(rand, question.name, question.rdclass, question.rdtype, data)
    yield from rand.choices(COMPRESSIBLE, k=rand.randrange(4))
    if dnssec_ok:
        yield generic(rand, question.name, RdataClass.IN, RdataType.RRSIG, rand.randbytes(100))


def generic(
    rand: random.Random, name: dns.name.Name, rclass: RdataClass, rtype: RdataType, data: bytes
) -> dns.rrset.RRset:
    rdata = dns.rdata.GenericRdata(rclass, rtype, data)
    return dns.rrset.from_rdata(name, rand.randrange(1 << 31), rdata)


# What a client must be given.


def split(message: bytes) -> tuple[bytes, bytes]:
    """``message`` without its OPT, which is its last record; and that."""
    walked = packet.parse(message)
    if not walked.opt_count:
        return message, b""
    start = walked.opt_start
    arcount = int.from_bytes(message[10:12], "big") - 1
    assert len(message) == start + 11 + int.from_bytes(message[start + 9 : start + 11], "big")
    return message[:10] + arcount.to_bytes(2, "big") + message[12:start], message[start:]


def with_opt(message: bytes, opt: bytes) -> bytes:
    arcount = int.from_bytes(message[10:12], "big") + bool(opt)
    return message[:10] + arcount.to_bytes(2, "big") + message[12:] + opt


def options_of(opt: bytes) -> Iterator[tuple[int, bytes]]:
    rest = opt[11:]
    while rest:
        end = 4 + int.from_bytes(rest[2:4], "big")
        yield int.from_bytes(rest[:2], "big"), rest[:end]
        rest = rest[end:]


def due(query: bytes, direct: bytes) -> bytes:
    """The reply over TCP to ``query``, to which the upstream itself says ``direct``."""
    bare, theirs = split(direct)
    _, ours = split(query)
    if not ours:
        return bare
    crossing = {EXTENDED_ERROR, *(code for code, _ in options_of(ours) if code == SUBNET)}
    options = b"".join(option for code, option in options_of(theirs) if code in crossing)
    flags = bytes([ours[7] & 0x80, 0])  # DO, and nothing else
    head = b"\0\0\x29\x10\0" + theirs[5:6] + b"\0" + flags
    return with_opt(bare, head + len(options).to_bytes(2, "big") + options)


def due_by_udp(query: bytes, direct: bytes) -> bytes:
    reply = due(query, direct)
    bare, ours = split(query)
    limit = min(max(int.from_bytes(ours[3:5], "big"), 512), 4096)
    if len(reply) <= limit:
        return reply
    flags = dns.flags.QR | dns.flags.RA | dns.flags.TC | (query[2] & 1) << 8
    echo = b"\0\0\x29\x10\0\0\0" + bytes([ours[7] & 0x80, 0, 0, 0]) if ours else b""
    return with_opt(bare[:2] + flags.to_bytes(2, "big") + bare[4:], echo)


# Clients.


def pipelined(
    queries: Sequence[bytes], send: Callable[[bytes], Any], recv: Callable[[], bytes]
) -> dict[int, bytes]:
    """The replies by the ID of their queries, WINDOW of which are sent at a time."""
    replies: dict[int, bytes] = {}
    unframer = Unframer()
    for start in range(0, len(queries), WINDOW):
        window = queries[start : start + WINDOW]
        send(b"".join(map(frame, window)))
        for _ in window:
            while (reply := unframer.next_message()) is None:
                data = recv()
                assert data, "the connection ended before its answers"
                unframer.feed(data)
            replies[int.from_bytes(reply[:2], "big")] = reply
    return replies


def directly(port: int, authority: Authority, queries: Sequence[bytes]) -> dict[int, bytes]:
    sock = socket.create_connection(("127.0.0.1", port))
    stream = open_session(sock, authority.dot_context(), NAME)
    try:
        return pipelined(queries, stream.send, stream.recv)
    finally:
        stream.close()


def by_tcp(address: ListenAddress, queries: Sequence[bytes]) -> dict[int, bytes]:
    sock: Any
    with socket.create_connection((address.host, address.port)) as sock:
        return pipelined(queries, sock.sendall, lambda: sock.recv(65535))


def test_a_client_is_given_what_the_upstream_says_but_for_id_and_opt(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    rand = random.Random(5)
    queries = [query_of(rand, number) for number in range(QUERIES)]
    datagrams, streamed = queries[:BY_UDP], queries[BY_UDP:]
    with (
        gevent.Timeout(PATIENCE_SECONDS),
        TlsPeer(certificate.openssl_context(), answer_all(respond)) as peer,
    ):
        direct = directly(peer.port, authority, queries)
        table = f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"\n'
        with running(tmp_path, authority.ca_file, [table], UNHURRIED) as app:
            address = address_of(app)
            clients = [
                gevent.spawn(by_tcp, address, streamed[first::CONNECTIONS])
                for first in range(CONNECTIONS)
            ]
            given = {number: ask_udp(address, query) for number, query in enumerate(datagrams)}
            for client in clients:
                given |= client.get()
            stats = app.handler.stats
    for number, query in enumerate(queries):
        rule = due_by_udp if number < BY_UDP else due
        assert given[number] == rule(query, direct[number]), (number, query)
    assert stats.queries == QUERIES
    assert stats.truncated > 20
    assert stats.upstream_truncated > 100
    assert max(map(len, given.values())) > 50_000
