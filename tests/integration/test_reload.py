"""Reloads: what goes on, what begins anew, and what a client sees of it, which is nothing."""

import gc
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import gevent
import pytest
from gevent import socket
from gevent.event import Event
from gevent.pool import Group
from OpenSSL import SSL

from nxdns.app import App
from nxdns.config import load
from nxdns.snapshots import UpstreamSnapshot
from nxdns.upstream.doh_client import DohClient
from nxdns.upstream.dot_client import DotClient
from nxdns.upstreams import Upstreams
from tests.support.as_it_was import logging_as_it_was
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_tcp, ask_udp
from tests.support.http_peer import read_request, reply
from tests.support.messages import make_query, make_response
from tests.support.process import config_file
from tests.support.tls_peer import Script, Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

_LONG_BACKOFF = "[health]\nbase_backoff_ms = 60000\n"


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A reload sets the level of the log."""
    with logging_as_it_was():
        yield


def _answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


class Counted:
    """A script, and how many of its sessions are open."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.open = 0

    def __call__(self, session: Session) -> None:
        self.open += 1
        try:
            self._script(session)
        finally:
            self.open -= 1


def _answer_over_dot(session: Session) -> None:
    while True:
        session.send_message(_answer(session.read_query()))


def _answer_over_doh(session: Session) -> None:
    while True:
        session.send(reply(_answer(read_request(session).body)))


def _hang_up(session: Session) -> None:
    session.read_query()


class Held:
    """A script that answers nothing before its gate opens."""

    def __init__(self) -> None:
        self.asked = Event()
        self.gate = Event()
        self.ended = Event()

    def __call__(self, session: Session) -> None:
        query = session.read_query()
        self.asked.set()
        self.gate.wait()
        session.send_message(_answer(query))
        session.wait_for_end()
        self.ended.set()


class FailsWhenTold(Held):
    """A script that keeps its queries until the gate opens, then hangs up on them."""

    def __call__(self, session: Session) -> None:
        session.read_query()
        self.asked.set()
        self.gate.wait()


def _upstream(peer: TlsPeer, *, scheme: str = "tls", more: str = "") -> str:
    return f'url = "{scheme}://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"\n{more}'


class Forwarder:
    """An App, and the file that it reads again."""

    def __init__(self, folder: Path, ca_file: str, upstreams: Sequence[str], extra: str) -> None:
        self._folder = folder
        self._ca_file = ca_file
        self.app = App(load(self.write(*upstreams, extra=extra)))
        self.app.start()

    @property
    def file(self) -> Path:
        return self._folder / "nxdns.toml"

    def write(self, *upstreams: str, extra: str = "") -> Path:
        return config_file(self._folder, *upstreams, ca_file=self._ca_file, extra=extra)

    def reload(self, *upstreams: str, extra: str = "") -> None:
        """With another file, if there are upstreams for one; it never lets anybody else run."""
        if upstreams:
            self.write(*upstreams, extra=extra)
        others_ran: list[bool] = []
        gevent.spawn(others_ran.append, True)
        self.app.reload(lambda: load(self.file))
        assert not others_ran, "the reload has waited for something"

    def ask(self) -> int:
        """The RCODE of one query over UDP."""
        answer = ask_udp(address_of(self.app), make_query())
        return int(dns.message.from_wire(answer).rcode())

    def only(self) -> UpstreamSnapshot:
        [snapshot] = self.app.snapshot()
        return snapshot


Started = Callable[..., Forwarder]


@pytest.fixture
def started(tmp_path: Path, authority: Authority) -> Iterator[Started]:
    """Starts a forwarder over the upstreams given; it is stopped when the test ends."""
    with ExitStack() as stack:

        def start(*upstreams: str, extra: str = "") -> Forwarder:
            forwarder = Forwarder(tmp_path, authority.ca_file, upstreams, extra)
            stack.callback(forwarder.app.stop)
            return forwarder

        yield start


