"""Many queries at once for an upstream that carries one exchange on each connection."""

from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from nxdns.cli import burst
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, running
from tests.support.http_peer import read_request, reply, well_behaved
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_response
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

CONNECTIONS = 32


def test_thirty_two_ride_at_once_the_next_waits_and_every_connection_is_counted(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    names = CONNECTIONS + 8
    asked: list[bytes] = []
    gate = Event()

    def script(session: Session) -> None:
        while True:
            query = read_request(session).body
            asked.append(query)
            gate.wait()
            session.send(reply(make_response(query, "192.0.2.1")))

    with no_descriptor_left(), TlsPeer(certificate.openssl_context(), script) as peer:
        body = f'url = "https://127.0.0.1:{peer.port}/dns-query"\ntls_name = "{NAME}"'
        with running(tmp_path, authority.ca_file, [body]) as app:
            asking = gevent.spawn(burst.ask, address_of(app), names)
            eventually(lambda: len(asked) == CONNECTIONS)
            gevent.idle()
            assert len(asked) == peer.accepts == CONNECTIONS
            snapshot = app.snapshot()[0]
            assert (snapshot.slots, snapshot.in_flight) == (CONNECTIONS, CONNECTIONS)
            assert (snapshot.open_sessions, snapshot.dials_total) == (CONNECTIONS, CONNECTIONS)
            gate.set()
            assert asking.get().ok
            assert burst.ask(address_of(app), CONNECTIONS).ok
            snapshot = app.snapshot()[0]
            assert peer.accepts == snapshot.dials_total == CONNECTIONS, "all were used again"
            assert snapshot.queued_total == names - CONNECTIONS
            assert snapshot.failures_total == 0
        snapshot = app.snapshot()[0]
        assert (snapshot.open_sessions, snapshot.in_flight) == (0, 0)
        assert snapshot.dials_total == CONNECTIONS


def test_a_connection_that_the_server_has_closed_is_no_longer_counted_as_open_once_replaced(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    closed: list[int] = []

    def script(session: Session) -> None:
        if session.number > 1:
            return well_behaved()(session)
        query = read_request(session).body
        session.send(reply(make_response(query, "192.0.2.1")))
        session.close_notify()
        closed.append(session.number)
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        body = f'url = "https://127.0.0.1:{peer.port}/dns-query"\ntls_name = "{NAME}"'
        with running(tmp_path, authority.ca_file, [body]) as app:
            assert burst.ask(address_of(app), 1).ok
            eventually(lambda: closed)
            assert burst.ask(address_of(app), 1).ok
            snapshot = app.snapshot()[0]
            assert (snapshot.open_sessions, snapshot.dials_total) == (1, 2)
            assert snapshot.failures_total == 0
        assert app.snapshot()[0].open_sessions == 0
