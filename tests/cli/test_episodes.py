"""``nxdns episodes``: from the store, else from the nxdns that runs, else one line."""

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.pywsgi import WSGIServer
from hypothesis import given
from hypothesis import strategies as st

from nxdns.cli import episodes as verb
from nxdns.cli import main
from nxdns.cli.episodes import table
from nxdns.storage.database import Episode
from nxdns.storage.events import EventStore
from tests.cli.ports import refusing_tcp
from tests.support.process import LAUNCHER, ROOT, config_file, run
from tests.support.waiting import eventually

_UPSTREAM = 'url = "tls://127.0.0.1:1"'
_CODE = "upstream_exchange"
_NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z
_RECORD = {
    "seconds_ago": 0.5,
    "slot": 0,
    "session_seconds": 12.25,
    "reused": True,
    "phase_seconds": [0.0, 0.0, 0.0, 0.001, 2.0, 0.0],
    "ended_in": "first_byte",
    "outcome": "Timeout (cause Timeout)",
    "failed": True,
}
_PHASES = {"queue": 0.0, "dial": 0.0, "tls": 0.0, "send": 0.001, "first_byte": 2.0, "rest": 0.0}

Told = Callable[..., tuple[int, str, str]]


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self) -> None:
        self.now = _NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Status, stdout and stderr of the verb, in this process."""

    def tell(*arguments: object) -> tuple[int, str, str]:
        status = main(["episodes", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return tell


@pytest.fixture(autouse=True)
def no_store_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemd's state directories are to the verb, unless told otherwise: one, not there."""
    folder = tmp_path / "var" / "lib" / "nxdns"
    monkeypatch.setattr(verb, "_STATE_DIRECTORIES", (folder,))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    return folder


@contextmanager
def _store(path: Path) -> Iterator[tuple[EventStore, Clock]]:
    """A store that is in use, as that of a running nxdns is."""
    clock = Clock()
    store = EventStore(str(path), clock)
    store.load()
    try:
        yield store, clock
    finally:
        store.close()


def _report(store: EventStore, subject: str, flight: str = "") -> None:
    detail = f"upstream '{subject}' failed: SendFailed (cause BrokenPipe)"
    store.report(_CODE, subject, detail, lambda: flight)


def _fill(path: Path) -> None:
    """One that is resolved, and one that is open and has come twice; the file is closed."""
    with _store(path) as (store, clock):
        _report(store, "one")
        clock.now += 90
        store.resolve(_CODE, "one")
        _report(store, "other", json.dumps([_RECORD]))
        clock.now += 1
        _report(store, "other")


def _configured(tmp_path: Path, path: Path | None, web: str = "") -> Path:
    storage = f'[storage]\npath = "{path}"\n' if path else ""
    return config_file(tmp_path, _UPSTREAM, extra=f'{storage}[web]\nlisten = "{web}"\n')