@contextmanager
def _load(forwarder: Forwarder, clients: int, answers: list[bytes]) -> Iterator[None]:
    """Clients that ask one query after another, over UDP and TCP, and keep what they get."""
    query = make_query()
    stopping = False

    def client(ask: Any) -> None:
        while not stopping:
            answers.append(ask(address_of(forwarder.app), query))

    asking = [gevent.spawn(client, (ask_udp, ask_tcp)[number % 2]) for number in range(clients)]
    yield
    stopping = True
    gevent.joinall(asking, raise_error=True)


def _census() -> dict[str, int]:
    """What could be left behind by a reload."""
    gc.collect()
    kinds = (gevent.Greenlet, Upstreams, DotClient, DohClient, SSL.Context, SSL.Connection)
    objects = gc.get_objects()
    counts = {kind.__name__: sum(isinstance(each, kind) for each in objects) for kind in kinds}
    counts["objects"] = len(objects)
    counts["descriptors"] = len(os.listdir("/proc/self/fd"))
    return counts


@pytest.mark.timeout(180)
def test_two_hundred_reloads_under_load_lose_no_query_and_leave_nothing_behind(
    started: Started, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    dot, other, doh = (
        Counted(each) for each in (_answer_over_dot, _answer_over_dot, _answer_over_doh)
    )
    with TlsPeer(context, dot) as a, TlsPeer(context, other) as b, TlsPeer(context, doh) as c:
        tables = [_upstream(a), _upstream(b), _upstream(c, scheme="https")]
        quiet = '[log]\nlevel = "warning"\n'  # pytest keeps what is logged
        forwarder = started(*tables, extra=quiet)
        answers: list[bytes] = []

        def more_than(number: int) -> bool:
            return len(answers) > number

        def reload_under_load(times: int) -> dict[str, int]:
            with _load(forwarder, 8, answers):
                for number in range(times):
                    # Another one first each time, and each is sometimes not there at all.
                    order = tables[number % 3 :] + tables[: number % 3]
                    forwarder.reload(*order[: 1 + number % 2], extra=quiet)
                    enough = len(answers) + 8
                    eventually(partial(more_than, enough))
            forwarder.reload(*tables, extra=quiet)
            # Of the generation that came last nobody has asked anything.
            eventually(lambda: dot.open + other.open + doh.open == 0)
            gevent.idle()
            return _census()

        before = reload_under_load(20)
        after = reload_under_load(180)
        assert sum(each.open_sessions for each in forwarder.app.snapshot()) == 0
        stats = forwarder.app.handler.stats
        expected = _answer(make_query(id_=0))[2:]
        assert all(answer[2:] == expected for answer in answers)
        assert (stats.queries, stats.servfail, stats.cancelled) == (len(answers), 0, 0)
        assert forwarder.app.reloads.snapshot().ok_total == 202
    grown = after.pop("objects") - before.pop("objects")
    assert after == before
    assert grown < 90, "an object for every other reload, or more"


def test_the_health_and_the_counters_of_an_unchanged_upstream_go_on(
    started: Started, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), _hang_up) as peer:
        forwarder = started(_upstream(peer), extra=_LONG_BACKOFF)
        assert [forwarder.ask() for _ in range(2)] == [dns.rcode.SERVFAIL] * 2
        before = forwarder.only()
        flight = forwarder.app.surface.flight(0)
        forwarder.reload(
            _upstream(peer, more='name = "other"\npriority = 7\n'),
            extra=_LONG_BACKOFF + "[budgets]\nattempt_ms = 1000\n",
        )
        after = forwarder.only()
        assert (before.tripped, before.failures_total) == (True, 2)
        assert after.label == "other"
        for name in (
            *("available", "tripped", "consecutive_failures", "failures_total", "success_rate"),
            *("window", "last_error", "exchange_seconds", "phase_seconds", "dials_total"),
        ):
            assert getattr(after, name) == getattr(before, name), name
        assert after.backoff_until == pytest.approx(before.backoff_until, abs=1)
        assert len(forwarder.app.surface.flight(0)) == len(flight) == 2


