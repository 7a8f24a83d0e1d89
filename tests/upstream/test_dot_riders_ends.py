"""A DoT session that ends under several riders: who is retried, where, and for whom it is final."""

from collections.abc import Callable

import gevent
import pytest
from gevent.event import Event

from nxdns.dns.framing import frame
from nxdns.upstream.transport import Cause, Fault, FaultKind, LocalKind, LocalResource
from tests.support.authority import Authority, Issued
from tests.support.dot_leaves import QUERY_ID
from tests.support.exchanging import exchanged
from tests.support.lacks import no_descriptor_free
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query
from tests.support.riders import (
    GatedPeer,
    answer,
    answers_to,
    leaf_of,
    outcomes_of,
    read_queries,
    ride,
    site_at,
)
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RIDERS = 5

CLEAN = Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM)
TRUNCATED = Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_CONNECTION_TRUNCATED)
RESET = Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER)
PROTOCOL = Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_PROTOCOL)

Ending = Callable[[Session], None]

HANG_UPS = [
    pytest.param(Session.close_notify, CLEAN, id="close-notify"),
    pytest.param(Session.truncate, TRUNCATED, id="fin"),
    pytest.param(Session.reset, RESET, id="reset"),
]


def garbage(session: Session) -> None:
    session.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def one_query(session: Session) -> None:
    session.send_message(answer(session.read_query()))


# A session that had answered somebody.


