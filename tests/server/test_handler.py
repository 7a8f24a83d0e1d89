"""The handler's table, row by row, and the order of its rows."""

import logging

import dns.message
import dns.rcode
import gevent
import pytest

from nxdns.dns.packet import Packet, parse
from nxdns.server.handler import Handler, Transport
from nxdns.upstream.transport import Cause, Fault, FaultKind, LocalKind, LocalResource, PeerFault
from tests.support.fake_clients import (
    EchoingClient,
    GatedClient,
    RaisingClient,
    ScriptedClient,
    answer,
    counted,
)
from tests.support.messages import make_query, make_response, with_our_opt
from tests.support.waiting import eventually

QUESTION = b"\x03www\x07example\x03com\0\0\x01\0\x01"
A_RECORD = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01"
OPT_RECORD = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"
NAMED_OPT = b"\xc0\x0c" + OPT_RECORD[1:]
BOTH_TRANSPORTS = pytest.mark.parametrize("transport", list(Transport))


def message(
    *questions: bytes,
    flags: int = 0x0100,
    answers: tuple[bytes, ...] = (),
    authority: tuple[bytes, ...] = (),
    additional: tuple[bytes, ...] = (),
) -> bytes:
    """A message with the ID 0x1234 whose counts are those of the sections given."""
    counts = (len(questions), len(answers), len(authority), len(additional))
    head = b"\x12\x34" + b"".join(n.to_bytes(2, "big") for n in (flags, *counts))
    return head + b"".join((*questions, *answers, *authority, *additional))


def opt(options: bytes) -> bytes:
    return OPT_RECORD[:-2] + len(options).to_bytes(2, "big") + options


def opcode(number: int) -> int:
    return 0x0100 | number << 11


