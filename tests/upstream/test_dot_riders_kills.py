"""Riders of a DoT session that are killed, or whose time is up, and those that ride with them."""

from collections.abc import Callable, Sequence
from time import monotonic_ns

import gevent
import pytest
from gevent import Timeout
from gevent.event import Event
from greenlet import GreenletExit
from OpenSSL import SSL

from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import Cause, Fault, FaultKind, PeerFault
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import MS, assert_all_free, entry_of, pool_of
from tests.support.leaks import greenlets_alive, no_descriptor_left
from tests.support.messages import make_query
from tests.support.riders import (
    GatedPeer,
    Ride,
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
EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)

Interruption = Callable[[], BaseException]
interrupted = pytest.mark.parametrize(
    "interruption",
    [pytest.param(GreenletExit, id="kill"), pytest.param(Timeout, id="timeout")],
)


# On an open session.


@interrupted
@pytest.mark.parametrize("victim", [0, 2, 4])
def test_a_rider_that_gives_up_leaves_the_session_to_the_others(
    authority: Authority, certificate: Issued, interruption: Interruption, victim: int
) -> None:
    asked, given_up = Event(), Event()

    def script(session: Session) -> None:
        queries = read_queries(session, RIDERS)
        asked.set()
        given_up.wait()
        for query in queries:
            session.send_message(answer(query))
        answer_all(answer)(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, RIDERS)
            asked.wait()
            gone = rides.pop(victim)
            gone.interrupt(interruption())
            given_up.set()
            assert outcomes_of(rides) == answers_to(rides)
            assert peer.accepts == 1
            assert site.stats.open == 1
            again = ride(leaf, RIDERS)
            assert outcomes_of(again) == answers_to(again)
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_the_id_of_one_that_has_given_up_is_nobody_elses(
    authority: Authority, certificate: Issued
) -> None:
    heard: list[bytes] = []
    all_there = Event()

    def script(session: Session) -> None:
        while len(heard) < 4:
            heard.append(session.read_query())
        all_there.set()
        # What was given up comes first: were its ID another's, that one would have a wrong answer.
        for query in heard:
            session.send_message(answer(query))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        gone, stays = ride(leaf, 2)
        eventually(lambda: len(heard) == 2)
        gone.interrupt(GreenletExit())
        rides = [stays, *ride(leaf, 2, first=2)]
        all_there.wait()
        assert outcomes_of(rides) == answers_to(rides)
        assert len({query[:2] for query in heard}) == 4


