"""What a client may be sent over UDP, what replies of our own look like, and what breaks in."""

import random
from collections.abc import Callable

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import pytest

from nxdns.dns import packet
from nxdns.dns.edns import find_opt
from nxdns.server.handler import Answerer, Handler, Transport
from nxdns.upstream.transport import (
    Cause,
    Client,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    PeerFault,
)
from tests.support.fake_clients import (
    EchoingClient,
    RaisingClient,
    ScriptedClient,
    accounted,
    counted,
)
from tests.support.messages import big_response, make_query, with_our_opt

PEER_FAULT = PeerFault(Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM))
OUT_OF_MEMORY = LocalResource(LocalKind.OUT_OF_MEMORY)

LIMITS = [
    pytest.param(None, 512, id="no-OPT"),
    pytest.param(0, 512, id="OPT-0"),
    pytest.param(200, 512, id="OPT-200"),
    pytest.param(512, 512, id="OPT-512"),
    pytest.param(1232, 1232, id="OPT-1232"),
    pytest.param(4096, 4096, id="OPT-4096"),
    pytest.param(9000, 4096, id="OPT-9000"),
    pytest.param(65535, 4096, id="OPT-65535"),
]


def query_with_opt(payload: int | None, *, dnssec_ok: bool = False) -> bytes:
    message = dns.message.make_query("www.example.com", "TXT", use_edns=False)
    if payload is not None:
        option = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"not ours")
        message.use_edns(0, dns.flags.DO if dnssec_ok else 0, payload, options=[option])
    return message.to_wire()


@pytest.mark.parametrize(("payload", "limit"), LIMITS)
def test_an_answer_at_the_limit_of_the_client_is_sent_whole(
    payload: int | None, limit: int
) -> None:
    query = query_with_opt(payload)
    upstream = big_response(query, limit)
    handler = Handler(ScriptedClient([upstream]))
    expected = upstream if payload is None else with_our_opt(upstream)
    assert handler.handle(Transport.UDP, query) == expected
    assert counted(handler.stats) == {"queries": 1}


@pytest.mark.parametrize(("payload", "limit"), LIMITS)
def test_an_answer_one_byte_above_it_is_truncated(payload: int | None, limit: int) -> None:
    query = query_with_opt(payload)
    handler = Handler(ScriptedClient([big_response(query, limit + 1)]))
    reply = handler.handle(Transport.UDP, query)
    assert reply is not None
    parsed = dns.message.from_wire(reply)
    assert parsed.flags & dns.flags.TC
    assert parsed.rcode() == dns.rcode.NOERROR
    assert parsed.question == dns.message.from_wire(query).question
    assert not parsed.answer
    assert parsed.edns == (-1 if payload is None else 0)
    assert counted(handler.stats) == {"queries": 1, "truncated": 1}


def test_900_bytes_for_a_client_without_opt_become_the_question_alone() -> None:
    query = make_query(id_=0x1234)
    reply = Handler(ScriptedClient([big_response(query, 900)])).handle(Transport.UDP, query)
    assert reply == b"\x12\x34\x83\x80\0\x01\0\0\0\0\0\0" + query[12:]


@pytest.mark.parametrize("size", [900, 4097, 65535])
@pytest.mark.parametrize("payload", [None, 1232], ids=["no-OPT", "OPT-1232"])
def test_over_tcp_no_answer_is_truncated(size: int, payload: int | None) -> None:
    query = query_with_opt(payload)
    upstream = big_response(query, size)
    handler = Handler(ScriptedClient([upstream]))
    expected = upstream if payload is None else with_our_opt(upstream)
    assert handler.handle(Transport.TCP, query) == expected
    assert counted(handler.stats) == {"queries": 1}


def without_question(query: bytes) -> bytes:
    message = dns.message.from_wire(query)
    message.question.clear()
    return message.to_wire()


def as_status(query: bytes) -> bytes:
    message = dns.message.from_wire(query)
    message.set_opcode(dns.opcode.STATUS)
    return message.to_wire()


def with_two_opts(query: bytes) -> bytes:
    """Two more than it has, so that it has too many."""
    opt = b"\0\0\x29\x10\0\0\0\0\0\0\0"
    return query[:11] + bytes([query[11] + 2]) + query[12:] + opt + opt


def with_a_byte_left_over(query: bytes) -> bytes:
    return query + b"\0"


def unchanged(query: bytes) -> bytes:
    return query


class BigClient:
    """Answers with 5000 bytes."""

    def exchange(self, query: bytes) -> packet.Packet:
        return packet.parse(big_response(query, 5000))


def failing_upstream() -> Client:
    return RaisingClient(PEER_FAULT)


def out_of_memory() -> Client:
    return RaisingClient(OUT_OF_MEMORY)


Spoil = Callable[[bytes], bytes]
MakeClient = Callable[[], Client]

