"""When a DoT leaf tries once more on a fresh dial, and when a failure is final."""

from collections.abc import Callable
from contextlib import closing

import pytest
from OpenSSL import SSL

from nxdns.upstream.transport import Cause, Fault, FaultKind, SessionStats
from tests.support.authority import Authority, Issued
from tests.support.dot_leaves import dot_leaf
from tests.support.exchanging import exchanged
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")

#: 65535 bytes, QR clear: sent in several pieces, so that the second can meet a reset by the first.
LARGE_QUERY = bytearray(big_response(QUERY, 65535))
LARGE_QUERY[2] &= 0x7F


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def tls12(certificate: Issued) -> SSL.Context:
    context = certificate.openssl_context()
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    return context


def fatal_alert(session: Session) -> None:
    """What OpenSSL itself sends to a peer whose record does not decrypt."""
    session.connection.bio_write(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(SSL.Error):
        session.connection.recv(1)
    session.send_raw(session.connection.bio_read(4096))


def garbage(session: Session) -> None:
    session.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


Ending = Callable[[Session], None]


# The retry itself fails.


def test_a_redial_that_is_refused_is_the_outcome(authority: Authority, certificate: Issued) -> None:
    stats = SessionStats()
    with TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer:
        leaf = dot_leaf(authority, peer.port, stats)
        exchanged(leaf, QUERY)
    # The peer is gone, its listener and the session alike.
    with closing(leaf):
        assert exchanged(leaf, QUERY) == Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED)
        assert stats.recoveries == 0


def _hang_up(session: Session) -> None:
    session.read_query()
    session.close_notify()


def _answer_another(session: Session) -> None:
    session.send_message(make_response(make_query(id_=1)))
    session.wait_for_end()


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        pytest.param(
            _hang_up, Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM), id="hangs-up-again"
        ),
        pytest.param(
            _answer_another,
            Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID),
            id="answers-something-else",
        ),
    ],
)
def test_a_redial_that_fails_is_the_outcome_and_there_is_no_third(
    authority: Authority, certificate: Issued, second: Ending, fault: Fault
) -> None:
    def script(session: Session) -> None:
        if session.number == 1:
            session.send_message(answer(session.read_query()))
            session.read_query()
        elif session.number == 2:
            second(session)
        else:
            answer_all(answer)(session)

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        exchanged(leaf, QUERY)
        assert exchanged(leaf, QUERY) == fault
        assert (peer.accepts, stats.recoveries) == (2, 0)
        assert exchanged(leaf, QUERY) == ANSWER
        assert (peer.accepts, stats.recoveries) == (3, 0)


# The decision table: reused, byte received, cause -> retried or final.

RECOVERED = None
FRESH, REUSED = False, True
CLEAN = Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM)
TRUNCATED = Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_CONNECTION_TRUNCATED)
RESET = Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER)
ALERT = Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_ALERT)
PROTOCOL = Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_PROTOCOL)


@pytest.mark.parametrize(
    ("reused", "first_bytes", "ending", "expected"),
    [
        pytest.param(REUSED, b"", Session.close_notify, RECOVERED, id="reused-0-EndOfStream"),
        pytest.param(REUSED, b"", Session.truncate, RECOVERED, id="reused-0-Truncated"),
        pytest.param(REUSED, b"", Session.reset, RECOVERED, id="reused-0-Reset"),
        pytest.param(REUSED, b"", fatal_alert, ALERT, id="reused-0-TlsAlert"),
        pytest.param(REUSED, b"", garbage, PROTOCOL, id="reused-0-TlsProtocol"),
        pytest.param(REUSED, b"\0", Session.close_notify, CLEAN, id="reused-1-EndOfStream"),
        pytest.param(REUSED, b"\0", Session.truncate, TRUNCATED, id="reused-1-Truncated"),
        pytest.param(REUSED, b"\0", Session.reset, RESET, id="reused-1-Reset"),
        pytest.param(REUSED, b"\0", fatal_alert, ALERT, id="reused-1-TlsAlert"),
        pytest.param(REUSED, b"\0", garbage, PROTOCOL, id="reused-1-TlsProtocol"),
        pytest.param(
            REUSED, b"\0\x40half a message", Session.close_notify, CLEAN, id="reused-half-message"
        ),
        pytest.param(FRESH, b"", Session.close_notify, CLEAN, id="fresh-0-EndOfStream"),
        pytest.param(FRESH, b"", Session.truncate, TRUNCATED, id="fresh-0-Truncated"),
        pytest.param(FRESH, b"", Session.reset, RESET, id="fresh-0-Reset"),
        pytest.param(FRESH, b"", fatal_alert, ALERT, id="fresh-0-TlsAlert"),
        pytest.param(FRESH, b"", garbage, PROTOCOL, id="fresh-0-TlsProtocol"),
        pytest.param(FRESH, b"\0", Session.close_notify, CLEAN, id="fresh-1-EndOfStream"),
        pytest.param(FRESH, b"\0", Session.truncate, TRUNCATED, id="fresh-1-Truncated"),
        pytest.param(FRESH, b"\0", Session.reset, RESET, id="fresh-1-Reset"),
        pytest.param(FRESH, b"\0", fatal_alert, ALERT, id="fresh-1-TlsAlert"),
        pytest.param(FRESH, b"\0", garbage, PROTOCOL, id="fresh-1-TlsProtocol"),
        pytest.param(
            FRESH, b"\0\x40half a message", Session.truncate, TRUNCATED, id="fresh-half-message"
        ),
    ],
)
def test_only_an_unanswered_hang_up_on_a_reused_session_is_retried(
    authority: Authority,
    certificate: Issued,
    reused: bool,
    first_bytes: bytes,
    ending: Ending,
    expected: Fault | None,
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        if reused:
            session.send_message(answer(session.read_query()))
        session.read_query()
        if first_bytes:
            session.send(first_bytes)
        return ending(session)

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        if reused:
            assert exchanged(leaf, QUERY) == ANSWER
        outcome = exchanged(leaf, QUERY)
        if expected is RECOVERED:
            assert outcome == ANSWER
            assert (peer.accepts, stats.recoveries) == (2, 1)
        else:
            assert outcome == expected
            assert (peer.accepts, stats.recoveries) == (1, 0)
            # The broken session is not used again, and a plain dial is no recovery.
            assert exchanged(leaf, QUERY) == ANSWER
            assert (peer.accepts, stats.recoveries) == (2, 0)


def test_a_broken_pipe_on_a_fresh_session_is_final(
    authority: Authority, certificate: Issued
) -> None:
    # In TLS 1.2 the server has the last word of the handshake, so its FIN can overtake the query.
    stats = SessionStats()
    with (
        TlsPeer(tls12(certificate), Session.truncate) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        outcome = exchanged(leaf, bytes(LARGE_QUERY))
        # Whichever is noticed first: that nobody reads what is sent, or that nobody sends.
        broken_pipe = Fault(FaultKind.SEND_FAILED, Cause.BROKEN_PIPE)
        assert outcome in (broken_pipe, RESET, TRUNCATED)
        assert (peer.accepts, stats.recoveries) == (1, 0)
