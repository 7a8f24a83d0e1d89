"""A card that takes half a second for each write delays no query."""

import time
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Any

import gevent
import pytest

from nxdns.app import App
from nxdns.storage import events
from nxdns.storage.database import Database
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

WRITE_SECONDS = 0.5
QUERIES = 40


class SlowDatabase(Database):
    """Tells whether a write is under way."""

    writes = 0
    writing = False

    def write(self, *args: Any) -> str:
        SlowDatabase.writes += 1
        SlowDatabase.writing = True
        time.sleep(WRITE_SECONDS)  # noqa: TID251 - in the store's own thread, as a card would
        SlowDatabase.writing = False
        return super().write(*args)


def latencies(app: App, *, while_writing: bool) -> list[int]:
    """Of queries one after another, each begun and ended while a write is under way, or none."""
    taken: list[int] = []
    while len(taken) < QUERIES:
        if while_writing and not SlowDatabase.writing:
            # A change, at once pending; it is written in the background.
            app.store.report("a code", "a subject", "again", str)
            eventually(lambda: SlowDatabase.writing)
        began = monotonic_ns()
        ask_udp(address_of(app), make_query())
        took = monotonic_ns() - began
        if SlowDatabase.writing is while_writing:
            taken.append(took)
    return taken


def test_a_query_takes_as_long_while_the_store_writes_as_when_it_does_not(
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "Database", SlowDatabase)

    def respond(query: bytes) -> bytes:
        gevent.sleep(0.005)
        return make_response(query, "192.0.2.1")

    upstream = f'tls_name = "{NAME}"\nurl = "tls://127.0.0.1:'
    storage = f'[storage]\npath = "{tmp_path}/events.db"\n'
    with TlsPeer(certificate.openssl_context(), answer_all(respond)) as peer:
        body = f'{upstream}{peer.port}"'
        with running(tmp_path, authority.ca_file, [body], storage) as app:
            ask_udp(address_of(app), make_query())  # the dial
            calm = latencies(app, while_writing=False)
            busy = latencies(app, while_writing=True)
            assert SlowDatabase.writes
            # Each would take a hundred times as long if it waited for the write.
            assert median(busy) < 3 * median(calm)
