"""Everything that surfaces read, of a whole forwarder."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from gevent import socket

from nxdns import overview
from nxdns.app import App
from nxdns.storage.database import Episode
from nxdns.upstream.episodes import UPSTREAM_EXCHANGE
from tests.storage.stores import NOW
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_tcp, ask_udp, running
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import TlsPeer, answer_all

pytestmark = pytest.mark.integration

HEALTH = "[health]\nbase_backoff_ms = 60000\n"


def respond(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def body(port: int, name: str, priority: int) -> str:
    return (
        f'url = "tls://127.0.0.1:{port}"\ntls_name = "{NAME}"\n'
        f'name = "{name}"\npriority = {priority}'
    )


def trip(app: App) -> None:
    """The first upstream refuses; the second one answers."""
    for number in range(2):
        ask_udp(address_of(app), make_query(f"secret-{number}.example"))


def test_a_tripped_upstream_is_an_open_episode_with_its_flight_record_and_no_names(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(respond)) as peer:
        dead = closed_port()
        upstreams = [body(dead, "dead", 10), body(peer.port, "good", 20)]
        storage = f'[storage]\npath = "{tmp_path}/events.db"\n'
        with running(tmp_path, authority.ca_file, upstreams, HEALTH + storage) as app:
            trip(app)
            seen = app.surface.overview()
            [episode] = seen.open_episodes
            assert (episode.code, episode.subject) == (UPSTREAM_EXCHANGE, "dead")
            assert episode.detail == (
                "upstream 'dead' failed: ConnectFailed (cause ConnectionRefused)"
            )
            assert [flight.ended_in for flight in episode.flight] == ["dial", "dial"]
            assert [flight.failed for flight in episode.flight] == [True, True]
            assert episode.flight[0].seconds_ago <= episode.flight[1].seconds_ago
            assert [len(flight.phase_seconds) for flight in episode.flight] == [6, 6]
            assert [flight.outcome for flight in app.surface.flight(1)] == ["NOERROR"] * 2
            assert app.surface.episodes(9) == (episode,)
            told = json.dumps([asdict(each) for each in app.surface.episodes(9)])
            told += repr(app.surface.flight(0)) + repr(app.surface.flight(1))
            assert "secret" not in told
            assert seen.store.path == f"{tmp_path}/events.db"
            assert [each.tripped for each in seen.upstreams] == [True, False]
        with running(tmp_path, authority.ca_file, upstreams, HEALTH + storage) as app:
            assert app.surface.overview().open_episodes == ()
            [resolved] = app.surface.episodes(9)
            assert resolved.resolved_at is not None
            assert resolved.flight == episode.flight
            assert app.surface.episodes(0) == ()


def test_every_counter_of_listeners_and_handler_is_in_it(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), answer_all(respond)) as peer,
        running(tmp_path, authority.ca_file, [body(peer.port, "good", 10)]) as app,
    ):
        ask_udp(address_of(app), make_query())
        ask_tcp(address_of(app), make_query())
        seen = app.surface.overview()
        [listener] = seen.listeners
        assert listener.address == str(address_of(app))
        assert (listener.udp["received"], listener.tcp["messages"]) == (1, 1)
        assert "active" not in listener.tcp
        assert seen.handler.totals == {
            "queries": 2,
            "truncated": 0,
            "upstream_truncated": 0,
            "badvers": 0,
            "refused": 0,
            "formerr": 0,
            "notimp": 0,
            "servfail": 0,
            "dropped_malformed": 0,
            "cancelled": 0,
        }
        assert set(seen.handler.servfail_phases) == {
            *("queue", "dial", "tls", "send", "first_byte", "rest", "none")
        }
        assert sum(seen.handler.wait_seconds.counts) == 2
        assert seen.reload.ok_total == seen.reload.failed_total == 0


def test_servfails_by_phase_sum_to_servfail(tmp_path: Path, authority: Authority) -> None:
    upstreams = [body(closed_port(), "dead", 10)]
    with running(tmp_path, authority.ca_file, upstreams) as app:
        for _ in range(3):
            ask_udp(address_of(app), make_query())
        handler = app.surface.overview().handler
        assert handler.totals["servfail"] == 3
        assert handler.servfail_phases["dial"] == 3
        assert sum(handler.servfail_phases.values()) == 3


def test_a_flight_record_of_another_version_is_told_as_far_as_it_is_understood() -> None:
    good = {
        "seconds_ago": 1.0,
        "slot": 3,
        "session_seconds": None,
        "reused": False,
        "phase_seconds": [0.0] * 6,
        "ended_in": "dial",
        "outcome": "NOERROR",
        "failed": False,
    }
    stored = json.dumps([{**good, "of_the_future": 1}, {"seconds_ago": 2.0}, good])
    told = overview._episode(Episode(UPSTREAM_EXCHANGE, "x", "", NOW, NOW, None, 1, stored))
    assert [flight.slot for flight in told.flight] == [3, 3]
