"""A DoT leaf keeps its session, and replaces one that the server has left while it was idle."""

import logging
import re
from collections.abc import Callable
from contextlib import closing

import pytest
from gevent.event import Event
from OpenSSL import SSL

from nxdns.dns.framing import frame
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


Ending = Callable[[Session], None]


# Reuse.


def test_exchanges_share_one_session(authority: Authority, certificate: Issued) -> None:
    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        for name in ("a.example", "b.example", "c.example"):
            query = make_query(name)
            assert exchanged(leaf, query) == answer(query)
        assert (peer.accepts, peer.handshakes, stats.recoveries) == (1, 1, 0)


def test_a_servfail_is_an_answer_and_keeps_the_session(
    authority: Authority, certificate: Issued
) -> None:
    def servfail(query: bytes) -> bytes:
        response = bytearray(make_response(query))
        response[3] = response[3] & 0xF0 | 2
        return bytes(response)

    with (
        TlsPeer(certificate.openssl_context(), answer_all(servfail)) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == servfail(QUERY)
        assert exchanged(leaf, QUERY) == servfail(QUERY)
        assert peer.accepts == 1


@pytest.mark.parametrize(
    ("highest", "version"),
    [
        pytest.param(SSL.TLS1_2_VERSION, "TLSv1.2", id="tls-1.2"),
        pytest.param(SSL.TLS1_3_VERSION, "TLSv1.3", id="tls-1.3"),
    ],
)
def test_the_leaf_tells_how_each_exchange_was_done(
    authority: Authority, certificate: Issued, highest: int, version: str
) -> None:
    context = certificate.openssl_context()
    context.set_max_proto_version(highest)
    with (
        TlsPeer(context, answer_all(answer)) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        exchanged(leaf, QUERY)
        fresh = leaf.last
        assert (fresh.reused, fresh.tls_version) == (False, version)
        assert min(fresh.dial_ns, fresh.tls_ns, fresh.send_ns, fresh.first_byte_ns) > 0
        assert fresh.rest_ns >= 0

        exchanged(leaf, QUERY)
        again = leaf.last
        assert (again.reused, again.tls_version) == (True, version)
        assert (again.dial_ns, again.tls_ns) == (0, 0)  # phases that did not happen
        assert min(again.send_ns, again.first_byte_ns) > 0
        assert again.rest_ns >= 0


def test_after_a_redial_the_exchange_counts_as_fresh(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        session.send_message(answer(session.read_query()))
        if session.number == 1:
            session.read_query()
            session.close_notify()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        exchanged(leaf, QUERY)
        exchanged(leaf, QUERY)
        assert not leaf.last.reused
        assert min(leaf.last.dial_ns, leaf.last.tls_ns) > 0


# A close between two exchanges.


@pytest.mark.parametrize(
    ("ending", "seen"),
    [
        pytest.param(
            Session.close_notify, Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM), id="clean"
        ),
        pytest.param(
            Session.truncate,
            Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_CONNECTION_TRUNCATED),
            id="bare-fin",
        ),
        pytest.param(
            Session.reset, Fault(FaultKind.SEND_FAILED, Cause.CONNECTION_RESET_BY_PEER), id="reset"
        ),
    ],
)
def test_a_session_closed_while_idle_is_replaced_by_one_redial(
    authority: Authority,
    certificate: Issued,
    caplog: pytest.LogCaptureFixture,
    ending: Ending,
    seen: Fault,
) -> None:
    answered, closed = Event(), Event()

    def script(session: Session) -> None:
        session.send_message(answer(session.read_query()))
        if session.number == 1:
            answered.wait()  # a close that came with the answer would be another story
            ending(session)
            closed.set()
        else:
            session.wait_for_end()

    stats = SessionStats()
    caplog.set_level(logging.DEBUG, logger="nxdns")
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == ANSWER
        answered.set()
        closed.wait()
        assert exchanged(leaf, QUERY) == ANSWER
        assert (peer.accepts, stats.recoveries) == (2, 1)
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert str(seen) in caplog.text


def test_a_session_found_broken_in_the_middle_of_a_large_query_is_replaced(
    authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    closed = Event()

    def script(session: Session) -> None:
        session.read_query()
        session.send_message(ANSWER)
        if session.number == 1:
            session.truncate()
            closed.set()
        else:
            session.wait_for_end()

    stats = SessionStats()
    caplog.set_level(logging.DEBUG, logger="nxdns")
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        exchanged(leaf, QUERY)
        closed.wait()
        assert exchanged(leaf, bytes(LARGE_QUERY)) == ANSWER
        assert (peer.accepts, stats.recoveries) == (2, 1)
    # Whichever is noticed first: that nobody reads what is sent, or that nobody sends.
    assert re.search(
        r"SendFailed \(cause BrokenPipe\)"
        r"|ReceiveFailed \(cause (TlsConnectionTruncated|ConnectionResetByPeer)\)",
        caplog.text,
    )


def test_every_idle_close_is_recovered_anew(authority: Authority, certificate: Issued) -> None:
    answered, closed = Event(), Event()

    def script(session: Session) -> None:
        session.send_message(answer(session.read_query()))
        answered.wait()
        answered.clear()
        session.close_notify()
        closed.set()

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        for _ in range(5):
            assert exchanged(leaf, QUERY) == ANSWER
            answered.set()
            closed.wait()
            closed.clear()
        assert (peer.accepts, stats.recoveries) == (5, 4)


def test_a_close_that_came_with_the_response_spoils_neither_this_exchange_nor_the_next(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        records = session.encrypt(frame(answer(session.read_query())))
        session.connection.shutdown()
        return session.send_raw(records + session.connection.bio_read(4096))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == ANSWER
        assert exchanged(leaf, QUERY) == ANSWER
        assert exchanged(leaf, QUERY) == ANSWER
        assert peer.accepts == 2
