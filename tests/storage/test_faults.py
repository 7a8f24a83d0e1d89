"""The store of episodes on a card that is full, read-only, damaged, held by another, or slow.

Each failure is latched, counted once, told once, and made good; nobody waits for it.
"""

import _thread
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest

from nxdns.storage import events
from nxdns.storage.database import Database, Episode
from nxdns.storage.events import EventStore
from tests.storage.stores import (
    CODE,
    NOW,
    WallClock,
    locked,
    no_flight,
    open_in,
    resolved_in,
    store_on,
    written,
)
from tests.support.mounts import mounted
from tests.support.waiting import eventually

BIG = "x" * 200_000
"""More than a small card has room for."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries; the minute without any change stays, so that only a call makes good."""
    monkeypatch.setattr(events, "_PAUSE_SECONDS", 0.001)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another process that holds the file."""
    monkeypatch.setattr("nxdns.storage.database._BUSY_SECONDS", 0.01)


@pytest.fixture
def wall() -> WallClock:
    return WallClock()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def counted(store: EventStore, failures: int) -> bool:
    return store.write_failures >= failures


Mend = Callable[[], None]


@contextmanager
def read_only(folder: Path) -> Iterator[tuple[Path, Mend]]:
    """The file is there, and the card cannot be written."""
    with mounted(folder / "card", "1m") as card:
        path = card.folder / "events.db"
        with store_on(path, WallClock()) as store:
            store.report(CODE, "before", "", no_flight)
        card.remount("ro")
        yield path, lambda: card.remount("rw")


@contextmanager
def read_only_after_a_crash(folder: Path) -> Iterator[tuple[Path, Mend]]:
    """So that SQLite can read the file, and opens it for reading alone."""
    with mounted(folder / "card", "1m") as card, ExitStack() as undo:
        path = card.folder / "events.db"
        live = folder / "live.db"
        store = undo.enter_context(store_on(live, WallClock()))
        store.report(CODE, "before", "", no_flight)
        written(store)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{live}{suffix}", f"{path}{suffix}")
        card.remount("ro")
        yield path, lambda: card.remount("rw")


@contextmanager
def full(folder: Path) -> Iterator[tuple[Path, Mend]]:
    with mounted(folder / "card", "256k") as card:
        filler = card.folder / "filler"
        path = card.folder / "events.db"
        with store_on(path, WallClock()) as store:
            store.report(CODE, "before", "", no_flight)
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield path, filler.unlink


@contextmanager
def held(folder: Path) -> Iterator[tuple[Path, Mend]]:
    path = folder / "events.db"
    with store_on(path, WallClock()) as store:
        store.report(CODE, "before", "", no_flight)
    with ExitStack() as undo:
        undo.enter_context(locked(path))
        yield path, undo.close


@contextmanager
def seized(folder: Path) -> Iterator[tuple[Path, Mend]]:
    """Not even to be read."""
    path = folder / "events.db"
    with store_on(path, WallClock()) as store:
        store.report(CODE, "before", "", no_flight)
    with ExitStack() as undo:
        other = undo.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        yield path, undo.close


@contextmanager
def a_folder_in_its_place(folder: Path) -> Iterator[tuple[Path, Mend]]:
    path = folder / "events.db"
    path.mkdir()
    yield path, path.rmdir


@contextmanager
def a_file_for_its_folder(folder: Path) -> Iterator[tuple[Path, Mend]]:
    (folder / "state").write_text("not a folder")
    yield folder / "state" / "events.db", (folder / "state").unlink


FAULTS = pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(read_only, "", id="read-only"),
        pytest.param(read_only_after_a_crash, "", id="read-only-after-a-crash"),
        pytest.param(full, "", id="full"),
        pytest.param(held, "locked", id="locked"),
        pytest.param(seized, "locked", id="seized"),
        pytest.param(a_folder_in_its_place, "unable to open", id="folder"),
        pytest.param(a_file_for_its_folder, "", id="file"),
    ],
)
Fault = Callable[[Path], AbstractContextManager[tuple[Path, Mend]]]


@FAULTS
def test_a_failed_write_is_latched_counted_told_once_and_made_good_by_the_next_call(
    fault: Fault,
    reason: str,
    tmp_path: Path,
    wall: WallClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "nxdns.storage")
    with fault(tmp_path) as (path, mend), store_on(path, wall) as store:
        store.report(CODE, "home", BIG, no_flight)
        store.resolve_except(CODE, {"home"})
        eventually(lambda: store.failing)
        assert reason in store.failing
        assert "\n" not in store.failing
        failures = store.write_failures
        for _ in range(3):
            store.report(CODE, "home", BIG, no_flight)
            failures += 1
            eventually(partial(counted, store, failures))
            gevent.sleep(0.01)  # time for a second count of the same write, which must not come
            assert store.write_failures == failures
        assert store.active()[0].occurrences == 4, "what cannot be written is known all the same"
        assert len(warnings_of(caplog)) == 1
        assert str(path) in warnings_of(caplog)[0]
        assert store.failing in warnings_of(caplog)[0]

        mend()
        store.report(CODE, "home", "down", no_flight)
        written(store)
        assert store.failing == ""
        assert len(warnings_of(caplog)) == 1
        assert "the store of episodes can be written again" in caplog.messages
        assert [(e.subject, e.occurrences) for e in open_in(path)] == [("home", 5)]
        store.resolve(CODE, "home")
        written(store)
        assert "home" in [each.subject for each in resolved_in(path)]


def resolve_again(store: EventStore) -> None:
    assert not store.resolve(CODE, "home")


def reconcile_to_nothing(store: EventStore) -> None:
    store.resolve_except(CODE, ())


@pytest.mark.parametrize("call", [resolve_again, reconcile_to_nothing])
def test_an_end_that_could_not_be_written_is_made_good_by_the_next_success_or_reconciliation(
    tmp_path: Path, wall: WallClock, call: Callable[[EventStore], None]
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
        written(store)
        with locked(path):
            store.resolve(CODE, "home")
            eventually(lambda: store.write_failures == 1)
        assert [each.subject for each in open_in(path)] == ["home"]
        call(store)
        written(store)
        assert open_in(path) == []
        assert [each.subject for each in resolved_in(path)] == ["home"]


def test_asserting_an_open_episode_again_makes_good_what_could_not_be_written(
    tmp_path: Path, wall: WallClock
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        with locked(path):
            store.report(CODE, "home", "down", no_flight)
            eventually(lambda: store.write_failures == 1)
        store.ensure_open(CODE, "home", "down")
        written(store)
        assert [(e.subject, e.occurrences) for e in open_in(path)] == [("home", 1)]


def test_without_any_call_it_is_tried_again_after_a_while(
    tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_RETRY_SECONDS", 0.01)
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        with locked(path):
            store.report(CODE, "home", "down", no_flight)
            eventually(lambda: store.write_failures >= 2)
        written(store)
        assert [each.subject for each in open_in(path)] == ["home"]


def test_occurrences_while_nothing_can_be_written_are_summed(
    tmp_path: Path, wall: WallClock
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        with locked(path):
            for _ in range(5):
                store.report(CODE, "home", "down", no_flight)
                gevent.sleep(0.005)
            wall.now += 1
            store.resolve(CODE, "home")
            wall.now += 1
            assert store.report(CODE, "home", "down again", no_flight), "the log is told"
            assert len(store._pending) == 1
        store.ensure_open(CODE, "home", "")
        written(store)
        assert [(e.opened_at, e.last_seen, e.occurrences) for e in open_in(path)] == [
            (NOW, NOW + 2, 6)
        ]


# What was open before, in a file that cannot be read at the start.


def test_a_file_that_cannot_be_read_at_the_start_is_put_right_later(
    tmp_path: Path, wall: WallClock
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        for subject in ("removed", "healthy", "still down"):
            store.report(CODE, subject, "of before", no_flight)
    wall.now += 60
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.mkdir()
    with store_on(path, wall) as store:
        assert store.write_failures >= 1
        assert store.failing
        store.resolve_except(CODE, {"healthy", "still down"})
        store.report(CODE, "still down", "of now", no_flight)
        path.rmdir()
        elsewhere.rename(path)
        store.resolve_except(CODE, {"healthy", "still down"})
        written(store)
        assert store.failing == ""
        assert [(e.subject, e.detail) for e in open_in(path)] == [("still down", "of now")]
        assert {(e.subject, e.detail, e.resolved_at) for e in resolved_in(path)} == {
            ("removed", "of before", NOW + 60),
            ("healthy", "of before", NOW + 60),
            ("still down", "of before", NOW + 60),
        }


def test_what_a_read_only_file_holds_is_told_if_sqlite_can_read_it(
    tmp_path: Path, wall: WallClock
) -> None:
    with read_only_after_a_crash(tmp_path) as (path, _), store_on(path, wall) as store:
        assert [each.subject for each in store.active()] == ["before"]
        assert store.write_failures == 0


# A damaged file.


def scribble_over(path: Path) -> None:
    """Not a database any more."""
    path.write_bytes(b"scribble " * 4_096)


def scribble_behind_the_header(path: Path) -> None:
    """A database whose pages are garbage."""
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * len(data[4096:])
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [scribble_over, scribble_behind_the_header])
def test_a_damaged_file_is_put_away_under_a_dated_name_and_a_new_one_begun(
    tmp_path: Path,
    wall: WallClock,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
    damage(path)
    damaged = path.read_bytes()
    with store_on(path, wall) as store:
        assert store.active() == []
        assert store.write_failures == 0
        [warning] = warnings_of(caplog)
        assert store.set_aside in warning
        aside = Path(store.set_aside)
        assert aside.parent == tmp_path
        assert aside.name.startswith(f"events.db.damaged-{time.strftime('%Y', time.gmtime())}")
        assert aside.read_bytes() == damaged
        store.report(CODE, "home", "down again", no_flight)
        written(store)
        assert [each.detail for each in open_in(path)] == ["down again"]


def test_a_file_damaged_while_it_is_open_is_put_away_and_what_is_open_written_anew(
    tmp_path: Path, wall: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        store.report(CODE, "known", "down", no_flight)
        written(store)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        scribble_over(path)
        store.report(CODE, "new", "down", no_flight)
        eventually(lambda: store.set_aside)
        store.report(CODE, "new", "down", no_flight)
        written(store)
        assert len([text for text in warnings_of(caplog) if store.set_aside in text]) == 1
        assert {(e.subject, e.occurrences) for e in open_in(path)} == {("known", 1), ("new", 2)}
        store.resolve(CODE, "known")
        written(store)
        assert [each.subject for each in resolved_in(path)] == ["known"]


def test_two_files_damaged_in_one_second_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    asides = set()
    for number in range(3):
        path.write_bytes(b"%d" % number * 4_096)
        with closing(Database(str(path))) as database:
            assert database.load() == []
            asides.add(database.set_aside)
    assert len(asides) == 3
    assert {Path(aside).read_bytes()[:1] for aside in asides} == {b"0", b"1", b"2"}


def test_a_damaged_file_on_a_read_only_card_is_latched_and_put_away_when_it_can_be(
    tmp_path: Path, wall: WallClock
) -> None:
    with mounted(tmp_path / "card", "1m") as card:
        path = card.folder / "events.db"
        scribble_over(path)
        card.remount("ro")
        with store_on(path, wall) as store:
            assert store.failing
            assert store.set_aside == ""
            card.remount("rw")
            store.report(CODE, "home", "down", no_flight)
            written(store)
            assert store.set_aside
            assert [each.subject for each in open_in(path)] == ["home"]


# The thread.


class SlowDatabase(Database):
    """A card that takes its time for each write, and in which no two jobs run at once."""

    seconds = 0.5
    threads: set[int]
    running = 0

    def write(self, *args: Any) -> str:
        self.threads.add(_thread.get_ident())
        assert not self.running, "the one connection is used twice at once"
        self.running += 1
        time.sleep(self.seconds)  # noqa: TID251 - in the store's own thread, as a card would
        failed = super().write(*args)
        self.running -= 1
        return failed


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> type[SlowDatabase]:
    SlowDatabase.threads = set()
    monkeypatch.setattr(events, "Database", SlowDatabase)
    return SlowDatabase


def test_the_flush_at_the_end_waits_for_a_slow_card(
    tmp_path: Path, wall: WallClock, slow: type[SlowDatabase]
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
        gevent.idle()
        store.report(CODE, "home", "down", no_flight)  # while the first is being written
    assert [(e.subject, e.occurrences) for e in open_in(path)] == [("home", 2)]


def test_the_flush_at_the_end_gives_up_a_card_that_is_stuck_and_says_what_is_lost(
    tmp_path: Path,
    wall: WallClock,
    slow: type[SlowDatabase],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(slow, "seconds", 1.0)
    with store_on(tmp_path / "events.db", wall) as store:
        store.report(CODE, "home", "down", no_flight)
        gevent.idle()
        store.close()
        assert "1 episodes are not stored: it takes longer than 0.1 s" in caplog.messages
        assert store._database.running, "it was still under way"  # type: ignore[attr-defined]
        eventually(lambda: not store._database.running)  # type: ignore[attr-defined]


def test_the_flush_at_the_end_may_take_two_seconds() -> None:
    assert events._CLOSE_SECONDS == 2.0


def test_the_flush_at_the_end_says_why_it_failed(
    tmp_path: Path, wall: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.db"
    with ExitStack() as undo:
        store = undo.enter_context(store_on(path, wall))
        undo.enter_context(locked(path))
        store.report(CODE, "home", "down", no_flight)
        store.close()
    assert "1 episodes are not stored: database is locked" in caplog.messages


def test_writes_run_in_one_thread_that_is_not_the_hubs(
    tmp_path: Path,
    wall: WallClock,
    slow: type[SlowDatabase],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow, "seconds", 0.0)
    with store_on(tmp_path / "events.db", wall) as store:
        for number in range(20):
            store.report(CODE, f"{number}", "down", no_flight)
            reading = gevent.spawn(store.recent, 9)
            written(store)
            reading.get()
    assert len(slow.threads) == 1
    assert _thread.get_ident() not in slow.threads


def test_nobody_waits_for_a_write_but_who_asks_for_resolved_episodes(
    tmp_path: Path, wall: WallClock, slow: type[SlowDatabase]
) -> None:
    with store_on(tmp_path / "events.db", wall) as store:
        turns = 0

        def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                gevent.sleep(0)

        counting = gevent.spawn(count)
        gevent.sleep(0)
        before = turns
        store.report(CODE, "home", "down", no_flight)
        store.report(CODE, "home", "down", no_flight)
        store.ensure_open(CODE, "home", "down")
        store.resolve(CODE, "home")
        store.resolve_except(CODE, ())
        store.report(CODE, "other", "down", no_flight)
        store.active()
        assert turns == before, "a call gave up its turn"
        eventually(lambda: slow.threads)
        before = turns
        assert [each.subject for each in store.recent(9)] == ["home"]
        assert turns > before + 100, "the loop stood still while the card was slow"
        counting.kill()


def test_what_opens_again_while_its_end_is_being_written_is_not_told_as_ended(
    tmp_path: Path, wall: WallClock, slow: type[SlowDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "seconds", 0.1)
    path = tmp_path / "events.db"
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
        written(store)
        store.resolve(CODE, "home")
        eventually(lambda: store._database.running)  # type: ignore[attr-defined]
        reading = gevent.spawn(store.recent, 9)
        gevent.sleep(0)
        store.report(CODE, "home", "down again", no_flight)
        assert reading.get() == []
        assert [(e.detail, e.occurrences) for e in store.active()] == [("down again", 2)]
        written(store)
        assert store.recent(9) == []
        assert [(e.detail, e.occurrences) for e in open_in(path)] == [("down again", 2)]


def test_a_thread_that_cannot_be_started_is_a_failed_write(
    tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.db"
    store = EventStore(str(path), wall)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr("gevent.threadpool.start_new_thread", refuse)
        store.load()
        assert store.failing == "no thread can be started"
    store.report(CODE, "home", "down", no_flight)
    written(store)
    assert store.failing == ""
    store.close()
    assert [each.subject for each in open_in(path)] == ["home"]


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, wall: WallClock) -> None:
    path = tmp_path / "events.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE episodes (something TEXT)")
        other.commit()
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
        eventually(lambda: store.failing)
        assert store.set_aside == ""
        assert store.active() == [Episode(CODE, "home", "down", NOW, NOW, None, 1, "")]
        store.resolve(CODE, "home")
