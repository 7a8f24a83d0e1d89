"""Other listen addresses by a reload: no query lost, and every surface knows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from nxdns.app import App
from nxdns.config import load
from nxdns.platform.address import ListenAddress
from nxdns.server import listening
from nxdns.web.metrics import Metrics
from tests.support.as_it_was import logging_as_it_was
from tests.support.authority import NAME, Authority, Issued
from tests.support.exposition import Scrape
from tests.support.forwarder import ask_tcp, ask_udp
from tests.support.full_overview import NO_TROUBLE
from tests.support.messages import make_query, make_response
from tests.support.port_keeper import keeping
from tests.support.process import config_file
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query()


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A reload sets the level of the log."""
    with logging_as_it_was():
        yield


def _answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


class Forwarder:
    """An App over one upstream, and the file that it reads again."""

    def __init__(self, folder: Path, ca_file: str, peer: TlsPeer, *addresses: str) -> None:
        self._folder = folder
        self._ca_file = ca_file
        self._peer = peer
        self.app = App(load(self._write(*addresses)))
        self.app.start()

    def _write(self, *addresses: str) -> Path:
        body = f'url = "tls://127.0.0.1:{self._peer.port}"\ntls_name = "{NAME}"'
        quoted = ", ".join(f'"{address}"' for address in addresses)
        server = f"[server]\nlisten = [{quoted}]\n"
        return config_file(self._folder, body, ca_file=self._ca_file, extra=server)

    def reload(self, *addresses: str) -> None:
        """It never lets anybody else run."""
        file = self._write(*addresses)
        others_ran: list[bool] = []
        gevent.spawn(others_ran.append, True)
        self.app.reload(lambda: load(file))
        assert not others_ran, "the reload has waited for something"

    @property
    def bound(self) -> list[ListenAddress]:
        return [each.bound for each in self.app.listeners]

    @property
    def problems(self) -> tuple[str, ...]:
        told = self.app.reloads.snapshot()
        assert told.last_ok
        return told.problems

    def scrape(self) -> Scrape:
        return Scrape(Metrics(self.app.surface, lambda: NO_TROUBLE).exposition("")[0])


Started = Callable[..., Forwarder]


@pytest.fixture
def started(tmp_path: Path, authority: Authority) -> Iterator[Started]:
    """Starts a forwarder that listens on what is given; it is stopped when the test ends."""
    with ExitStack() as stack:

        def start(peer: TlsPeer, *addresses: str) -> Forwarder:
            forwarder = Forwarder(tmp_path, authority.ca_file, peer, *addresses)
            stack.callback(forwarder.app.stop)
            return forwarder

        yield start


@pytest.fixture
def peer(certificate: Issued) -> Iterator[TlsPeer]:
    """An upstream that answers."""
    with TlsPeer(certificate.openssl_context(), answer_all(_answer)) as answering:
        yield answering


def test_the_series_of_one_that_goes_vanish_and_those_of_the_others_go_on(
    started: Started, peer: TlsPeer
) -> None:
    forwarder = started(peer, "127.0.0.1:0", "127.0.0.2:0")
    stays, goes = forwarder.bound
    for address in (stays, goes):
        assert ask_udp(address, QUERY) == ask_tcp(address, QUERY) == _answer(QUERY)
    forwarder.reload("127.0.0.3:0", "127.0.0.1:0")
    added, still = forwarder.bound
    assert still == stays
    seen = forwarder.scrape()
    assert seen.by("listener", "nxdns_udp_received_total") == {str(added): 0, str(stays): 1}
    assert seen.by("listener", "nxdns_tcp_messages_total") == {str(added): 0, str(stays): 1}
    assert ask_udp(added, QUERY) == ask_tcp(added, QUERY) == _answer(QUERY)
    assert not forwarder.problems


def test_one_that_cannot_be_had_is_a_problem_of_the_reload_until_it_can_be_had(
    started: Started,
    peer: TlsPeer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listening, "RETRY_SECONDS", 0.001)
    forwarder = started(peer, "127.0.0.1:0")
    with keeping("udp", "127.0.0.2") as keeper:
        taken = f"127.0.0.2:{keeper.port}"
        forwarder.reload("127.0.0.3:0", taken)
        problem = f"cannot listen on {taken}: the port is in use by dnsmasq (pid {keeper.pid})"
        assert forwarder.problems == (problem,)
        assert f"reload: {problem}" in caplog.messages
        assert [each.host for each in forwarder.bound] == ["127.0.0.3"], "the rest applies"
        seen = forwarder.app.surface.overview()
        assert [each.address for each in seen.missing_listeners] == [taken]
        assert seen.missing_listeners[0].reason in problem
        assert forwarder.scrape().value("nxdns_listeners_missing") == 1
    eventually(lambda: len(forwarder.bound) == 2)
    assert not forwarder.problems
    assert forwarder.scrape().value("nxdns_listeners_missing") == 0
    assert f"listening on {taken}" in caplog.messages


def test_while_none_can_be_had_the_household_keeps_its_dns(started: Started, peer: TlsPeer) -> None:
    forwarder = started(peer, "127.0.0.1:0")
    [old] = forwarder.bound
    forwarder.reload("192.0.2.1:53")
    assert forwarder.bound == [old]
    assert forwarder.problems == (
        "cannot listen on 192.0.2.1:53: this machine does not have that address",
        f"still listening on {old}, until what is to take its place can be had",
    )
    assert ask_udp(old, QUERY) == _answer(QUERY)
    forwarder.reload("127.0.0.1:0")
    assert forwarder.bound == [old], "nothing has happened to it"
    assert not forwarder.problems


def test_a_stop_waits_for_queries_of_a_listener_that_has_gone(
    started: Started, certificate: Issued
) -> None:
    asked, gate = Event(), Event()

    def held(session: Session) -> None:
        query = session.read_query()
        asked.set()
        gate.wait()
        session.send_message(_answer(query))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), held) as peer:
        forwarder = started(peer, "127.0.0.1:0", "127.0.0.2:0")
        asking = gevent.spawn(ask_udp, forwarder.bound[1], QUERY)
        assert asked.wait(10)
        forwarder.reload("127.0.0.1:0")
        assert forwarder.app.in_flight == 1
        stopping = gevent.spawn(forwarder.app.stop)
        gevent.idle()
        gate.set()
        assert asking.get(timeout=10) == _answer(QUERY)
        stopping.get(timeout=10)


def test_a_file_with_a_mistake_changes_no_listener(started: Started, peer: TlsPeer) -> None:
    forwarder = started(peer, "127.0.0.1:0")
    before = forwarder.bound
    forwarder.app.reload(lambda: load(Path("/nowhere/nxdns.toml")))
    assert forwarder.bound == before
    assert not forwarder.app.reloads.snapshot().last_ok
