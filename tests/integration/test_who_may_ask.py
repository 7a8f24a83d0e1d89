"""[server] allow in a whole forwarder, whose clients ask from several loopback addresses."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import pytest
from gevent import socket

from nxdns.app import App
from nxdns.config import load
from nxdns.web.advice import advise
from nxdns.web.metrics import Metrics
from tests.support.as_it_was import logging_as_it_was
from tests.support.fake_clients import TcpAsker
from tests.support.forwarder import address_of
from tests.support.full_overview import NO_TROUBLE
from tests.support.leaks import greenlets_alive, no_descriptor_left
from tests.support.messages import make_query
from tests.support.process import config_file
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

# Nobody is there: an answer, if there is one, is SERVFAIL.
_UPSTREAM = 'url = "tls://127.0.0.1:1"'
_FRIEND, _STRANGER = "127.0.0.21", "127.0.0.31"


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A reload sets the level of the log."""
    with logging_as_it_was():
        yield


@contextmanager
def started(
    folder: Path, *, listen: str = "127.0.0.1:0", allow: Sequence[str] = ()
) -> Iterator[App]:
    app = App(load(write(folder, listen=listen, allow=allow)))
    app.start()
    try:
        yield app
    finally:
        app.stop()


def write(folder: Path, *, listen: str = "127.0.0.1:0", allow: Sequence[str] = ()) -> Path:
    allowed = f"allow = {json.dumps(list(allow))}\n" if allow else ""
    return config_file(folder, _UPSTREAM, extra=f'[server]\nlisten = ["{listen}"]\n{allowed}')


def udp_from(app: App, host: str) -> Any:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(10)
    sock.bind((host, 0))
    sock.connect(("127.0.0.1", address_of(app).port))
    return sock


def tcp_from(app: App, host: str) -> TcpAsker:
    address = ("127.0.0.1", address_of(app).port)
    return TcpAsker(socket.create_connection(address, source_address=(host, 0)))


def is_answered(app: App, host: str) -> bool:
    """Whether a query from ``host`` is; over UDP, and over TCP alike."""
    stats = app.listeners[0].udp.stats
    refused = stats.dropped_not_allowed
    with udp_from(app, host) as udp, tcp_from(app, host) as tcp:
        udp.send(make_query())
        eventually(lambda: stats.dropped_not_allowed > refused or has_answer(udp))
        over_udp = stats.dropped_not_allowed == refused
        try:
            tcp.send(make_query())
            reply = tcp.reply()
        except (EOFError, OSError):
            assert not over_udp
        else:
            assert over_udp
            assert dns.message.from_wire(reply).rcode() == dns.rcode.SERVFAIL
    return over_udp


def has_answer(sock: Any) -> bool:
    sock.settimeout(0)
    try:
        return bool(sock.recv(512))
    except BlockingIOError:
        return False


def test_who_is_not_in_the_list_is_dropped_or_closed_and_counted(tmp_path: Path) -> None:
    with started(tmp_path, allow=["127.0.0.16/28"]) as app:
        listener = app.listeners[0]
        assert is_answered(app, _FRIEND)
        assert not is_answered(app, "127.0.0.32")
        assert not is_answered(app, "127.0.0.1")
        with udp_from(app, _FRIEND) as udp:
            udp.send(b"short")
            eventually(lambda: listener.udp.stats.dropped_handler == 1)
        assert (listener.udp.stats.received, listener.udp.stats.dropped_not_allowed) == (4, 2)
        assert (listener.tcp.stats.accepted, listener.tcp.stats.rejected_not_allowed) == (1, 2)
        assert listener.tcp.stats.messages == 1


def test_nothing_that_a_stranger_sends_is_looked_at(tmp_path: Path) -> None:
    with started(tmp_path, allow=[_FRIEND]) as app:
        stats = app.listeners[0].udp.stats
        with udp_from(app, _STRANGER) as udp, tcp_from(app, _STRANGER) as tcp:
            for datagram in (b"", b"x", bytes(5000), make_query(), make_query()):
                udp.send(datagram)
            eventually(lambda: stats.dropped_not_allowed == 5)
            assert tcp.wait_for_close() == b""
        assert stats.dropped_oversize == stats.dropped_duplicate == stats.dropped_handler == 0
        assert app.listeners[0].tcp.stats.active == 0


def test_strangers_cannot_take_the_places_of_others(tmp_path: Path) -> None:
    with started(tmp_path, allow=[_FRIEND]) as app:
        tcp = app.listeners[0].tcp
        strangers = [tcp_from(app, _STRANGER) for _ in range(tcp.capacity + 1)]
        assert is_answered(app, _FRIEND)
        for stranger in strangers:
            assert stranger.wait_for_close() == b""
            stranger.sock.close()
        assert tcp.stats.rejected_at_capacity == 0


