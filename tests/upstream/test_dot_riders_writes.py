"""Riders whose queries the kernel does not take at once."""

from time import monotonic_ns

import gevent
import pytest
from gevent.event import Event
from greenlet import GreenletExit

from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.transport import Cause, Fault, FaultKind, PeerFault
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import MS, assert_all_free, entry_of, pool_of
from tests.support.http_peer import small_send_buffers
from tests.support.leaks import no_descriptor_left
from tests.support.messages import big_response, make_query
from tests.support.riders import (
    CLIENT_ID,
    NarrowPeer,
    Ride,
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
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RIDERS = 4
EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)
_QR = 0x80


@pytest.fixture(autouse=True)
def _narrow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    small_send_buffers(monkeypatch)


def large_query(number: int) -> bytes:
    """A query of 65535 bytes: far more than the sockets of a narrow peer and ours take."""
    query = bytearray(big_response(make_query(name_of(number), id_=CLIENT_ID), 65535))
    query[2] &= ~_QR
    return bytes(query)


def ride_large(leaf: DotClient, count: int) -> list[Ride]:
    return [Ride(leaf, large_query(number)) for number in range(count)]


def test_a_peer_that_does_not_read_stops_neither_the_loop_nor_what_it_reads_later(
    authority: Authority, certificate: Issued
) -> None:
    gate = Event()
    heard: list[bytes] = []

    def script(session: Session) -> None:
        gate.wait()
        heard.extend(read_queries(session, RIDERS + 2))
        for query in heard:
            session.send_message(answer(query))
        answer_all(answer)(session)

    with (
        NarrowPeer(certificate.openssl_context(), script) as peer,
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as another,
        leaf_of(site_at(peer.port, authority)) as leaf,
        leaf_of(site_at(another.port, authority)) as another_leaf,
    ):
        rides = ride_large(leaf, RIDERS)
        eventually(lambda: leaf.is_open)
        gevent.idle()
        # Behind what is stuck, in a turn of their own.
        rides += ride(leaf, 2, first=RIDERS)
        others = ride(another_leaf, 3)
        assert outcomes_of(others) == answers_to(others)
        assert not any(each.over for each in rides)
        gate.set()
        assert outcomes_of(rides) == answers_to(rides)
        # Whole, and in the order in which they boarded.
        assert [query[2:] for query in heard] == [each.query[2:] for each in rides]
        again = ride(leaf, 2)
        assert outcomes_of(again) == answers_to(again)
        assert peer.accepts == 1


@pytest.mark.parametrize("victim", range(RIDERS))
def test_a_rider_killed_while_its_query_is_on_its_way_spoils_nobodys(
    authority: Authority, certificate: Issued, victim: int
) -> None:
    gate = Event()

    def script(session: Session) -> None:
        gate.wait()
        answer_all(answer)(session)

    with NarrowPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride_large(leaf, RIDERS)
            eventually(lambda: leaf.is_open)
            gevent.idle()
            rides.pop(victim).interrupt(GreenletExit())
            gate.set()
            assert outcomes_of(rides) == answers_to(rides)
            # Behind the last answer, whoever's it was: what was given up has been answered too.
            last = ride(leaf, 1)
            assert outcomes_of(last) == answers_to(last)
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_a_peer_that_never_reads_costs_each_rider_one_attempt_and_the_session_ends(
    authority: Authority, certificate: Issued
) -> None:
    gate, ended = Event(), Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        gate.wait()
        session.wait_for_end()
        ended.set()
        return None

    with (
        no_descriptor_left(),
        NarrowPeer(certificate.openssl_context(), script) as peer,
    ):
        site = site_at(peer.port, authority, attempt_ns=150 * MS)
        leaf = DotClient(site)
        entry = entry_of(leaf, clock=monotonic_ns, depth=32, sessions=site.stats)
        pool = pool_of(entry, clock=monotonic_ns, attempt_ns=150 * MS)

        def fault_of(query: bytes) -> Fault:
            with pytest.raises(PeerFault) as failed:
                exchanged(pool, query)
            return failed.value.fault

        asking = [gevent.spawn(fault_of, large_query(number)) for number in range(RIDERS)]
        gevent.joinall(asking, raise_error=True)
        assert [each.value for each in asking] == [EXPIRED] * RIDERS
        assert entry.health.consecutive_failures == 1
        assert not leaf.is_open
        gate.set()
        assert ended.wait(10)
        query = make_query()
        assert exchanged(pool, query) == answer(query)
        assert_all_free(entry.slots)
        pool.close()


def test_a_reset_while_queries_are_on_their_way_is_seen_by_all_at_once(
    authority: Authority, certificate: Issued
) -> None:
    gate = Event()

    def script(session: Session) -> None:
        gate.wait()
        session.reset()

    with (
        no_descriptor_left(),
        NarrowPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride_large(leaf, RIDERS)
        eventually(lambda: leaf.is_open)
        gevent.idle()
        gate.set()
        faults = outcomes_of(rides)
        assert faults == [faults[0]] * RIDERS
        # Whichever is noticed first: that nobody reads what is sent, or that nobody sends.
        assert faults[0] in (
            Fault(FaultKind.SEND_FAILED, Cause.CONNECTION_RESET_BY_PEER),
            Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER),
        )
        assert peer.accepts == 1


@pytest.mark.parametrize("served", [1, 2])
def test_a_hang_up_that_a_write_meets_first_costs_nobody_the_answer_that_came_before(
    authority: Authority, certificate: Issued, served: int
) -> None:
    joined: list[Ride] = []

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        for query in read_queries(session, 3)[:served]:
            session.send_message(answer(query))
        session.reset()
        # In the same turn of the loop: they board and send before anybody reads.
        joined.extend(ride(leaf, 2, first=3))
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 3)
            assert outcomes_of(rides) == answers_to(rides)
            assert outcomes_of(joined) == answers_to(joined)
            assert peer.accepts == 2
            assert site.stats.recoveries == 3 - served + len(joined)


def test_what_came_before_a_query_could_leave_is_not_taken_for_its_answer(
    authority: Authority, certificate: Issued
) -> None:
    joined: list[Ride] = []

    def restless(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        session.send_message(answer(session.read_query()))
        idle.wait()
        session.send(b"\0")
        session.reset()
        joined.extend(ride(leaf, 1, first=1))
        return None

    idle = Event()
    with TlsPeer(certificate.openssl_context(), restless) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            first = ride(leaf, 1)
            assert outcomes_of(first) == answers_to(first)
            idle.set()
            eventually(lambda: joined)
            assert outcomes_of(joined) == answers_to(joined)
            assert (peer.accepts, site.stats.recoveries) == (2, 1)