def test_the_open_ones_come_first_in_a_line_each(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "events.db"
    _fill(path)
    status, out, err = told("--config", _configured(tmp_path, path))
    assert (status, err) == (0, "")
    header, first, second, last = out.splitlines()
    assert header.split() == ["STATE", "OPENED", "LASTED", "TIMES", "WHAT"]
    assert first.split()[:2] == ["open", "2026-11-30T12:01:30Z"]
    assert first.endswith("     2  upstream 'other' failed: SendFailed (cause BrokenPipe)")
    assert second == (
        "resolved  2026-11-30T12:00:00Z   1m 30s      1"
        "  upstream 'one' failed: SendFailed (cause BrokenPipe)"
    )
    assert last == f"1 open, 1 resolved; from {path}"


def test_in_json_they_are_as_the_api_has_them_with_their_flight_records(
    tmp_path: Path, told: Told
) -> None:
    path = tmp_path / "events.db"
    _fill(path)
    status, out, err = told("--json", "--config", _configured(tmp_path, path))
    assert (status, err) == (0, "")
    first, second = json.loads(out)["episodes"]
    assert first == {
        "code": _CODE,
        "subject": "other",
        "detail": "upstream 'other' failed: SendFailed (cause BrokenPipe)",
        "opened_at": "2026-11-30T12:01:30.000Z",
        "last_seen": "2026-11-30T12:01:31.000Z",
        "resolved_at": None,
        "occurrences": 2,
        "flight": [{**_RECORD, "phase_seconds": _PHASES}],
    }
    assert (second["resolved_at"], second["flight"]) == ("2026-11-30T12:01:30.000Z", [])


def test_a_store_in_use_is_read_as_it_is_now_and_left_as_it_was(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "events.db"
    file = _configured(tmp_path, path)
    with _store(path) as (store, clock):
        _report(store, "one")
        eventually(lambda: told("--config", file)[0] == 0)
        eventually(lambda: "1 open, 0 resolved" in told("--config", file)[1])
        clock.now += 2
        store.resolve(_CODE, "one")
        eventually(lambda: "0 open, 1 resolved" in told("--config", file)[1])
        _report(store, "two")
        eventually(lambda: "1 open, 1 resolved" in told("--config", file)[1])
        assert store.write_failures == 0


def test_reading_leaves_nothing_beside_a_store_that_nobody_uses(tmp_path: Path, told: Told) -> None:
    folder = tmp_path / "state"
    _fill(folder / "events.db")
    assert os.listdir(folder) == ["events.db"]
    assert told("--config", _configured(tmp_path, folder / "events.db"))[0] == 0
    assert os.listdir(folder) == ["events.db"]


def test_a_store_whose_process_was_killed_is_read_with_what_it_wrote_last(
    tmp_path: Path, told: Told
) -> None:
    live, left = tmp_path / "live", tmp_path / "left"
    file = _configured(tmp_path, left / "events.db")
    with _store(live / "events.db") as (store, _):
        _report(store, "one")

        def copied() -> str:
            # What is on the disk at this moment is what a SIGKILL leaves.
            shutil.rmtree(left, ignore_errors=True)
            shutil.copytree(live, left)
            return told("--config", file)[1]

        eventually(lambda: (live / "events.db-wal").exists() and "1 open" in copied())


@pytest.mark.parametrize("where", ["STATE_DIRECTORY", "/var/lib"])
def test_without_a_configured_path_the_store_is_the_one_of_the_service(
    where: str,
    tmp_path: Path,
    told: Told,
    no_store_of_this_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = no_store_of_this_machine
    if where == "STATE_DIRECTORY":
        folder = tmp_path / "state"
        monkeypatch.setenv("STATE_DIRECTORY", str(folder))
    _fill(folder / "events.db")
    status, out, _ = told("--config", _configured(tmp_path, None))
    assert status == 0
    assert out.endswith(f"1 open, 1 resolved; from {folder}/events.db\n")


def test_a_configured_path_is_the_only_store_that_is_looked_at(
    tmp_path: Path, told: Told, no_store_of_this_machine: Path
) -> None:
    _fill(no_store_of_this_machine / "events.db")
    configured = tmp_path / "elsewhere.db"
    status, out, err = told("--config", _configured(tmp_path, configured))
    assert (status, out) == (1, "")
    [line] = err.splitlines()
    assert line == (
        f"nxdns: no episodes to read: {configured}: no such file or directory;"
        " [web] listen is empty"
    )


def test_an_empty_store_is_said_to_be_so(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "events.db"
    _fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM episodes")
    connection.close()
    file = _configured(tmp_path, path)
    assert told("--config", file) == (0, f"0 open, 0 resolved; from {path}\n", "")
    assert json.loads(told("--json", "--config", file)[1]) == {"episodes": []}


_OF_API = {
    "code": _CODE,
    "subject": "far",
    "detail": "upstream 'far' failed: TlsFailed (cause CertificateExpired)",
    "opened_at": "2026-11-30T12:00:00.250Z",
    "last_seen": "2026-11-30T12:00:01+00:00",
    "resolved_at": "2026-11-30T12:00:04.500Z",
    "occurrences": 3,
    "flight": [{**_RECORD, "phase_seconds": _PHASES}],
}


class Web:
    """An HTTP server that answers every request in one way, and keeps what it was asked."""

    def __init__(self, body: bytes, status: str = "200 OK") -> None:
        self._body, self._status = body, status
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Sequence[bytes]:
        names = ("REQUEST_METHOD", "PATH_INFO", "HTTP_HOST")
        method, path, host = (environ[name] for name in names)
        self.asked.append((method, path, host))
        start_response(self._status, [("Content-Type", "application/json")])
        return [self._body]

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address."""
        server = WSGIServer(("127.0.0.1", 0), self, log=None)
        server.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.stop()


@pytest.mark.integration
@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0"])
def test_without_a_store_the_nxdns_that_runs_is_asked(listen: str, tmp_path: Path) -> None:
    web = Web(json.dumps({"episodes": [_OF_API]}).encode())
    with web.serving() as address:
        port = address.rpartition(":")[2]
        file = _configured(tmp_path, tmp_path / "none.db", f"{listen}:{port}")
        shown = run("episodes", "--config", file)
        as_json = run("episodes", "--json", "--config", file)
    assert (shown.status, shown.stderr) == (0, "")
    _, line, last = shown.stdout.splitlines()
    assert line == (
        "resolved  2026-11-30T12:00:00Z    4.2 s      3"
        "  upstream 'far' failed: TlsFailed (cause CertificateExpired)"
    )
    assert last == f"0 open, 1 resolved; from http://{address}/api/diagnostics"
    [episode] = json.loads(as_json.stdout)["episodes"]
    assert episode == {**_OF_API, "last_seen": "2026-11-30T12:00:01.000Z"}
    # The resolver refuses a Host that is neither an address nor a name that it knows.
    assert web.asked == [("GET", "/api/diagnostics", address)] * 2


@pytest.mark.integration
@pytest.mark.parametrize(
    ("web", "reason"),
    [
        pytest.param(Web(b"{}", "404 Not Found"), "it answers 404 Not Found", id="not-found"),
        pytest.param(Web(b"<html>"), "its answer is not that of nxdns", id="no-json"),
        pytest.param(Web(b'{"a": 1}'), "its answer is not that of nxdns", id="other-json"),
        pytest.param(Web(b'{"episodes": [[]]}'), "its answer is not that of nxdns", id="no-object"),
        pytest.param(
            Web(json.dumps({"episodes": [{**_OF_API, "opened_at": "noon"}]}).encode()),
            "its answer is not that of nxdns",
            id="no-time",
        ),
    ],
)
def test_whoever_else_answers_at_the_web_address_is_one_line_on_stderr(
    web: Web, reason: str, tmp_path: Path
) -> None:
    with web.serving() as address:
        file = _configured(tmp_path, tmp_path / "none.db", address)
        ended = run("episodes", "--config", file)
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.errors == [
        f"nxdns: no episodes to read: {tmp_path}/none.db: no such file or directory;"
        f" http://{address}/api/diagnostics: {reason}"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"no database at all" * 100, "file is not a database", id="damaged"),
        pytest.param(b"", "no such table: episodes", id="empty"),
    ],
)
def test_without_a_store_that_can_be_read_and_without_a_server_it_says_why_in_a_line(
    content: bytes, reason: str, tmp_path: Path, told: Told
) -> None:
    path = tmp_path / "events.db"
    path.write_bytes(content)
    with refusing_tcp() as port:
        status, out, err = told("--config", _configured(tmp_path, path, f"127.0.0.1:{port}"))
    assert (status, out) == (1, "")
    assert err == (
        f"nxdns: no episodes to read: {path}: {reason};"
        f" http://127.0.0.1:{port}/api/diagnostics: connection refused\n"
    )
    assert path.read_bytes() == content  # nobody but the service puts it away


def test_a_server_whose_port_the_kernel_chose_cannot_be_asked(tmp_path: Path, told: Told) -> None:
    status, _, err = told("--config", _configured(tmp_path, tmp_path / "none.db", "127.0.0.1:0"))
    assert status == 1
    assert err.endswith("; [web] listen has port 0, which may be any\n")


@pytest.mark.integration
def test_on_a_terminal_no_line_is_wider_than_it(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    _fill(path)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, *LAUNCHER, "episodes", "--config", str(_configured(tmp_path, path))],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
    )
    os.close(theirs)
    with gevent.Timeout(20):
        assert process.wait() == 0
    lines = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    rows = lines[:-1]  # the last names the file, however long that is
    assert max(map(len, rows)) <= 80
    assert rows[1].endswith("  upstream 'other' failed:")
    assert rows[2] == " " * 48 + "SendFailed (cause BrokenPipe)"


_EPISODES = st.builds(
    Episode,
    code=st.just(_CODE),
    subject=st.text(max_size=64),
    detail=st.text(max_size=200),
    opened_at=st.floats(0, 4e9),
    last_seen=st.floats(0, 4e9),
    resolved_at=st.none() | st.floats(0, 4e9),
    occurrences=st.integers(1, 99_999),
    flight=st.just(""),
)


@given(st.lists(_EPISODES, max_size=4), st.integers(68, 200))
def test_any_episode_fits_and_nothing_in_it_reaches_the_terminal_as_a_command(
    episodes: list[Episode], columns: int
) -> None:
    for line in table(episodes, _NOON, columns):
        assert len(line) <= columns
        assert line.isprintable()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1.0, "0.0 s"),
        (4.25, "4.2 s"),
        (59.94, "59.9 s"),
        (59.97, "1m 00s"),
        (133.0, "2m 13s"),
        (3599.4, "59m 59s"),
        (3 * 3600 + 300, "3h 05m"),
        (86_400.0, "1d 0h"),
        (90 * 86_400.0, "90d 0h"),
        (20_787 * 86_400.0, "20787d"),
    ],
)
def test_a_duration_has_the_units_that_matter(seconds: float, shown: str) -> None:
    episode = Episode(_CODE, "one", "it", _NOON, _NOON, _NOON + seconds, 1, "")
    [_, line] = table([episode], _NOON, None)
    assert line == f"resolved  2026-11-30T12:00:00Z  {shown:>7}      1  it"