@interrupted
def test_the_last_one_out_closes_the_session(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    asked = Event()
    ends: list[BaseException] = []

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        read_queries(session, RIDERS)
        asked.set()
        try:
            session.recv()
        except SSL.ZeroReturnError as end:
            ends.append(end)
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            *first_out, last_out = ride(leaf, RIDERS)
            asked.wait()
            for each in first_out:
                each.interrupt(interruption())
            assert site.stats.open == 1
            last_out.interrupt(interruption())
            assert (leaf.is_open, site.stats.open) == (False, 0)
            eventually(lambda: ends)
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == answers_to(rides)
            assert peer.accepts == 2


@interrupted
def test_who_has_begun_to_get_its_answer_may_give_up_in_the_middle_of_it(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    begun, given_up = Event(), Event()

    def script(session: Session) -> None:
        first, second = read_queries(session, 2)
        response = answer(first)
        session.send(len(response).to_bytes(2, "big") + response[:10])
        gevent.idle()  # the client has read it
        begun.set()
        given_up.wait()
        session.send(response[10:])
        session.send_message(answer(second))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            first, second = ride(leaf, 2)
            begun.wait()
            first.interrupt(interruption())
            given_up.set()
            assert second.outcome() == answer(second.query)
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


# Dead silence.


@interrupted
def test_a_session_that_was_silent_for_an_attempt_budget_ends_for_all_with_a_timeout(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    asked, ended = Event(), Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        read_queries(session, RIDERS)
        asked.set()
        session.wait_for_end()
        ended.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority, attempt_ns=1)
        with leaf_of(site) as leaf:
            first, *others = ride(leaf, RIDERS)
            asked.wait()
            first.interrupt(interruption())
            assert outcomes_of(others) == [EXPIRED] * (RIDERS - 1)
            assert ended.wait(10)
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == answers_to(rides)
            assert (peer.accepts, site.stats.recoveries) == (2, 0)


def test_a_dial_that_came_to_nothing_for_an_attempt_budget_ends_for_all_with_a_timeout(
    authority: Authority, certificate: Issued
) -> None:
    with (
        no_descriptor_left(),
        GatedPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        leaf_of(site_at(peer.port, authority, attempt_ns=1)) as leaf,
    ):
        first, *others = ride(leaf, RIDERS)
        eventually(lambda: peer.accepts)
        first.interrupt(Timeout())
        assert outcomes_of(others) == [EXPIRED] * (RIDERS - 1)
        peer.gate.set()
        rides = ride(leaf, RIDERS)
        assert outcomes_of(rides) == answers_to(rides)
        assert peer.accepts == 2


def test_one_dead_session_is_one_failure_of_its_upstream_however_many_rode_on_it(
    authority: Authority, certificate: Issued
) -> None:
    heard: list[bytes] = []

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        while True:
            heard.append(session.read_query())

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority, attempt_ns=100 * MS)
        leaf = DotClient(site)
        entry = entry_of(leaf, clock=monotonic_ns, depth=32, sessions=site.stats)
        pool = pool_of(entry, clock=monotonic_ns, attempt_ns=100 * MS)
        asking = [gevent.spawn(_fault_of, pool, make_query())]
        eventually(lambda: heard)
        asking += [gevent.spawn(_fault_of, pool, make_query()) for _ in range(4)]
        gevent.joinall(asking, raise_error=True)
        assert [each.value for each in asking] == [EXPIRED] * 5
        assert len(heard) == 5, "all rode on that session"
        assert entry.health.total_failures == 5
        assert entry.health.consecutive_failures == 1
        assert not leaf.is_open
        query = make_query()
        assert exchanged(pool, query) == answer(query)
        assert entry.health.consecutive_failures == 0
        assert_all_free(entry.slots)
        pool.close()


def _fault_of(pool: UpstreamPool, query: bytes) -> Fault:
    with pytest.raises(PeerFault) as failed:
        pool.exchange(query)
    return failed.value.fault


# During the dial.


@interrupted
def test_the_end_of_who_began_the_dial_is_not_the_end_of_the_dial(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    with (
        GatedPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        first, *others = ride(leaf, RIDERS)
        eventually(lambda: peer.accepts)
        first.interrupt(interruption())
        peer.gate.set()
        assert outcomes_of(others) == answers_to(others)
        assert peer.accepts == 1


@interrupted
def test_when_all_have_given_up_during_the_dial_nothing_is_left_of_it(
    authority: Authority, certificate: Issued, interruption: Interruption
) -> None:
    heard: list[bytes] = []

    def script(session: Session) -> None:
        heard.append(session.recv())

    with (
        no_descriptor_left(),
        GatedPeer(certificate.openssl_context(), script) as peer,
    ):
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            gevent.idle()  # the peer waits in its accept
            alive = greenlets_alive()
            rides = ride(leaf, RIDERS)
            eventually(lambda: peer.accepts)
            for each in rides:
                each.interrupt(interruption())
            gevent.idle()
            # The peer still serves that connection.
            assert greenlets_alive() == alive + 1
            del rides
            peer.gate.set()
            gevent.idle()
            assert (heard, site.stats.open, site.stats.dials) == ([], 0, 1)


def test_all_may_give_up_before_the_dial_has_begun(
    authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            gevent.idle()
            errors = [GreenletExit() for _ in range(RIDERS)]
            rides = ride(leaf, RIDERS)

            def end_all() -> None:
                # All wait for a session, and the greenlet that opens it has not run yet.
                assert site.stats.dials == 1
                for each, error in zip(rides, errors, strict=True):
                    each.throw(error)

            gevent.get_hub().loop.run_callback(end_all)
            assert outcomes_of(rides) == errors
            again = ride(leaf, RIDERS)
            assert outcomes_of(again) == answers_to(again)
            assert peer.accepts == 1


# The leaf is closed under them.


def test_a_close_during_the_dial_ends_all_who_wait_for_it_and_is_nobodys_fault(
    authority: Authority, certificate: Issued
) -> None:
    with (
        no_descriptor_left(),
        GatedPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, RIDERS)
        eventually(lambda: peer.accepts)
        leaf.close()
        leaf.close()
        assert_each_was_cancelled(rides)
        peer.gate.set()
        again = ride(leaf, RIDERS)
        assert outcomes_of(again) == answers_to(again)
        assert peer.accepts == 2


def test_a_close_ends_all_riders_and_is_nobodys_fault(
    authority: Authority, certificate: Issued
) -> None:
    asked, ended = Event(), Event()

    def script(session: Session) -> None:
        session.send_message(answer(session.read_query()))
        if session.number > 1:
            return answer_all(answer)(session)
        read_queries(session, RIDERS)
        asked.set()
        session.wait_for_end()
        ended.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            exchanged(leaf, make_query())
            rides = ride(leaf, RIDERS)
            asked.wait()
            leaf.close()
            leaf.close()
            assert_each_was_cancelled(rides)
            assert ended.wait(10)
            again = ride(leaf, RIDERS)
            assert outcomes_of(again) == answers_to(again)
            # Had they ridden on, as from a session that the peer had closed, these would count.
            assert (peer.accepts, site.stats.recoveries) == (2, 0)


def assert_each_was_cancelled(rides: Sequence[Ride]) -> None:
    ends = outcomes_of(rides)
    assert all(isinstance(end, GreenletExit) for end in ends)
    assert len({id(end) for end in ends}) == len(rides), "each has one of its own"
