"""An outage, and more clients than can be answered at once, who ask again and again."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import Timeout, socket

from nxdns.app import App
from tests.support.authority import NAME, Authority, Issued
from tests.support.fake_clients import accounted, arrived
from tests.support.forwarder import address_of, running
from tests.support.line import Line
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

_CLIENTS = 300  # more than the 256 that are answered at once
_PATIENCE_SECONDS = 0.3  # of a client, before it asks again
_BUDGETS = "[budgets]\nattempt_ms = 1000\ntotal_ms = 2000\n"
_NOERROR, _SERVFAIL = 0, 2


class Clients:
    """They ask until they are told to stop, each a new name once it has been answered."""

    def __init__(self, app: App) -> None:
        self._address = address_of(app)
        #: The RCODEs that each has heard, None for each time that it heard nothing.
        self.heard: list[list[int | None]] = [[] for _ in range(_CLIENTS)]
        self._asking = [gevent.spawn(self._ask, number) for number in range(_CLIENTS)]

    def _ask(self, number: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((self._address.host, self._address.port))
            while True:
                turn = len(self.heard[number])
                query = make_query(f"turn{turn}.client{number}.example", id_=turn)
                for _ in range(2):  # as stub resolvers do: the same again
                    sock.send(query)
                    rcode = _rcode(sock, query)
                    if rcode is not None:
                        break
                self.heard[number].append(rcode)
                gevent.sleep(0.02)

    def each(self, fact: Callable[[list[int | None]], object]) -> bool:
        """Whether it is so of what each has heard."""
        return all(fact(heard) for heard in self.heard)

    def forget(self) -> None:
        for heard in self.heard:
            heard.clear()

    def stop(self) -> None:
        gevent.killall(self._asking)


def _rcode(sock: Any, query: bytes) -> int | None:
    with Timeout(_PATIENCE_SECONDS, False):
        while True:
            reply: bytes = sock.recv(4096)
            if reply[:2] == query[:2]:
                return reply[3] & 0x0F
    return None


@contextmanager
def household(
    folder: Path, authority: Authority, certificate: Issued
) -> Iterator[tuple[Line, App]]:
    answer = answer_all(lambda query: make_response(query, "192.0.2.1"))
    with (
        TlsPeer(certificate.openssl_context(), answer) as peer,
        Line(peer.port) as line,
        running(
            folder,
            authority.ca_file,
            [f'url = "tls://127.0.0.1:{line.port}"\ntls_name = "{NAME}"\nname = "home"'],
            _BUDGETS,
        ) as app,
    ):
        yield line, app


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(Line.refuse, id="refused"),
        pytest.param(lambda line: line.swallow(forget=False), id="swallowed"),
        pytest.param(lambda line: line.swallow(forget=True), id="sessions-forgotten"),
    ],
)
def test_a_storm_behind_an_outage_is_counted_and_over_within_a_second_of_its_end(
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
    caplog: pytest.LogCaptureFixture,
    fail: Callable[[Line], None],
) -> None:
    caplog.set_level(logging.INFO)
    with household(tmp_path, authority, certificate) as (line, app):
        listener = app.listeners[0]
        stats = listener.udp.stats
        clients = Clients(app)
        eventually(lambda: clients.each(lambda heard: _NOERROR in heard), seconds=30)
        fail(line)
        eventually(lambda: app.snapshot()[0].tripped, seconds=30)
        clients.forget()
        eventually(lambda: clients.each(lambda heard: len(heard) >= 2), seconds=60)
        assert clients.each(lambda heard: _NOERROR not in heard)

        clients.forget()
        line.mend()
        mended = time.monotonic()
        eventually(lambda: any(_NOERROR in heard for heard in clients.heard))
        took = time.monotonic() - mended
        eventually(lambda: clients.each(lambda heard: _NOERROR in heard), seconds=30)
        assert took < 1.0
        # And so it stays: only that there are more than fit at once can still cost an answer.
        clients.forget()
        eventually(lambda: clients.each(lambda heard: len(heard) >= 2), seconds=30)
        assert clients.each(lambda heard: _SERVFAIL not in heard)
        clients.stop()

        eventually(lambda: app.in_flight == 0)
        assert not listener.udp._datagrams._answering
        assert not app.snapshot()[0].tripped
        assert arrived(listener.udp, listener.tcp) == accounted(
            app.handler, listener.udp, listener.tcp
        )
        listener.udp._datagrams._rarely._end("no slot")  # its minute is over
        dropped = stats.dropped_no_slot
    lines = [record.getMessage() for record in caplog.records]
    of_drops = [line for line in lines if "dropped" in line]
    assert len(of_drops) == 2
    assert of_drops[1].endswith(f"({dropped - 1} more times)")
    # The others say what has become of the upstream, never what has become of a query.
    assert {line for line in lines if line.startswith("upstream 'home' ")} == {*lines} - {*of_drops}


def test_what_does_not_fit_is_dropped_at_once_and_asked_again(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with household(tmp_path, authority, certificate) as (line, app):
        listener = app.listeners[0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(20)
            sock.connect(("127.0.0.1", address_of(app).port))
            line.swallow(forget=False)
            for number in range(_CLIENTS):
                sock.send(make_query(id_=number))
            eventually(lambda: listener.udp.stats.received == _CLIENTS)
            assert listener.udp.stats.dropped_no_slot == _CLIENTS - listener.udp.capacity
            line.mend()
            heard = {sock.recv(512)[:2] for _ in range(listener.udp.capacity)}
            assert len(heard) == listener.udp.capacity
            sock.send(make_query(id_=_CLIENTS - 1))
            assert sock.recv(512)[3] & 0x0F == _NOERROR
