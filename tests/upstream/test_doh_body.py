"""Where a DoH response's body ends, and what it may hold."""

from collections.abc import Callable

import gevent
import pytest
from gevent.event import Event

from nxdns.dns.framing import MAX_MESSAGE
from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.http_peer import (
    CHUNKED,
    DNS_MESSAGE,
    answering,
    chunked,
    head,
    leaves_at,
    promptly,
    read_request,
    reply,
)
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration

QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY, "192.0.2.1")
LARGEST = big_response(QUERY, MAX_MESSAGE)
TOO_LARGE = LARGEST + b"\0"

INCOMPLETE = Fault(FaultKind.RECEIVE_FAILED, Cause.HTTP_PROTOCOL)


def single_bytes(data: bytes) -> list[bytes]:
    return [data[n : n + 1] for n in range(len(data))]


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("data", "body"),
    [
        pytest.param(reply(RESPONSE), RESPONSE, id="declared-length"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + chunked(RESPONSE), RESPONSE, id="one-chunk"),
        pytest.param(
            head(DNS_MESSAGE, CHUNKED) + chunked(*single_bytes(RESPONSE)),
            RESPONSE,
            id="many-chunks",
        ),
        pytest.param(
            head(DNS_MESSAGE, "transfer-encoding: Chunked")
            + b"%X;name=value\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(RESPONSE), RESPONSE),
            RESPONSE,
            id="chunk-extension-and-trailer",
        ),
        pytest.param(
            head(DNS_MESSAGE, CHUNKED, "Content-Length: 5") + chunked(RESPONSE),
            RESPONSE,
            id="chunks-before-length",
        ),
        pytest.param(reply(LARGEST), LARGEST, id="largest-of-declared-length"),
        pytest.param(
            head(DNS_MESSAGE, CHUNKED) + chunked(*pieces(LARGEST, 1000)),
            LARGEST,
            id="largest-in-chunks",
        ),
    ],
)
def test_a_body_with_an_end_is_the_response_and_its_connection_is_kept(
    authority: Authority, certificate: Issued, data: bytes, body: bytes
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answering(lambda _query: data)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == body
        assert promptly(leaves.first, QUERY) == body
        assert leaves.first.last.reused
        assert peer.accepts == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(reply(RESPONSE), id="declared-length"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + chunked(*pieces(RESPONSE, 10)), id="chunked"),
    ],
)
def test_a_response_may_come_byte_by_byte(
    authority: Authority, certificate: Issued, data: bytes
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        for byte in single_bytes(data):
            session.send(byte)
            gevent.sleep(0)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE


@pytest.mark.parametrize("end", [Session.close_notify, Session.truncate], ids=["notify", "fin"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("body", [RESPONSE, LARGEST], ids=["small", "largest"])
def test_a_body_without_a_length_ends_with_its_connection(
    authority: Authority,
    certificate: Issued,
    version: str,
    body: bytes,
    end: Callable[[Session], None],
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(head(DNS_MESSAGE).replace(b"HTTP/1.1", version.encode()) + body)
        end(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        for accepts in (1, 2):
            assert promptly(leaves.first, QUERY) == body
            assert not leaves.first.last.reused
            assert peer.accepts == accepts
        assert leaves.stats.recoveries == 0


@pytest.mark.parametrize(
    "length",
    [
        pytest.param("65536", id="by-one"),
        pytest.param("1000000000", id="gigabyte"),
        pytest.param("9" * 5000, id="more-digits-than-int-reads"),
    ],
)
def test_a_declared_length_above_65535_is_refused_without_reading_on(
    authority: Authority, certificate: Issued, length: str
) -> None:
    refused = Event()

    def script(session: Session) -> None:
        read_request(session)
        session.send(head(DNS_MESSAGE, f"Content-Length: {length}"))
        session.wait_for_end()  # nothing of the body is ever sent
        refused.set()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        fault = promptly(leaves.first, QUERY)
        assert fault == Fault(FaultKind.RESPONSE_TOO_LARGE, Cause.DECLARED_LENGTH)
        assert refused.wait(5)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            head(DNS_MESSAGE, CHUNKED) + chunked(*pieces(TOO_LARGE, 5000))[: -len(chunked())],
            id="in-chunks",
        ),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"20000\r\n" + TOO_LARGE, id="in-one-chunk"),
        pytest.param(head(DNS_MESSAGE) + TOO_LARGE, id="until-the-close"),
    ],
)
def test_a_body_that_grows_above_65535_bytes_is_refused_without_reading_on(
    authority: Authority, certificate: Issued, data: bytes
) -> None:
    refused = Event()

    def script(session: Session) -> None:
        read_request(session)
        session.send(data)
        session.wait_for_end()  # the body never ends
        refused.set()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        fault = promptly(leaves.first, QUERY)
        assert fault == Fault(FaultKind.RESPONSE_TOO_LARGE, Cause.BODY_LENGTH)
        assert refused.wait(5)


@pytest.mark.parametrize("end", [Session.close_notify, Session.truncate, Session.reset])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(head(DNS_MESSAGE, "Content-Length: 100"), id="nothing-of-the-body"),
        pytest.param(
            head(DNS_MESSAGE, f"Content-Length: {len(RESPONSE) + 1}") + RESPONSE,
            id="one-byte-short",
        ),
        pytest.param(
            head(DNS_MESSAGE, CHUNKED) + b"%x\r\n" % (len(RESPONSE) + 1) + RESPONSE, id="in-a-chunk"
        ),
        pytest.param(
            head(DNS_MESSAGE, CHUNKED) + b"%x\r\n%s\r\n" % (len(RESPONSE), RESPONSE),
            id="before-the-last-chunk",
        ),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"1", id="in-a-chunk-size"),
    ],
)
def test_a_body_cut_short_is_never_a_response(
    authority: Authority, certificate: Issued, data: bytes, end: Callable[[Session], None]
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(data)
        end(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == INCOMPLETE
        assert peer.accepts == 1


def test_a_message_cut_short_by_the_end_of_its_connection_is_found_by_reading_it(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(head(DNS_MESSAGE) + RESPONSE[:-1])

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(reply(b""), id="declared"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + chunked(), id="chunked"),
        pytest.param(head(DNS_MESSAGE, "Connection: close"), id="until-the-close"),
    ],
)
def test_an_empty_body_is_an_empty_message(
    authority: Authority, certificate: Issued, data: bytes
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(data)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == Fault(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        pytest.param(RESPONSE[:7], Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="truncated"),
        pytest.param(QUERY, Fault(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE), id="echoed"),
        pytest.param(
            QUERY[:2] + b"\x81\x80\0\2" + QUERY[6:] + QUERY[12:],
            Fault(FaultKind.BAD_RESPONSE, Cause.QUESTION_COUNT),
            id="two-questions",
        ),
        pytest.param(
            make_response(make_query(id_=0x1235)),
            Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID),
            id="other-id",
        ),
        pytest.param(
            make_response(make_query("www.example.net", id_=0x1234)),
            Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME),
            id="other-name",
        ),
        pytest.param(
            make_response(make_query(rtype="AAAA", id_=0x1234)),
            Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_TYPE),
            id="other-type",
        ),
    ],
)
def test_a_body_that_does_not_answer_the_query_is_a_fault_and_its_connection_is_not_kept(
    authority: Authority, certificate: Issued, body: bytes, fault: Fault
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answering(lambda _query: reply(body))) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        for accepts in (1, 2):
            assert promptly(leaves.first, QUERY) == fault
            assert peer.accepts == accepts


@pytest.mark.parametrize("rcode", [2, 5], ids=["servfail", "refused"])
def test_an_upstreams_refusal_is_its_answer(
    authority: Authority, certificate: Issued, rcode: int
) -> None:
    answer = make_response(QUERY)
    refusal = answer[:3] + bytes([answer[3] | rcode]) + answer[4:]
    with (
        TlsPeer(certificate.openssl_context(), answering(lambda _query: reply(refusal))) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == refusal