def test_a_reload_changes_who_may_ask_and_drops_no_connection(tmp_path: Path) -> None:
    with started(tmp_path, allow=[_FRIEND]) as app, tcp_from(app, _FRIEND) as before:
        before.ask(make_query())
        assert [is_answered(app, host) for host in (_FRIEND, _STRANGER)] == [True, False]
        app.reload(lambda: load(write(tmp_path, allow=[_STRANGER])))
        assert app.reloads.snapshot().problems == ()
        assert [is_answered(app, host) for host in (_FRIEND, _STRANGER)] == [False, True]
        assert before.ask(make_query()), "it is served to its end"
        app.reload(lambda: load(write(tmp_path)))
        assert [is_answered(app, host) for host in (_FRIEND, _STRANGER)] == [True, True]


def test_a_file_with_a_wrong_prefix_changes_nothing(tmp_path: Path) -> None:
    with started(tmp_path, allow=[_FRIEND]) as app:
        app.reload(lambda: load(write(tmp_path, allow=[_STRANGER, "10.0.0.1/8"])))
        [problem] = app.reloads.snapshot().problems
        assert "server.allow: '10.0.0.1/8'" in problem
        assert [is_answered(app, host) for host in (_FRIEND, _STRANGER)] == [True, False]


def test_many_strangers_are_one_line_and_a_note_and_never_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with started(tmp_path, allow=[_FRIEND]) as app:
        listener = app.listeners[0]
        for number in range(40):
            with udp_from(app, f"127.0.9.{number}") as udp:
                udp.send(make_query("hushed.example"))
        eventually(lambda: listener.udp.stats.dropped_not_allowed == 40)
        for _ in range(3):
            with tcp_from(app, "127.0.9.1") as tcp:
                tcp.wait_for_close()
        seen = app.surface.overview()
        metrics = Metrics(app.surface, lambda: NO_TROUBLE).exposition("")[0].decode()
    [note] = [note for note in advise(seen, {}) if note.key.startswith("not-allowed")]
    assert note.severity == "warning"
    assert note.title.startswith("40 UDP queries and 3 TCP connections to 127.0.0.1:")
    assert "allow under [server]" in note.what_to_do
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [line.split(" 127")[0] for line in lines] == ["udp", "tcp"]
    assert all("[server] allow" in line for line in lines)
    told = json.dumps(asdict(seen)) + metrics + caplog.text + json.dumps(asdict(note))
    for secret in ("127.0.9", "hushed"):
        assert secret not in told


def test_this_machine_may_ask_by_default(tmp_path: Path) -> None:
    with started(tmp_path) as app:
        assert is_answered(app, "127.0.0.1")


@pytest.mark.parametrize(
    ("listen", "allow", "line"),
    [
        pytest.param("127.0.0.1:0", ["private"], None, id="loopback"),
        pytest.param("127.0.0.1:0", ["0.0.0.0/0"], None, id="loopback-for-anybody"),
        pytest.param(
            "0.0.0.0:0", ["private"], "INFO 0.0.0.0:PORT may be reached from beyond", id="wildcard"
        ),
        pytest.param(
            "[::]:0", ["private"], "INFO [::]:PORT may be reached from beyond", id="wildcard-v6"
        ),
        pytest.param(
            "0.0.0.0:0",
            ["private", "::/0"],
            "WARNING 0.0.0.0:PORT may be reached from the internet",
            id="anybody",
        ),
    ],
)
def test_at_the_start_a_listener_that_others_can_reach_is_named(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    listen: str,
    allow: list[str],
    line: str | None,
) -> None:
    caplog.set_level(logging.INFO)
    with started(tmp_path, listen=listen, allow=allow) as app:
        port = address_of(app).port
    told = [f"{r.levelname} {r.getMessage()}" for r in caplog.records if "reached" in r.msg]
    if line is None:
        assert told == []
    else:
        [only] = told
        assert only.startswith(line.replace("PORT", str(port)))


def test_a_reload_that_lets_anybody_ask_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with started(tmp_path, listen="0.0.0.0:0", allow=["private"]) as app:
        caplog.clear()
        app.reload(lambda: load(write(tmp_path, listen="0.0.0.0:0", allow=["0.0.0.0/0"])))
        assert any("lets anybody ask" in record.getMessage() for record in caplog.records)


def test_without_netlink_there_is_a_line_and_private_addresses_may_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    with started(tmp_path) as app:
        assert is_answered(app, "127.0.0.1")
    [line] = [r.getMessage() for r in caplog.records if "prefixes of our interfaces" in r.msg]
    assert "Address family not supported" in line


def test_who_does_not_need_netlink_is_not_told_of_its_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    with started(tmp_path, allow=["private"]) as app:
        assert is_answered(app, "127.0.0.1")
        assert not [r for r in caplog.records if "prefixes of our interfaces" in r.msg]
        app.reload(lambda: load(write(tmp_path)))
        assert [r for r in caplog.records if "prefixes of our interfaces" in r.msg]


def test_a_stop_leaves_nothing_of_it_behind(tmp_path: Path) -> None:
    before = greenlets_alive()
    with no_descriptor_left(), started(tmp_path) as app, udp_from(app, _STRANGER) as udp:
        udp.send(b"")
        eventually(lambda: app.listeners[0].udp.stats.received == 1)
    assert greenlets_alive() <= before
