"""What no upstream is asked for, what looks odd and passes, and answers that are cut short."""

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import pytest

from nxdns.dns.hop import to_upstream
from nxdns.dns.packet import parse
from nxdns.server.handler import Handler, Transport
from tests.dns.wires import raw_record
from tests.support.fake_clients import EchoingClient, ScriptedClient, answer, counted
from tests.support.messages import make_query, make_response, with_our_opt

BOTH_TRANSPORTS = pytest.mark.parametrize("transport", list(Transport))
OPT_OR_NOT = pytest.mark.parametrize("payload", [None, 1232], ids=["no-OPT", "OPT"])


def refused_with(
    query: bytes, transport: Transport, counter: str, rcode: dns.rcode.Rcode
) -> dns.message.Message:
    """Our own reply, which has the question, an OPT if the query had one, and nothing else."""
    client = EchoingClient()
    handler = Handler(client)
    reply = handler.handle(transport, query)
    assert reply is not None
    assert counted(handler.stats) == {counter: 1}
    assert client.asked == []
    message, asked = dns.message.from_wire(reply), dns.message.from_wire(query)
    assert message.rcode() == rcode
    assert message.question == asked.question
    assert message.id == asked.id
    assert not message.answer
    assert not message.authority
    assert not message.additional
    assert not message.flags & dns.flags.TC
    assert message.edns == (-1 if asked.opt is None else 0)
    assert message.ednsflags & dns.flags.DO == asked.ednsflags & dns.flags.DO
    return message


def edns_query(version: int, *, rtype: str = "A", dnssec_ok: bool = False) -> bytes:
    message = dns.message.make_query("www.example.com", rtype, use_edns=0, payload=1232)
    message.want_dnssec(dnssec_ok)
    message.ednsflags = message.ednsflags & ~0xFF0000 | version << 16
    return message.to_wire()


@BOTH_TRANSPORTS
@pytest.mark.parametrize("version", [1, 2, 255])
@pytest.mark.parametrize("dnssec_ok", [False, True], ids=["no-DO", "DO"])
def test_an_edns_version_above_0_is_badvers_and_told_ours(
    version: int, dnssec_ok: bool, transport: Transport
) -> None:
    query = edns_query(version, dnssec_ok=dnssec_ok)
    reply = refused_with(query, transport, "badvers", dns.rcode.BADVERS)
    assert (reply.edns, reply.payload, reply.options) == (0, 4096, ())


@BOTH_TRANSPORTS
@OPT_OR_NOT
@pytest.mark.parametrize("rtype", ["AXFR", "IXFR"])
def test_a_zone_transfer_is_refused(rtype: str, payload: int | None, transport: Transport) -> None:
    query = make_query("example.com", rtype, payload=payload)
    refused_with(query, transport, "refused", dns.rcode.REFUSED)


def test_an_incremental_transfer_with_its_serial_is_refused() -> None:
    query = make_query("example.com", "IXFR")
    soa = raw_record(6, owner=b"\xc0\x0c", rdata=b"\0\0" + bytes(20))
    with_serial = query[:8] + b"\0\1" + query[10:] + soa
    handler = Handler(EchoingClient())
    reply = handler.handle(Transport.TCP, with_serial)
    assert reply == query[:2] + b"\x81\x85\0\1\0\0\0\0\0\0" + query[12:]
    assert counted(handler.stats) == {"refused": 1}


@BOTH_TRANSPORTS
@OPT_OR_NOT
def test_an_opt_is_no_type_to_ask_for(payload: int | None, transport: Transport) -> None:
    query = make_query(rtype="OPT", payload=payload)
    refused_with(query, transport, "formerr", dns.rcode.FORMERR)


@pytest.mark.parametrize(
    ("query", "counter"),
    [
        pytest.param(edns_query(1, rtype="AXFR"), "badvers", id="version-then-transfer"),
        pytest.param(edns_query(1, rtype="OPT"), "badvers", id="version-then-OPT"),
        pytest.param(
            bytes([*edns_query(1)[:2], 0x20, *edns_query(1)[3:]]),
            "notimp",
            id="opcode-then-version",
        ),
    ],
)
def test_where_two_of_them_apply_the_first_one_wins(query: bytes, counter: str) -> None:
    handler = Handler(EchoingClient())
    assert handler.handle(Transport.UDP, query) is not None
    assert counted(handler.stats) == {counter: 1}


