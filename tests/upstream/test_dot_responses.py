"""A DoT leaf returns no response that does not answer its query, and leaves the session behind."""

from contextlib import closing

import dns.message
import pytest

from nxdns.dns.framing import frame
from nxdns.upstream.transport import Cause, Endpoint, Fault, FaultKind, SessionStats
from tests.support.authority import NAME, Authority, Issued
from tests.support.dot_leaves import dot_client
from tests.support.exchanging import exchanged
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query("www.example.com", id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def qdcount(count: int) -> bytes:
    """A response with ``count`` questions, each of them whole, and no record."""
    header, question = make_response(QUERY)[:12], QUERY[12:]
    return header[:4] + count.to_bytes(2, "big") + header[6:] + question * count


def bad(cause: Cause) -> Fault:
    return Fault(FaultKind.BAD_RESPONSE, cause)


def mismatch(cause: Cause) -> Fault:
    return Fault(FaultKind.RESPONSE_MISMATCH, cause)


def other_class() -> bytes:
    chaos = dns.message.make_query("www.example.com", "A", "CH", use_edns=False, id=4711)
    return make_response(chaos.to_wire())


NO_QR = bytes([ANSWER[0], ANSWER[1], ANSWER[2] & 0x7F]) + ANSWER[3:]

TABLE = [
    pytest.param(b"\0\0", bad(Cause.EMPTY_MESSAGE), id="zero-length"),
    pytest.param(frame(NO_QR), bad(Cause.NOT_A_RESPONSE), id="qr-clear"),
    pytest.param(frame(QUERY), bad(Cause.NOT_A_RESPONSE), id="an-echo-of-the-query"),
    pytest.param(frame(qdcount(0)), bad(Cause.QUESTION_COUNT), id="qdcount-0"),
    pytest.param(frame(qdcount(2)), bad(Cause.QUESTION_COUNT), id="qdcount-2"),
    pytest.param(frame(ANSWER[:11]), bad(Cause.TRUNCATED), id="eleven-bytes"),
    pytest.param(frame(ANSWER[:-1]), bad(Cause.TRUNCATED), id="cut-in-the-last-record"),
    pytest.param(frame(ANSWER + b"\0"), bad(Cause.MALFORMED), id="trailing-byte"),
    pytest.param(
        frame(ANSWER[:12] + b"\x80" + ANSWER[13:]), bad(Cause.MALFORMED), id="bad-label-type"
    ),
    pytest.param(
        frame(ANSWER[:12] + b"\xc0\x0c" + ANSWER[14:]), bad(Cause.MALFORMED), id="pointer-to-itself"
    ),
    pytest.param(frame(b"\xff" * 64), bad(Cause.MALFORMED), id="garbage"),
    pytest.param(
        frame(make_response(make_query(id_=4712), "192.0.2.1")),
        mismatch(Cause.WRONG_ID),
        id="wrong-id",
    ),
    pytest.param(
        frame(make_response(make_query("www.example.org", id_=4711), "192.0.2.1")),
        mismatch(Cause.WRONG_NAME),
        id="wrong-name",
    ),
    pytest.param(
        frame(make_response(make_query("www.example.com", "AAAA", id_=4711))),
        mismatch(Cause.WRONG_TYPE),
        id="wrong-type",
    ),
    pytest.param(frame(other_class()), mismatch(Cause.WRONG_CLASS), id="wrong-class"),
]


@pytest.mark.parametrize(
    ("reused"), [pytest.param(False, id="fresh"), pytest.param(True, id="reused")]
)
@pytest.mark.parametrize(("wire", "fault"), TABLE)
def test_a_response_that_answers_nothing_is_final_and_closes_the_session(
    authority: Authority, certificate: Issued, wire: bytes, fault: Fault, reused: bool
) -> None:
    ends: list[int] = []

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        if reused:
            session.send_message(answer(session.read_query()))
        session.read_query()
        session.send(wire)
        session.wait_for_end()
        return ends.append(session.number)

    stats = SessionStats()
    with TlsPeer(certificate.openssl_context(), script) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        with closing(dot_client(endpoint, NAME, authority.dot_context(), stats)) as leaf:
            if reused:
                assert exchanged(leaf, QUERY) == ANSWER
            assert exchanged(leaf, QUERY) == fault
            assert peer.accepts == 1
            assert exchanged(leaf, QUERY) == ANSWER
            assert ends == [1]
            assert (peer.accepts, stats.recoveries) == (2, 0)


def test_another_case_of_the_name_is_the_same_name(
    authority: Authority, certificate: Issued
) -> None:
    shouted = make_response(make_query("WWW.EXAMPLE.COM", id_=4711), "192.0.2.1")
    with TlsPeer(certificate.openssl_context(), answer_all(lambda _: shouted)) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        with closing(dot_client(endpoint, NAME, authority.dot_context())) as leaf:
            assert exchanged(leaf, QUERY) == shouted
            assert exchanged(leaf, QUERY) == shouted
            assert peer.accepts == 1


def test_a_query_that_is_itself_broken_is_no_crash(
    authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(lambda _: ANSWER)) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        with closing(dot_client(endpoint, NAME, authority.dot_context())) as leaf:
            assert exchanged(leaf, b"\0") == bad(Cause.MALFORMED)
            assert exchanged(leaf, b"\0\0") == bad(Cause.TRUNCATED)


def test_an_answer_left_over_from_a_server_that_says_everything_twice_is_not_the_next_one(
    authority: Authority, certificate: Issued, at_every_depth: int
) -> None:
    # Both copies in one segment: a session of depth 1 is given up, on a deeper one it is late.
    def script(session: Session) -> None:
        while True:
            reply = frame(answer(session.read_query()))
            session.send(reply + reply)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        stats = SessionStats()
        with closing(dot_client(endpoint, NAME, authority.dot_context(), stats)) as leaf:
            for name in ("a.example", "b.example", "c.example"):
                query = make_query(name)
                assert exchanged(leaf, query) == answer(query)
            expected = (3, 0) if at_every_depth == 1 else (1, 3)
            assert (peer.accepts, stats.late_answers) == expected