#: How a query is spoilt, who answers it, the RCODE, and whether question and OPT are echoed.
OF_OUR_OWN = [
    pytest.param(with_a_byte_left_over, EchoingClient, dns.rcode.FORMERR, "", id="walk"),
    pytest.param(as_status, EchoingClient, dns.rcode.NOTIMP, "opt", id="opcode"),
    pytest.param(without_question, EchoingClient, dns.rcode.FORMERR, "opt", id="QDCOUNT"),
    pytest.param(with_two_opts, EchoingClient, dns.rcode.FORMERR, "question", id="bad-OPT"),
    pytest.param(unchanged, failing_upstream, dns.rcode.SERVFAIL, "question opt", id="peer-fault"),
    pytest.param(unchanged, out_of_memory, dns.rcode.SERVFAIL, "question opt", id="out-of-memory"),
    pytest.param(unchanged, BigClient, dns.rcode.NOERROR, "question opt", id="truncated"),
]


@pytest.mark.parametrize("recursion", [True, False], ids=["RD", "no-RD"])
@pytest.mark.parametrize("edns", ["none", "opt", "opt-DO"])
@pytest.mark.parametrize(("spoil", "client", "rcode", "echoed"), OF_OUR_OWN)
def test_every_reply_of_our_own_parses_and_says_what_it_must(
    spoil: Spoil,
    client: MakeClient,
    rcode: dns.rcode.Rcode,
    echoed: str,
    edns: str,
    recursion: bool,
) -> None:
    asked = query_with_opt(None if edns == "none" else 1400, dnssec_ok=edns == "opt-DO")
    query = spoil(asked[:2] + bytes([asked[2] if recursion else 0]) + asked[3:])
    reply = Handler(client()).handle(Transport.UDP, query)
    assert reply is not None

    ours = packet.parse(reply)
    assert ours.id == int.from_bytes(query[:2], "big")
    assert (ours.qr, ours.ra, ours.rd, ours.aa) == (True, True, recursion, False)
    assert ours.opcode == query[2] >> 3 & 15
    assert ours.tc is (rcode == dns.rcode.NOERROR)
    assert ours.qdcount == int("question" in echoed)
    opt = find_opt(ours)
    if edns == "none" or "opt" not in echoed:
        assert opt is None
    else:
        assert opt is not None
        # Extended error 0, without a text, where there is an error to explain (RFC 8914).
        explained = b"\0\x0f\0\x02\0\0" if rcode == dns.rcode.SERVFAIL else b""
        assert (opt.version, opt.payload_size, opt.options) == (0, 4096, explained)
        assert opt.dnssec_ok is (edns == "opt-DO")

    theirs = dns.message.from_wire(reply)
    assert theirs.id == ours.id
    assert theirs.flags == ours.flags
    assert theirs.rcode() == rcode
    assert theirs.edns == (-1 if opt is None else 0)
    if "question" in echoed:
        assert theirs.question == dns.message.from_wire(asked).question


def test_a_question_that_points_into_its_own_header_is_echoed_without_the_pointer() -> None:
    # From offset 5 the header reads as a label of one zero, and the root: QDCOUNT 1, ANCOUNT 0.
    query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + b"\x03www\xc0\x05" + b"\0\x01\0\x01"
    reply = Handler(RaisingClient(PEER_FAULT)).handle(Transport.UDP, query)
    assert reply is not None
    name = dns.message.from_wire(reply).question[0].name
    assert name.labels == (b"www", b"\0", b"")


def test_the_longest_question_is_echoed_within_the_least_limit() -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    query = make_query(longest, payload=512, dnssec_ok=True)
    reply = Handler(ScriptedClient([big_response(query, 513)])).handle(Transport.UDP, query)
    assert reply is not None
    assert len(reply) <= 512
    parsed = dns.message.from_wire(reply)
    assert parsed.question == dns.message.from_wire(query).question
    assert parsed.ednsflags & dns.flags.DO


CLIENTS = [
    pytest.param(EchoingClient, id="answering"),
    pytest.param(failing_upstream, id="failing"),
]


def assert_answered_or_counted(handler: Answerer, query: bytes, transport: Transport) -> None:
    before = accounted(handler)
    reply = handler.handle(transport, query)
    assert accounted(handler) == before + 1, query.hex()
    assert reply is None or reply[:2] == query[:2], query.hex()


@pytest.mark.parametrize("client", CLIENTS)
def test_every_truncation_of_a_query_is_answered_or_counted(client: MakeClient) -> None:
    handler = Handler(client())
    query = query_with_opt(1232, dnssec_ok=True)
    for transport in Transport:
        for end in range(len(query) + 1):
            assert_answered_or_counted(handler, query[:end], transport)


@pytest.mark.parametrize("client", CLIENTS)
def test_flipped_bytes_are_answered_or_counted(client: MakeClient) -> None:
    dice = random.Random(20260401)
    handler = Handler(client())
    query = query_with_opt(1232, dnssec_ok=True)
    for _ in range(5000):
        spoilt = bytearray(query)
        for _ in range(dice.randint(1, 4)):
            spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
        assert_answered_or_counted(handler, bytes(spoilt), dice.choice(list(Transport)))


@pytest.mark.parametrize("client", CLIENTS)
def test_noise_is_answered_or_counted(client: MakeClient) -> None:
    dice = random.Random(20260402)
    handler = Handler(client())
    for _ in range(5000):
        noise = dice.randbytes(dice.randrange(80))
        assert_answered_or_counted(handler, noise, dice.choice(list(Transport)))