@BOTH_TRANSPORTS
@pytest.mark.parametrize(
    ("rtype", "rclass"),
    [
        pytest.param(255, 1, id="ANY"),
        pytest.param(0, 1, id="type-0"),
        pytest.param(65, 1, id="HTTPS"),
        pytest.param(65280, 1, id="private-type"),
        pytest.param(65535, 1, id="last-type"),
        pytest.param(250, 255, id="TSIG"),
        pytest.param(253, 1, id="MAILB"),
        pytest.param(16, 3, id="class-CH"),
        pytest.param(1, 0, id="class-0"),
        pytest.param(1, 254, id="class-NONE"),
        pytest.param(1, 255, id="class-ANY"),
        pytest.param(65280, 65535, id="last-class"),
    ],
)
def test_any_other_type_and_any_class_pass(rtype: int, rclass: int, transport: Transport) -> None:
    query = make_query(payload=4096)[:-15]
    query += rtype.to_bytes(2, "big") + rclass.to_bytes(2, "big") + make_query(payload=4096)[-11:]
    client = EchoingClient()
    handler = Handler(client)
    assert handler.handle(transport, query) == answer(query)
    assert client.asked == [query]
    assert counted(handler.stats) == {"queries": 1}


# Truncated by an upstream.


@OPT_OR_NOT
@pytest.mark.parametrize(
    ("transport", "counters"),
    [
        pytest.param(Transport.UDP, {"queries": 1}, id="UDP"),
        pytest.param(Transport.TCP, {"queries": 1, "upstream_truncated": 1}, id="TCP"),
    ],
)
def test_what_an_upstream_has_truncated_passes_as_it_is_and_is_counted_over_tcp(
    transport: Transport, counters: dict[str, int], payload: int | None
) -> None:
    query = make_query(payload=payload)
    upstream = make_response(query, "192.0.2.1")
    upstream = upstream[:2] + bytes([upstream[2] | 0x02]) + upstream[3:]
    handler = Handler(ScriptedClient([upstream]))
    expected = upstream if payload is None else with_our_opt(upstream)
    assert handler.handle(transport, query) == expected
    assert counted(handler.stats) == counters


def test_a_truncated_reply_has_question_and_opt_and_nothing_else() -> None:
    query = make_query(payload=512, dnssec_ok=True)
    upstream = make_response(query, *(f"192.0.2.{number}" for number in range(1, 60)))
    # And what else there may be: an authority record, an additional one, an error's explanation.
    soa = raw_record(6, owner=b"\xc0\x0c", rdata=b"\0\0" + bytes(20))
    additional = raw_record(1, owner=b"\xc0\x0c", rdata=bytes(4))
    opt = raw_record(41, rclass=1232, ttl=0x8000, rdata=b"\0\x0f\0\2\0\1")
    counts = upstream[4:8] + b"\0\1\0\2"
    reply = Handler(
        ScriptedClient([upstream[:4] + counts + upstream[12:-11] + soa + additional + opt])
    ).handle(Transport.UDP, query)
    head = query[:2] + b"\x83\x80" + b"\0\1\0\0\0\0\0\1"
    assert reply == with_our_opt(head + query[12:], dnssec_ok=True)


# Records that cannot be read, behind an OPT.

UNREADABLE = raw_record(15, owner=b"\xc0\x0c", rdata=b"\0\1\xff\xff")


@BOTH_TRANSPORTS
def test_a_query_whose_records_cannot_be_moved_is_a_format_error(transport: Transport) -> None:
    query = make_query(payload=1232)
    query = query[:10] + b"\0\2" + query[12:] + UNREADABLE
    client = EchoingClient()
    handler = Handler(client)
    reply = handler.handle(transport, query)
    assert reply is not None
    message = dns.message.from_wire(reply)
    assert (message.rcode(), message.edns) == (dns.rcode.FORMERR, 0)
    assert len(message.question) == 1
    assert counted(handler.stats) == {"formerr": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
@OPT_OR_NOT
def test_an_answer_whose_records_cannot_be_moved_is_a_server_failure_and_no_bug(
    transport: Transport, payload: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    query = make_query(payload=payload)
    upstream = make_response(to_upstream(parse(query), None) if payload is None else query)
    upstream = upstream[:10] + b"\0\2" + upstream[12:] + UNREADABLE
    handler = Handler(ScriptedClient([upstream]))
    reply = handler.handle(transport, query)
    assert reply is not None
    message = dns.message.from_wire(reply)
    assert message.rcode() == dns.rcode.SERVFAIL
    assert len(message.question) == 1
    assert counted(handler.stats) == {"servfail": 1}
    assert handler.stats.servfail_phases[None] == 1
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []
