"""A generation follows another: what is the same upstream goes on as it was."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from nxdns.config import Config, load
from nxdns.owner import Owner
from nxdns.upstream.entry import Entry
from nxdns.upstreams import StartError, Upstreams
from tests.support.authority import NAME, Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import ManualClock
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = pytest.mark.integration

QUERY = make_query(id_=4711)


def respond(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


class Files:
    """Configurations, one after another."""

    def __init__(self, folder: Path, ca_file: str) -> None:
        self._file = folder / "nxdns.toml"
        self._ca_file = ca_file

    def config(self, *upstreams: str, rest: str = "") -> Config:
        tables = "".join(f"[[upstreams]]\n{body}\n" for body in upstreams)
        self._file.write_text(f'{tables}\n[tls]\nca_file = "{self._ca_file}"\n{rest}')
        return load(self._file)


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority.ca_file)


def upstream(port: int, *lines: str) -> str:
    return "\n".join([f'url = "tls://127.0.0.1:{port}"', f'tls_name = "{NAME}"', *lines])


@contextmanager
def closing_all(generations: Sequence[Upstreams]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in generations:
            each.close()


def only(generation: Upstreams) -> Entry:
    [entry] = generation.pool.entries
    return entry


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param([], id="nothing"),
        pytest.param(['name = "new"'], id="name"),
        pytest.param(["priority = 7"], id="priority"),
        pytest.param(["enabled = false"], id="disabled"),
    ],
)
def test_an_upstream_of_the_same_identity_goes_on_with_all_that_is_known_of_it(
    files: Files, certificate: Issued, changed: list[str]
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(respond)) as peer:
        other = upstream(1, 'name = "other"')
        old = Upstreams.build(files.config(upstream(peer.port), other))
        exchanged(old.pool, QUERY)
        new = Upstreams.build(files.config(upstream(peer.port, *changed), other), before=old)
        with closing_all([old, new]):
            port = peer.port
            [before] = [e for e in old.pool.entries if e.endpoint.port == port]
            [after] = [e for e in new.pool.entries if e.endpoint.port == port]
            assert after is not before
            assert after.history is before.history
            assert after.health is before.health
            assert after.slots.queue is before.slots.queue is after.history.queue
            assert after.health.total_successes == 1
            seen = new.pool.snapshot(0.0)[new.pool.entries.index(after)]
            assert (seen.successes_total, seen.dials_total) == (1, 1)
            assert sum(seen.exchange_seconds.counts) == 1
            assert seen.rcodes == {"NOERROR": 1}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param('url = "tls://127.0.0.1:854"\ntls_name = "a.test"', id="port"),
        pytest.param('url = "tls://127.0.0.2:853"\ntls_name = "a.test"', id="host"),
        pytest.param('url = "tls://127.0.0.1:853"\ntls_name = "b.test"', id="tls-name"),
        pytest.param('url = "https://127.0.0.1:853"\ntls_name = "a.test"', id="scheme"),
    ],
)
def test_another_identity_starts_at_zero(files: Files, changed: str) -> None:
    old = Upstreams.build(files.config('url = "tls://127.0.0.1:853"\ntls_name = "a.test"'))
    only(old).history.applied_revision = 7
    new = Upstreams.build(files.config(changed), before=old)
    with closing_all([old, new]):
        assert only(new).history is not only(old).history
        assert only(new).history.applied_revision == 0


def test_one_that_comes_back_after_a_generation_without_it_starts_at_zero(files: Files) -> None:
    a, b = 'url = "tls://127.0.0.1"', 'url = "tls://127.0.0.2"'
    first = Upstreams.build(files.config(a, b))
    second = Upstreams.build(files.config(b), before=first)
    third = Upstreams.build(files.config(a, b), before=second)
    with closing_all([first, second, third]):
        assert third.pool.entries[0].history is not first.pool.entries[0].history
        assert third.pool.entries[1].history is first.pool.entries[1].history


def test_one_that_could_not_be_built_for_once_goes_on_as_it_was(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For once: its kind of TLS context could not load its trust anchors, say."""
    a, b = 'url = "tls://127.0.0.1"', 'url = "https://127.0.0.2"'
    first = Upstreams.build(files.config(a, b))
    with monkeypatch.context() as broken:

        def refuse(_: object) -> None:
            raise OSError(5, "Input/output error")

        broken.setattr("nxdns.platform.tls_client.client_context", refuse)
        second = Upstreams.build(files.config(a, b), before=first)
        with pytest.raises(StartError, match="cannot be built"):
            Upstreams.build(files.config(a), before=first)
    third = Upstreams.build(files.config(a, b), before=second)
    with closing_all([first, second, third]):
        assert [entry.label for entry in second.pool.entries] == ["https://127.0.0.2/dns-query"]
        assert third.pool.entries[0].history is first.pool.entries[0].history


def test_an_exchange_in_flight_in_the_old_generation_counts_for_the_new_one(
    files: Files, certificate: Issued
) -> None:
    asked, go = Event(), Event()

    def script(session: Session) -> None:
        query = session.read_query()
        asked.set()
        go.wait()
        session.send_message(respond(query))
        session.wait_for_end()

    retired: list[object] = []
    with TlsPeer(certificate.openssl_context(), script) as peer:
        config = files.config(upstream(peer.port))
        old = Upstreams.build(config)
        owner = Owner(old, ManualClock(), retired.append)
        asking = gevent.spawn(exchanged, owner, QUERY)
        asked.wait()
        new = Upstreams.build(config, before=old)
        owner.replace(new)
        with closing_all([old, new]):
            [before] = new.pool.snapshot(0.0)
            go.set()
            assert asking.get() == respond(QUERY)
            [after] = new.pool.snapshot(0.0)
            assert retired == [new.pool]
            assert (before.successes_total, after.successes_total) == (0, 1)
            assert sum(after.exchange_seconds.counts) == 1
            assert after.open_sessions == 0, "its session was the old generation's"
            assert len(new.pool.flight(0)) == 1


def test_sessions_are_dialled_anew_and_no_counter_falls(files: Files, certificate: Issued) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(respond)) as peer:
        config = files.config(upstream(peer.port))
        old = Upstreams.build(config)
        owner = Owner(old, ManualClock(), lambda _: None)
        exchanged(owner, QUERY)
        new = Upstreams.build(config, before=old)
        owner.replace(new)
        with closing_all([new]):
            exchanged(owner, QUERY)
            [seen] = new.pool.snapshot(0.0)
            assert peer.accepts == 2
            assert (seen.successes_total, seen.dials_total, seen.open_sessions) == (2, 2, 1)