@pytest.mark.parametrize(("ending", "_fault"), HANG_UPS)
def test_those_on_a_stale_session_are_all_answered_by_one_fresh_dial(
    authority: Authority, certificate: Issued, ending: Ending, _fault: Fault
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        one_query(session)
        read_queries(session, RIDERS)
        return ending(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            exchanged(leaf, make_query())
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == answers_to(rides)
            assert (peer.accepts, site.stats.dials) == (2, 2)
            assert site.stats.recoveries == RIDERS


def test_a_close_that_was_there_before_the_riders_costs_them_one_dial_together(
    authority: Authority, certificate: Issued
) -> None:
    closed = Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        one_query(session)
        session.close_notify()
        closed.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            exchanged(leaf, make_query())
            closed.wait()
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == answers_to(rides)
            assert peer.accepts == 2


@pytest.mark.parametrize(("ending", "fault"), HANG_UPS)
@pytest.mark.parametrize(
    ("share", "victim"),
    [
        pytest.param(slice(1), 0, id="one-byte-which-is-the-oldests"),
        pytest.param(slice(2), 0, id="a-length-which-is-the-oldests"),
        pytest.param(slice(4), 2, id="an-id"),
        pytest.param(slice(-1), 2, id="all-but-the-last-byte"),
    ],
)
def test_who_has_got_bytes_of_its_own_response_is_not_retried_and_the_others_are(
    authority: Authority,
    certificate: Issued,
    ending: Ending,
    fault: Fault,
    share: slice,
    victim: int,
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        one_query(session)
        queries = read_queries(session, RIDERS)
        session.send(frame(answer(queries[2]))[share])
        gevent.idle()  # the client has read it: a reset would take it away
        return ending(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            exchanged(leaf, make_query())
            rides = ride(leaf, RIDERS)
            expected = answers_to(rides)
            expected[victim] = fault
            assert outcomes_of(rides) == expected
            assert peer.accepts == 2
            assert site.stats.recoveries == RIDERS - 1


def test_the_beginning_of_a_late_answer_is_nobodys_response(
    authority: Authority, certificate: Issued
) -> None:
    asked, given_up = Event(), Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        one_query(session)
        first, *_ = read_queries(session, RIDERS)
        asked.set()
        given_up.wait()
        session.send(frame(answer(first))[:-1])
        return None

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        exchanged(leaf, make_query())
        first, *others = ride(leaf, RIDERS)
        asked.wait()
        first.interrupt(gevent.GreenletExit())
        given_up.set()
        assert outcomes_of(others) == answers_to(others)
        assert peer.accepts == 2


def test_an_answer_in_front_of_the_close_counts_and_the_rest_ride_on(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        queries = read_queries(session, RIDERS)
        session.send_raw(
            session.encrypt(frame(answer(queries[2])) + frame(answer(queries[0])))
            + close_notify_of(session)
        )
        session.wait_for_end()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == answers_to(rides)
            assert peer.accepts == 2
            assert site.stats.recoveries == RIDERS - 2


def close_notify_of(session: Session) -> bytes:
    session.connection.shutdown()
    alert: bytes = session.connection.bio_read(4096)
    return alert


@pytest.mark.parametrize("answers", [1, 3])
def test_a_server_that_closes_behind_its_answers_serves_all_and_is_asked_one_at_a_time(
    authority: Authority, certificate: Issued, answers: int
) -> None:
    def script(session: Session) -> None:
        for _ in range(answers):
            one_query(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 12)
            assert outcomes_of(rides) == answers_to(rides)
            assert peer.accepts == 12 / answers
            # Those of the first session rode on nothing stale.
            assert site.stats.recoveries == 12 - answers
            assert site.depth.serial_until > 0


def test_one_stale_session_is_no_reason_to_ask_one_at_a_time(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        if session.number % 2:
            one_query(session)
            read_queries(session, RIDERS)
        else:
            for _ in range(RIDERS):
                one_query(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            for _ in range(3):
                exchanged(leaf, make_query())
                rides = ride(leaf, RIDERS)
                assert outcomes_of(rides) == answers_to(rides)
            assert site.depth.serial_until == 0
            assert site.stats.recoveries == 3 * RIDERS


# Final for all.


@pytest.mark.parametrize(
    ("ending", "fault"), [*HANG_UPS, pytest.param(garbage, PROTOCOL, id="no-tls")]
)
def test_a_fresh_session_that_answers_nobody_is_final_for_all(
    authority: Authority, certificate: Issued, ending: Ending, fault: Fault
) -> None:
    def script(session: Session) -> None:
        read_queries(session, RIDERS)
        ending(session)
        if ending is garbage:
            session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == [fault] * RIDERS
            assert (peer.accepts, site.stats.recoveries) == (1, 0)


def test_a_fresh_dial_behind_a_stale_session_that_answers_nobody_is_final_for_all(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        if session.number == 1:
            one_query(session)
        read_queries(session, RIDERS)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            exchanged(leaf, make_query())
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == [CLEAN] * RIDERS
            assert (peer.accepts, site.stats.recoveries) == (2, 0)


def test_a_broken_record_on_a_session_that_had_answered_is_final_for_all(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        one_query(session)
        read_queries(session, RIDERS)
        garbage(session)
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        exchanged(leaf, make_query())
        rides = ride(leaf, RIDERS)
        assert outcomes_of(rides) == [PROTOCOL] * RIDERS
        assert peer.accepts == 1


def test_a_handshake_that_fails_is_final_for_all_who_waited_for_it(
    authority: Authority,
) -> None:
    context = authority.issue("other.test").openssl_context()
    with GatedPeer(context, Session.wait_for_end) as peer, no_descriptor_left():
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 2)
            eventually(lambda: peer.accepts)
            rides += ride(leaf, RIDERS - 2, first=2)
            gevent.idle()
            peer.gate.set()
            mismatch = Fault(FaultKind.TLS_FAILED, Cause.CERTIFICATE_NAME_MISMATCH)
            assert outcomes_of(rides) == [mismatch] * RIDERS
            assert (peer.accepts, site.stats.dials) == (1, 1)


# What this process lacks.


def test_a_shared_dial_without_a_free_descriptor_is_nobodys_fault(
    authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        gevent.idle()  # the peer waits in its accept
        with no_descriptor_free():
            outcomes = outcomes_of(ride(leaf, RIDERS))
        assert [_lack_of(outcome) for outcome in outcomes] == [
            LocalKind.PROCESS_FD_QUOTA_EXCEEDED
        ] * RIDERS
        assert len({id(outcome) for outcome in outcomes}) == RIDERS, "each has one of its own"
        rides = ride(leaf, RIDERS)
        assert outcomes_of(rides) == answers_to(rides)
        assert peer.accepts == 1


def test_a_shared_redial_without_a_free_descriptor_is_nobodys_fault(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        one_query(session)
        if session.number == 1:
            read_queries(session, RIDERS)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            exchanged(leaf, make_query(id_=QUERY_ID))
            with no_descriptor_free():
                outcomes = outcomes_of(ride(leaf, RIDERS))
            assert [_lack_of(outcome) for outcome in outcomes] == [
                LocalKind.PROCESS_FD_QUOTA_EXCEEDED
            ] * RIDERS
            assert site.stats.recoveries == 0


def _lack_of(outcome: object) -> LocalKind:
    assert isinstance(outcome, LocalResource)
    return outcome.kind