LABEL_63 = b"\x3f" + b"a" * 63
CUT_OFF = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"\x12\x34\x01\0\0", id="five-bytes"),
    pytest.param(message()[:11], id="eleven-bytes"),
    pytest.param(message(b""), id="a-question-promised"),
    pytest.param(message(QUESTION[:6]), id="within-a-label"),
    pytest.param(message(b"\xc0"), id="within-a-pointer"),
    pytest.param(message(QUESTION[:-1]), id="within-the-class"),
    pytest.param(message(QUESTION, b""), id="a-second-question-promised"),
    pytest.param(message(QUESTION, additional=(OPT_RECORD[:7],)), id="within-a-record"),
    pytest.param(message(QUESTION, answers=(A_RECORD[:-1],)), id="within-rdata"),
    pytest.param(message(QUESTION, additional=(b"",)), id="a-record-promised"),
]
WRONG_WALKS = [
    pytest.param(message(b"\x40" + QUESTION), id="label-type-01"),
    pytest.param(message(b"\x80" + QUESTION), id="label-type-10"),
    pytest.param(message(b"\xc0\x0c\0\x01\0\x01"), id="pointer-to-itself"),
    pytest.param(message(b"\xc0\x20\0\x01\0\x01" + bytes(40)), id="pointer-forward"),
    pytest.param(message(b"\x01a\xc0\x0c\0\x01\0\x01"), id="pointer-loop"),
    pytest.param(
        message(LABEL_63 * 3 + b"\x3f" + b"a" * 63 + b"\0\0\x01\0\x01"), id="name-too-long"
    ),
    pytest.param(message(QUESTION + b"\0"), id="a-byte-left-over"),
]
BAD_OPTS = [
    pytest.param(message(QUESTION, answers=(OPT_RECORD,)), id="in-answer"),
    pytest.param(message(QUESTION, authority=(OPT_RECORD,)), id="in-authority"),
    pytest.param(message(QUESTION, additional=(OPT_RECORD, OPT_RECORD)), id="two"),
    pytest.param(message(QUESTION, additional=(NAMED_OPT,)), id="not-at-the-root"),
    pytest.param(message(QUESTION, additional=(opt(b"\0\x0a\0"),)), id="option-head-cut-off"),
    pytest.param(message(QUESTION, additional=(opt(b"\0\x0a\0\x09aaaa"),)), id="option-runs-off"),
]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("query", CUT_OFF)
def test_a_query_that_is_cut_off_is_dropped(query: bytes, transport: Transport) -> None:
    client = EchoingClient()
    handler = Handler(client)
    assert handler.handle(transport, query) is None
    assert counted(handler.stats) == {"dropped_malformed": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
def test_a_response_is_dropped(transport: Transport) -> None:
    client = EchoingClient()
    handler = Handler(client)
    assert handler.handle(transport, make_response(make_query(), "192.0.2.1")) is None
    assert counted(handler.stats) == {"dropped_malformed": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
@pytest.mark.parametrize("query", WRONG_WALKS)
def test_a_query_that_walks_wrongly_is_a_format_error_without_question(
    query: bytes, transport: Transport
) -> None:
    client = EchoingClient()
    handler = Handler(client)
    assert handler.handle(transport, query) == b"\x12\x34\x81\x81" + bytes(8)
    assert counted(handler.stats) == {"formerr": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(1, id="IQUERY"),
        pytest.param(2, id="STATUS"),
        pytest.param(3, id="unassigned"),
        pytest.param(4, id="NOTIFY"),
        pytest.param(5, id="UPDATE"),
        pytest.param(15, id="last"),
    ],
)
def test_an_opcode_other_than_query_is_not_implemented(number: int, transport: Transport) -> None:
    client = EchoingClient()
    handler = Handler(client)
    reply = handler.handle(transport, message(QUESTION, flags=opcode(number)))
    assert reply == b"\x12\x34" + (0x8184 | number << 11).to_bytes(2, "big") + bytes(8)
    assert counted(handler.stats) == {"notimp": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
@pytest.mark.parametrize(
    "query",
    [
        pytest.param(message(), id="none"),
        pytest.param(message(QUESTION, QUESTION), id="two"),
        pytest.param(message(*[b"\0\0\x01\0\x01"] * 300), id="three-hundred"),
    ],
)
def test_any_number_of_questions_but_one_is_a_format_error_without_question(
    query: bytes, transport: Transport
) -> None:
    client = EchoingClient()
    handler = Handler(client)
    assert handler.handle(transport, query) == b"\x12\x34\x81\x81" + bytes(8)
    assert counted(handler.stats) == {"formerr": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
@pytest.mark.parametrize("query", BAD_OPTS)
def test_a_bad_opt_record_is_a_format_error_with_the_question_and_no_opt(
    query: bytes, transport: Transport
) -> None:
    client = EchoingClient()
    handler = Handler(client)
    expected = b"\x12\x34\x81\x81\0\x01\0\0\0\0\0\0" + QUESTION
    assert handler.handle(transport, query) == expected
    assert counted(handler.stats) == {"formerr": 1}
    assert client.asked == []


@BOTH_TRANSPORTS
def test_query_and_answer_pass_as_they_are_but_for_an_opt_of_ours(transport: Transport) -> None:
    query = make_query("wWw.eXample.com", payload=1232, dnssec_ok=True)
    upstream = make_response(query, "192.0.2.1", "192.0.2.2")
    client = ScriptedClient([upstream])
    handler = Handler(client)
    assert handler.handle(transport, query) == with_our_opt(upstream, dnssec_ok=True)
    assert client.asked == [with_our_opt(query, dnssec_ok=True)]
    assert counted(handler.stats) == {"queries": 1}


@BOTH_TRANSPORTS
def test_a_client_without_opt_is_asked_for_with_one_and_answered_without(
    transport: Transport,
) -> None:
    query = make_query("wWw.eXample.com", id_=7)
    asked = make_query("wWw.eXample.com", id_=7, payload=4096)
    client = ScriptedClient([make_response(asked, "192.0.2.1")])
    handler = Handler(client)
    assert handler.handle(transport, query) == make_response(query, "192.0.2.1")
    assert client.asked == [asked]
    assert counted(handler.stats) == {"queries": 1}


def test_an_error_code_from_upstream_is_an_answer() -> None:
    query = make_query()
    refused = dns.message.make_response(dns.message.from_wire(query))
    refused.set_rcode(dns.rcode.REFUSED)
    handler = Handler(ScriptedClient([refused.to_wire()]))
    assert handler.handle(Transport.UDP, query) == refused.to_wire()
    assert counted(handler.stats) == {"queries": 1}


FORMERR, NOTIMP = {"formerr": 1}, {"notimp": 1}
DROPPED = {"dropped_malformed": 1}


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        pytest.param(message(QUESTION, b"", flags=0x8100), DROPPED, id="QR-then-cut-off"),
        pytest.param(message(b"\x40" + QUESTION, flags=0x8100), DROPPED, id="QR-then-walk"),
        pytest.param(message(QUESTION, flags=0x9100), DROPPED, id="QR-then-opcode"),
        pytest.param(message(flags=0x8100), DROPPED, id="QR-then-QDCOUNT"),
        pytest.param(message(b"", flags=opcode(4)), DROPPED, id="cut-off-then-opcode"),
        pytest.param(message(QUESTION, b""), DROPPED, id="cut-off-then-QDCOUNT"),
        pytest.param(
            message(QUESTION, additional=(OPT_RECORD, b"")), DROPPED, id="cut-off-then-OPT"
        ),
        pytest.param(message(b"\x40" + QUESTION, flags=opcode(4)), FORMERR, id="walk-then-opcode"),
        pytest.param(
            message(QUESTION, additional=(NAMED_OPT, b"\x40" + bytes(20))),
            FORMERR,
            id="walk-then-OPT",
        ),
        pytest.param(message(flags=opcode(5)), NOTIMP, id="opcode-then-QDCOUNT"),
        pytest.param(
            message(QUESTION, flags=opcode(5), answers=(OPT_RECORD,)),
            NOTIMP,
            id="opcode-then-OPT",
        ),
        pytest.param(
            message(QUESTION, QUESTION, additional=(OPT_RECORD, OPT_RECORD)),
            FORMERR,
            id="QDCOUNT-then-OPT",
        ),
    ],
)
def test_where_two_rows_apply_the_first_one_wins(query: bytes, outcome: dict[str, int]) -> None:
    client = EchoingClient()
    handler = Handler(client)
    reply = handler.handle(Transport.TCP, query)
    assert counted(handler.stats) == outcome
    assert client.asked == []
    if outcome is DROPPED:
        assert reply is None
    else:
        assert reply is not None
        assert reply[4:] == bytes(8)  # neither question nor OPT


FAILURES = [
    pytest.param(PeerFault(Fault(FaultKind.SEND_FAILED, Cause.BROKEN_PIPE)), id="peer-fault"),
    *[pytest.param(LocalResource(kind), id=kind.value) for kind in LocalKind],
    pytest.param(MemoryError(), id="MemoryError"),
    pytest.param(OSError(24, "Too many open files"), id="OSError"),
]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("error", FAILURES)
def test_a_failure_is_a_server_failure_with_the_question(
    error: Exception, transport: Transport
) -> None:
    handler = Handler(RaisingClient(error))
    reply = handler.handle(transport, message(QUESTION))
    assert reply == b"\x12\x34\x81\x82\0\x01\0\0\0\0\0\0" + QUESTION
    assert counted(handler.stats) == {"servfail": 1}


class _BuggyClient:
    """A bug is logged once for each line it shows at; this line is of the test below alone."""

    def exchange(self, query: bytes) -> Packet:
        return parse(query + len(query))  # type: ignore[operator]


def test_a_bug_is_a_server_failure_and_one_logged_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = Handler(_BuggyClient())
    with caplog.at_level(logging.WARNING):
        replies = [handler.handle(Transport.UDP, message(QUESTION)) for _ in range(3)]
    assert replies == [b"\x12\x34\x81\x82\0\x01\0\0\0\0\0\0" + QUESTION] * 3
    assert counted(handler.stats) == {"servfail": 3}
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is TypeError


def test_a_failing_upstream_is_not_logged_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    handler = Handler(RaisingClient(PeerFault(Fault(FaultKind.TIMEOUT, Cause.TIMEOUT))))
    with caplog.at_level(logging.INFO):
        handler.handle(Transport.UDP, message(QUESTION))
    assert caplog.records == []


def test_a_kill_ends_the_greenlet_and_counts_as_cancelled() -> None:
    client = GatedClient()
    handler = Handler(client)
    greenlet = gevent.spawn(handler.handle, Transport.UDP, message(QUESTION))
    eventually(lambda: client.waiting == 1)
    greenlet.kill()
    # What gevent makes of a greenlet that let the kill through; a reply would stand here instead.
    assert isinstance(greenlet.value, gevent.GreenletExit)
    assert counted(handler.stats) == {"cancelled": 1}


def test_a_timeout_that_somebody_else_has_set_passes_through() -> None:
    handler = Handler(GatedClient())
    with gevent.Timeout(0.01) as timer, pytest.raises(gevent.Timeout) as raised:
        handler.handle(Transport.UDP, message(QUESTION))
    assert raised.value is timer
    assert counted(handler.stats) == {"cancelled": 1}


def test_queries_are_handled_side_by_side_and_count_once_each() -> None:
    client = GatedClient()
    handler = Handler(client)
    queries = [make_query(f"host{number}.example.com") for number in range(5)]
    greenlets = [gevent.spawn(handler.handle, Transport.UDP, query) for query in queries]
    eventually(lambda: client.waiting == 5)
    client.gate.set()
    gevent.joinall(greenlets)
    assert [greenlet.value for greenlet in greenlets] == [answer(query) for query in queries]
    assert counted(handler.stats) == {"queries": 5}