def test_another_identity_begins_at_zero(started: Started, certificate: Issued) -> None:
    with TlsPeer(certificate.openssl_context(), _hang_up) as peer:
        forwarder = started(_upstream(peer), extra=_LONG_BACKOFF)
        assert [forwarder.ask() for _ in range(2)] == [dns.rcode.SERVFAIL] * 2
        forwarder.reload(
            f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "127.0.0.1"', extra=_LONG_BACKOFF
        )
        after = forwarder.only()
        assert (after.available, after.failures_total, after.window) == (True, 0, "")
        assert after.exchange_seconds.sum_seconds == 0


def test_what_is_in_flight_is_answered_by_the_generation_that_has_it(
    started: Started, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    held = Held()
    with TlsPeer(context, held) as old, TlsPeer(context, _answer_over_dot) as new:
        forwarder = started(_upstream(old, more='name = "old"\n'))
        asking = gevent.spawn(forwarder.ask)
        assert held.asked.wait(10)
        forwarder.reload(_upstream(new, more='name = "new"\n'))
        assert forwarder.ask() == dns.rcode.NOERROR
        assert new.accepts == 1
        assert not asking.ready()
        held.gate.set()
        assert asking.get(timeout=10) == dns.rcode.NOERROR
        assert held.ended.wait(10), "the session of a generation that nobody needs stays open"
        # It is not asked again, and it is nowhere to be seen.
        assert forwarder.ask() == dns.rcode.NOERROR
        assert (old.accepts, forwarder.only().label) == (1, "new")


def test_what_is_in_flight_still_counts_for_an_upstream_that_goes_on(
    started: Started, certificate: Issued
) -> None:
    held = Held()
    with TlsPeer(certificate.openssl_context(), held) as peer:
        forwarder = started(_upstream(peer))
        asking = gevent.spawn(forwarder.ask)
        assert held.asked.wait(10)
        forwarder.reload()
        held.gate.set()
        assert asking.get(timeout=10) == dns.rcode.NOERROR
        after = forwarder.only()
        assert (after.successes_total, after.window, after.rcodes) == (1, "1", {"NOERROR": 1})


def test_an_upstream_that_stalls_its_handshake_delays_neither_a_reload_nor_who_comes_after_it(
    started: Started, certificate: Issued
) -> None:
    stalling: Any = socket.socket()
    with stalling, TlsPeer(certificate.openssl_context(), _answer_over_dot) as good:
        stalling.bind(("127.0.0.1", 0))
        stalling.listen(128)
        stalled = f'name = "stalled"\nurl = "tls://127.0.0.1:{stalling.getsockname()[1]}"'
        patient = "[budgets]\nattempt_ms = 50000\ntotal_ms = 60000\n"
        forwarder = started(stalled, extra=patient)
        asking = gevent.spawn(forwarder.ask)
        eventually(lambda: forwarder.only().dials_total == 1)
        # Away from it, to it again and away: reload() sees that none of them waits.
        for tables in ([_upstream(good)], [stalled, _upstream(good)], [_upstream(good)]):
            forwarder.reload(*tables, extra=patient)
        assert forwarder.ask() == dns.rcode.NOERROR
        assert not asking.ready()
        asking.kill()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[server\n", "is not TOML", id="no-toml"),
        pytest.param(
            '[log]\nlevel = "loud"\n', ":2: log.level: 'loud': must be one of", id="value"
        ),
        pytest.param("\n", "upstreams: no upstream is enabled", id="empty"),
        pytest.param(None, "cannot be read: No such file or directory", id="gone"),
        pytest.param(
            '[[upstreams]]\nurl = "tls://127.0.0.1:1"\n[tls]\nca_file = "gone.pem"\n',
            ":4: tls.ca_file:",
            id="ca-file",
        ),
    ],
)
def test_a_bad_file_changes_nothing_and_is_told_by_its_line_and_key(
    text: str | None,
    problem: str,
    started: Started,
    certificate: Issued,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with TlsPeer(certificate.openssl_context(), _answer_over_dot) as peer:
        forwarder = started(_upstream(peer))
        assert forwarder.ask() == dns.rcode.NOERROR
        generation = forwarder.app.owner.current
        good = forwarder.file.read_text()
        if text is None:
            forwarder.file.unlink()
        else:
            forwarder.file.write_text(text)
        with caplog.at_level(logging.INFO):
            forwarder.reload()
        told = forwarder.app.reloads.snapshot()
        assert (told.ok_total, told.failed_total, told.last_ok) == (0, 1, False)
        assert any(line.startswith(str(forwarder.file)) for line in told.problems)
        assert any(problem in line for line in told.problems)
        assert [record.message for record in caplog.records] == [
            *(f"reload: {line}" for line in told.problems),
            "reload: failed; going on as before",
        ]
        assert {record.levelname for record in caplog.records} == {"ERROR"}
        # The same sessions, even.
        assert forwarder.app.owner.current is generation
        assert forwarder.ask() == dns.rcode.NOERROR
        assert peer.accepts == 1

        forwarder.file.write_text(good)
        forwarder.reload()
        told = forwarder.app.reloads.snapshot()
        assert (told.ok_total, told.failed_total, told.last_ok, told.problems) == (1, 1, True, ())


def test_a_generation_that_cannot_be_built_counts_as_a_bad_file(
    started: Started, certificate: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TlsPeer(certificate.openssl_context(), _answer_over_dot) as peer:
        forwarder = started(_upstream(peer))

        def no_context(_: object) -> SSL.Context:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr("nxdns.platform.tls_client.client_context", no_context)
        forwarder.reload()
        told = forwarder.app.reloads.snapshot()
        assert (told.failed_total, told.last_ok) == (1, False)
        assert "cannot be built" in told.problems[0]
        assert "Too many open files" in told.problems[0]
        assert forwarder.ask() == dns.rcode.NOERROR


@pytest.mark.parametrize("more", [None, "enabled = false\n"], ids=["removed", "disabled"])
def test_the_episode_of_an_upstream_that_is_no_longer_asked_is_closed(
    more: str | None, started: Started, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with TlsPeer(context, _hang_up) as bad, TlsPeer(context, _answer_over_dot) as good:
        forwarder = started(
            _upstream(bad, more='name = "bad"\npriority = 1\n'),
            _upstream(good),
            extra=_LONG_BACKOFF,
        )
        assert [forwarder.ask() for _ in range(2)] == [dns.rcode.NOERROR] * 2
        [episode] = forwarder.app.store.active()
        assert episode.subject == "bad"
        left = [] if more is None else [_upstream(bad, more=f'name = "bad"\n{more}')]
        forwarder.reload(*left, _upstream(good), extra=_LONG_BACKOFF)
        assert forwarder.app.store.active() == []
        [closed] = forwarder.app.store.recent(10)
        assert (closed.opened_at, closed.occurrences) == (episode.opened_at, 1)


def test_an_episode_that_goes_on_is_neither_closed_nor_counted_again(
    started: Started, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), _hang_up) as bad:
        forwarder = started(_upstream(bad), extra=_LONG_BACKOFF)
        assert [forwarder.ask() for _ in range(2)] == [dns.rcode.SERVFAIL] * 2
        before = forwarder.app.store.active()
        for _ in range(3):
            forwarder.reload()
        assert forwarder.app.store.active() == before
        assert len(before) == 1


def test_a_late_failure_of_an_upstream_that_was_removed_leaves_no_episode_open(
    started: Started, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    late = FailsWhenTold()
    with TlsPeer(context, late) as bad, TlsPeer(context, _answer_over_dot) as good:
        extra = "[health]\nfailure_threshold = 1\n"
        forwarder = started(_upstream(bad, more='name = "bad"\n'), extra=extra)
        asking = gevent.spawn(forwarder.ask)
        assert late.asked.wait(10)
        forwarder.reload(_upstream(good), extra=extra)
        late.gate.set()
        assert asking.get(timeout=10) == dns.rcode.SERVFAIL
        assert forwarder.app.store.active() == []
        [closed] = forwarder.app.store.recent(10)
        assert closed.subject == "bad"  # it did trip, while nobody else was to be asked


def test_what_needs_a_restart_is_told_each_time_and_the_rest_applies(
    started: Started, certificate: Issued, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with TlsPeer(certificate.openssl_context(), _answer_over_dot) as peer:
        forwarder = started(_upstream(peer))
        changed = (
            '[web]\nlisten = "127.0.0.1:0"\n'
            f'[storage]\npath = "{tmp_path}/events.db"\n'
            '[log]\nformat = "json"\n'
        )
        wanting = tuple(
            f"{table} has changed, which needs a restart"
            for table in ("[web]", "[storage]", "[log] format")
        )
        for times in (1, 2):
            caplog.clear()
            forwarder.reload(_upstream(peer, more=f'name = "name {times}"\n'), extra=changed)
            told = forwarder.app.reloads.snapshot()
            assert (told.ok_total, told.last_ok, told.problems) == (times, True, wanting)
            warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
            assert warnings == [f"reload: {line}" for line in wanting]
            assert forwarder.only().label == f"name {times}"
        assert not (tmp_path / "events.db").exists()

        forwarder.reload(_upstream(peer))
        assert forwarder.app.reloads.snapshot().problems == ()


def test_the_level_of_the_log_applies_at_once(started: Started, certificate: Issued) -> None:
    ours = logging.getLogger("nxdns.upstream.pool")
    with TlsPeer(certificate.openssl_context(), _answer_over_dot) as peer:
        forwarder = started(_upstream(peer))
        for level in ("debug", "error", "info"):
            forwarder.reload(_upstream(peer), extra=f'[log]\nlevel = "{level}"\n')
            assert ours.getEffectiveLevel() == getattr(logging, level.upper())


def test_the_budgets_of_a_reload_hold_for_the_next_query(
    started: Started, certificate: Issued
) -> None:
    def silent(session: Session) -> None:
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), silent) as peer:
        forwarder = started(
            _upstream(peer), extra="[budgets]\nattempt_ms = 50000\ntotal_ms = 60000\n"
        )
        forwarder.reload(_upstream(peer), extra="[budgets]\nattempt_ms = 50\ntotal_ms = 150\n")
        assert forwarder.ask() == dns.rcode.SERVFAIL
        assert forwarder.only().last_error == "Timeout (cause Timeout)"


def test_a_stop_waits_for_queries_of_every_generation(
    started: Started, certificate: Issued
) -> None:
    held = Held(), Held(), Held()
    asking = Group()
    with ExitStack() as stack:
        peers = [stack.enter_context(TlsPeer(certificate.openssl_context(), h)) for h in held]
        forwarder = started(_upstream(peers[0]))
        for number, one in enumerate(held):
            if number:
                forwarder.reload(_upstream(peers[number]))
            asking.spawn(forwarder.ask)
            assert one.asked.wait(10)
        answers = list(asking)
        stopping = gevent.spawn(forwarder.app.stop)
        gevent.idle()
        for one in held:
            one.gate.set()
        stopping.get(timeout=10)
        gevent.joinall(answers, timeout=10)
        assert [each.value for each in answers] == [dns.rcode.NOERROR] * 3
        for one in held:
            assert one.ended.wait(10)
