"""Answers on a shared DoT session that nobody waits for, and bad ones: whom they hit."""

from collections.abc import Callable
from itertools import count

import gevent
import pytest
from gevent import Timeout
from gevent.event import Event
from greenlet import GreenletExit

from nxdns.dns.framing import frame
from nxdns.upstream import pipeline
from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import MS
from tests.support.messages import make_query, make_response
from tests.support.riders import (
    CLIENT_ID,
    answer,
    answers_to,
    leaf_of,
    name_of,
    outcomes_of,
    read_queries,
    ride,
    site_at,
)
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = pytest.mark.integration

RIDERS = 5


def id_of(message: bytes) -> int:
    return int.from_bytes(message[:2], "big")


# Answers that come too late.


@pytest.mark.parametrize("interruption", [GreenletExit, Timeout])
def test_a_late_answer_is_counted_and_ignored_while_others_wait(
    authority: Authority, certificate: Issued, interruption: Callable[[], BaseException]
) -> None:
    asked, given_up = Event(), Event()

    def script(session: Session) -> None:
        queries = read_queries(session, 3)
        asked.set()
        given_up.wait()
        for query in queries:
            session.send_message(answer(query))
        answer_all(answer)(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 3)
            asked.wait()
            rides[0].interrupt(interruption())
            given_up.set()
            assert outcomes_of(rides[1:]) == answers_to(rides[1:])
            assert site.stats.late_answers == 1
            again = ride(leaf, 3)
            assert outcomes_of(again) == answers_to(again)
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_a_late_answer_that_comes_while_nobody_waits_is_not_charged_to_the_next(
    authority: Authority, certificate: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "RETIRED_NS", 100 * MS)
    asked, given_up, idle, came_late = Event(), Event(), Event(), Event()

    def script(session: Session) -> None:
        first, second = read_queries(session, 2)
        asked.set()
        given_up.wait()
        session.send_message(answer(second))
        idle.wait()
        session.send_message(answer(first))
        came_late.set()
        answer_all(answer)(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        site.draw_id = count().__next__
        with leaf_of(site) as leaf:
            gone, other = ride(leaf, 2)
            asked.wait()
            gone.interrupt(GreenletExit())
            given_up.set()
            assert outcomes_of([other]) == answers_to([other])
            idle.set()
            came_late.wait()
            gevent.sleep(0.15)
            after = ride(leaf, 1, first=2)
            assert outcomes_of(after) == answers_to(after)
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_an_answer_that_comes_twice_is_late_the_second_time(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        first, second = read_queries(session, 2)
        session.send(frame(answer(first)) * 3 + frame(answer(second)))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 2)
            assert outcomes_of(rides) == answers_to(rides)
            assert (peer.accepts, site.stats.late_answers) == (1, 2)


def test_a_late_answer_may_end_when_somebody_else_waits_already(
    authority: Authority, certificate: Issued
) -> None:
    asked, given_up = Event(), Event()

    def script(session: Session) -> None:
        gone, stays = read_queries(session, 2)
        asked.set()
        given_up.wait()
        late = frame(answer(gone))
        session.send(frame(answer(stays)) + late[:20])
        another = session.read_query()
        session.send(late[20:] + frame(answer(another)))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            gone, stays = ride(leaf, 2)
            asked.wait()
            gone.interrupt(GreenletExit())
            given_up.set()
            assert stays.outcome() == answer(stays.query)
            another = make_query(name_of(2), id_=CLIENT_ID)
            assert exchanged(leaf, another) == answer(another)
            assert leaf.last.reused
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_what_comes_when_nobody_waits_is_left_behind_with_its_session(
    authority: Authority, certificate: Issued
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        queries = read_queries(session, 2)
        unasked = make_response(make_query("another.example.com", id_=1))
        session.send(b"".join(map(frame, [*map(answer, queries), unasked])))
        session.wait_for_end()
        ended.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            for _ in range(2):
                rides = ride(leaf, 2)
                assert outcomes_of(rides) == answers_to(rides)
            assert ended.wait(10)
            assert (peer.accepts, site.stats.recoveries) == (2, 0)


# Bad answers.


def _another_name(query: bytes) -> bytes:
    return make_response(make_query("another.example.com", id_=id_of(query)))


def _another_type(query: bytes) -> bytes:
    return make_response(make_query(name_of(1), "AAAA", id_=id_of(query)))


def _itself(query: bytes) -> bytes:
    return query


def _garbage(query: bytes) -> bytes:
    return query[:2] + b"\xff" * 20


def _header_cut_short(query: bytes) -> bytes:
    return query[:2] + b"\x80"


WRONG_ID = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)


def _bad(kind: FaultKind, cause: Cause) -> Fault:
    return Fault(kind, cause)


@pytest.mark.parametrize(
    ("bad_answer", "fault"),
    [
        pytest.param(
            _another_name, _bad(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME), id="wrong-name"
        ),
        pytest.param(
            _another_type, _bad(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_TYPE), id="wrong-type"
        ),
        pytest.param(_itself, _bad(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE), id="no-response"),
        pytest.param(_garbage, _bad(FaultKind.BAD_RESPONSE, Cause.MALFORMED), id="garbage"),
        pytest.param(
            _header_cut_short, _bad(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="cut-short"
        ),
    ],
)
def test_a_bad_answer_hits_whom_it_was_for_and_the_innocent_share_one_fresh_dial(
    authority: Authority,
    certificate: Issued,
    bad_answer: Callable[[bytes], bytes],
    fault: Fault,
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        queries = read_queries(session, RIDERS)
        # In one record with the good answer before it, and with one behind it that is too late.
        messages = (answer(queries[3]), bad_answer(queries[1]), answer(queries[2]))
        session.send(b"".join(map(frame, messages)))
        session.wait_for_end()
        ended.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, RIDERS)
            expected = answers_to(rides)
            expected[1] = fault
            assert outcomes_of(rides) == expected
            assert ended.wait(10), "the session was not ended"
            assert (peer.accepts, site.stats.dials) == (2, 2)


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        pytest.param(make_response(make_query(id_=1)), WRONG_ID, id="unknown-id"),
        pytest.param(b"", _bad(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE), id="zero-length"),
        pytest.param(b"\0", _bad(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="one-byte"),
        pytest.param(
            b"\0\0\xff\xff", _bad(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="unknown-and-cut"
        ),
    ],
)
def test_what_answers_nobody_hits_who_has_waited_longest(
    authority: Authority, certificate: Issued, message: bytes, fault: Fault
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        first, *_ = read_queries(session, RIDERS)
        session.send_message(answer(first))
        session.send(frame(message) if message else b"\0\0")
        session.wait_for_end()
        return None

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, RIDERS)
        expected = answers_to(rides)
        expected[1] = fault
        assert outcomes_of(rides) == expected
        assert peer.accepts == 2


def test_the_innocent_ride_on_only_once(authority: Authority, certificate: Issued) -> None:
    def script(session: Session) -> None:
        session.send_message(_another_name(session.read_query()))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, RIDERS)
        # One pays for the first session and one for the second; there is no third.
        assert outcomes_of(rides) == [_bad(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME)] * RIDERS
        assert peer.accepts == 2
