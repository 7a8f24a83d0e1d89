"""How the leaves of a DoH site keep, share and close their connections."""

import gevent
import pytest
from gevent.event import Event

from nxdns.upstream.doh_client import DohClient
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.http_peer import Request, leaves_at, read_request, reply, well_behaved
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LEAVES = 8


def test_a_connection_is_kept_and_the_leaf_tells_how_each_exchange_was_done(
    authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        leaf = leaves.first
        assert isinstance(exchanged(leaf, make_query()), bytes)
        assert not leaf.last.reused
        assert leaf.last.tls_version == "TLSv1.3"
        assert min(leaf.last.dial_ns, leaf.last.tls_ns, leaf.last.first_byte_ns) > 0
        assert isinstance(exchanged(leaf, make_query()), bytes)
        assert leaf.last.reused
        assert leaf.last.tls_version == "TLSv1.3"
        assert (leaf.last.dial_ns, leaf.last.tls_ns) == (0, 0)
        assert min(leaf.last.send_ns, leaf.last.first_byte_ns, leaf.last.rest_ns) > 0
        assert peer.accepts == 1
        assert leaves.stats.recoveries == 0


def test_eight_leaves_of_a_site_ask_at_once_and_use_their_eight_connections_again(
    authority: Authority, certificate: Issued
) -> None:
    waiting: list[Request] = []
    all_there = Event()

    def script(session: Session) -> None:
        while True:
            request = read_request(session)
            waiting.append(request)
            if len(waiting) == LEAVES:
                all_there.set()
            all_there.wait()
            session.send(reply(make_response(request.body)))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority, count=LEAVES) as leaves,
    ):
        for _round in range(3):
            waiting.clear()
            all_there.clear()
            queries = [make_query(f"host{n}.example.com", id_=n) for n in range(LEAVES)]
            asking = [
                gevent.spawn(exchanged, leaf, query)
                for leaf, query in zip(leaves.all, queries, strict=True)
            ]
            gevent.joinall(asking, raise_error=True)
            assert [task.value for task in asking] == [make_response(query) for query in queries]
        assert peer.accepts == LEAVES


def test_no_more_connections_are_kept_than_the_site_has_leaves(
    authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        asking = [
            gevent.spawn(exchanged, DohClient(leaves.site), make_query()) for _ in range(LEAVES)
        ]
        gevent.joinall(asking, raise_error=True)
        assert all(isinstance(task.value, bytes) for task in asking)
        assert peer.accepts == LEAVES
        assert leaves.stats.open == 1


def test_close_ends_idle_connections_and_the_leaf_can_be_used_again(
    authority: Authority, certificate: Issued
) -> None:
    ended: list[int] = []

    def script(session: Session) -> None:
        try:
            well_behaved()(session)
        finally:
            ended.append(session.number)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        leaf = leaves.first
        leaf.close()  # never used
        assert isinstance(exchanged(leaf, make_query()), bytes)
        leaf.close()
        leaf.close()
        eventually(lambda: ended == [1])
        assert isinstance(exchanged(leaf, make_query()), bytes)
        assert peer.accepts == 2
        assert leaves.stats.recoveries == 0


def test_close_during_an_exchange_lets_it_end_and_keeps_its_connection_no_longer(
    authority: Authority, certificate: Issued
) -> None:
    asked, gate, ended = Event(), Event(), Event()

    def script(session: Session) -> None:
        query = read_request(session).body
        asked.set()
        gate.wait()
        session.send(reply(make_response(query)))
        session.wait_for_end()
        ended.set()

    query = make_query()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        asking = gevent.spawn(exchanged, leaves.first, query)
        asked.wait()
        leaves.first.close()
        gate.set()
        assert asking.get() == make_response(query)
        assert ended.wait(10)


def test_two_sites_share_nothing(authority: Authority, certificate: Issued) -> None:
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority) as some,
        leaves_at(peer.port, authority, path="/other") as others,
    ):
        for leaf in (some.first, others.first):
            assert isinstance(exchanged(leaf, make_query()), bytes)
            assert not leaf.last.reused
        assert peer.accepts == 2
