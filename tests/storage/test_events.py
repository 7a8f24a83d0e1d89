"""The store of episodes on a file that works: what it holds, and what it spares itself."""

from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import Timeout

from nxdns.storage.database import Database, Episode
from nxdns.storage.events import EventStore
from tests.storage.stores import (
    CODE,
    NOW,
    WallClock,
    no_flight,
    open_in,
    resolved_in,
    store_on,
    written,
)


@pytest.fixture
def wall() -> WallClock:
    return WallClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been asked of the file, by the names of the functions."""
    asked: list[str] = []
    for name in ("load", "recent", "write"):
        real = getattr(Database, name)

        def noting(self: Database, *args: Any, _real: Any = real, _name: str = name) -> Any:
            asked.append(_name)
            return _real(self, *args)

        monkeypatch.setattr(Database, name, noting)
    return asked


# One episode.


def test_a_report_opens_and_the_next_ones_fold_into_it(path: Path, wall: WallClock) -> None:
    with store_on(path, wall) as store:
        assert store.report(CODE, "home", "first", lambda: "[1]")
        wall.now += 5
        assert not store.report(CODE, "home", "second", no_flight)
        wall.now += 5
        assert not store.report(CODE, "home", "third", no_flight)
        told = [Episode(CODE, "home", "third", NOW, NOW + 10, None, 3, "[1]")]
        assert store.active() == told
        written(store)
        assert open_in(path) == told
        assert resolved_in(path) == []


def test_what_came_before_is_asked_for_only_when_an_episode_opens(wall: WallClock) -> None:
    asked = []

    def flight() -> str:
        asked.append(wall.now)
        return "[]"

    with store_on("", wall) as store:
        for _ in range(3):
            store.report(CODE, "home", "down", flight)
        store.resolve(CODE, "home")
        written(store)
        wall.now += 1
        store.report(CODE, "home", "down", flight)
    assert asked == [NOW, NOW + 1]


def test_resolving_ends_it_and_the_next_report_opens_another(path: Path, wall: WallClock) -> None:
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
        wall.now += 60
        assert store.resolve(CODE, "home")
        assert store.active() == []
        written(store)
        wall.now += 60
        assert store.report(CODE, "home", "down again", no_flight)
        assert [each.occurrences for each in store.active()] == [1]
        written(store)
        assert [(e.detail, e.resolved_at) for e in resolved_in(path)] == [("down", NOW + 60)]
        assert [(e.detail, e.opened_at) for e in open_in(path)] == [("down again", NOW + 120)]


def test_episodes_of_other_subjects_and_codes_are_apart(wall: WallClock) -> None:
    with store_on("", wall) as store:
        for code, subject in [("a", "x"), ("a", "y"), ("b", "x")]:
            assert store.report(code, subject, "", no_flight)
        store.resolve("a", "x")
        assert {(e.code, e.subject) for e in store.active()} == {("a", "y"), ("b", "x")}


def test_ensure_open_opens_what_is_closed_and_leaves_alone_what_is_open(
    path: Path, wall: WallClock
) -> None:
    with store_on(path, wall) as store:
        store.ensure_open(CODE, "home", "first")
        before = store.active()
        wall.now += 5
        store.ensure_open(CODE, "home", "second")
        assert store.active() == before == [Episode(CODE, "home", "first", NOW, NOW, None, 1, "")]
        written(store)
        assert open_in(path) == before


def test_resolve_except_closes_all_others_of_that_code(wall: WallClock) -> None:
    with store_on("", wall) as store:
        for code, subject in [("a", "kept"), ("a", "gone"), ("a", "gone too"), ("b", "gone")]:
            store.report(code, subject, "", no_flight)
        store.resolve_except("a", {"kept"})
        assert {(e.code, e.subject) for e in store.active()} == {("a", "kept"), ("b", "gone")}
        assert {(e.code, e.subject) for e in store.recent(9)} == {("a", "gone"), ("a", "gone too")}


def test_active_and_recent_tell_the_newest_first(path: Path, wall: WallClock) -> None:
    with store_on(path, wall) as store:
        for subject in ("a", "b", "c", "d"):
            wall.now += 1
            store.report(CODE, subject, "", no_flight)
        assert [each.subject for each in store.active()] == ["d", "c", "b", "a"]
        for subject in ("c", "a"):
            wall.now += 1
            store.resolve(CODE, subject)
        assert [each.subject for each in store.active()] == ["d", "b"]
        written(store)
        wall.now += 1
        store.resolve(CODE, "d")  # still pending when it is asked for
        assert [each.subject for each in store.recent(9)] == ["d", "a", "c"]
        assert [each.subject for each in store.recent(2)] == ["d", "a"]


# What it spares itself.


def test_resolving_what_is_not_open_asks_nothing_of_the_file(
    path: Path, wall: WallClock, jobs: list[str]
) -> None:
    with store_on(path, wall) as store:
        store.report(CODE, "home", "", no_flight)
        store.resolve(CODE, "home")
        written(store)
        jobs.clear()
        for _ in range(1_000):
            assert not store.resolve(CODE, "home")
            assert not store.resolve(CODE, "never seen")
        store.resolve_except(CODE, {"home"})
        gevent.idle()
        assert jobs == []
        assert store._writer is None


def test_re_asserting_what_is_open_asks_nothing_of_the_file(
    path: Path, wall: WallClock, jobs: list[str]
) -> None:
    with store_on(path, wall) as store:
        store.report(CODE, "home", "", no_flight)
        written(store)
        jobs.clear()
        for _ in range(1_000):
            store.ensure_open(CODE, "home", "")
        gevent.idle()
        assert jobs == []


def test_a_thousand_reports_in_one_turn_are_one_write_of_one_state(
    path: Path, wall: WallClock, jobs: list[str]
) -> None:
    with store_on(path, wall) as store:
        jobs.clear()
        for number in range(1_000):
            store.report(CODE, "home", f"failure {number}", no_flight)
            assert len(store._pending) == 1
        written(store)
        assert jobs == ["write"]
        assert [(e.detail, e.occurrences) for e in open_in(path)] == [("failure 999", 1_000)]


def test_an_end_and_a_new_beginning_within_one_write_are_one_episode(
    path: Path, wall: WallClock, jobs: list[str]
) -> None:
    with store_on(path, wall) as store:
        jobs.clear()
        store.report(CODE, "home", "first", lambda: "[1]")
        store.report(CODE, "home", "first", no_flight)
        wall.now += 1
        store.resolve(CODE, "home")
        wall.now += 1
        assert store.report(CODE, "home", "again", no_flight)
        written(store)
        assert jobs == ["write"]
        assert open_in(path) == [Episode(CODE, "home", "again", NOW, NOW + 2, None, 3, "[1]")]
        assert resolved_in(path) == []


# From one process to the next.


def test_what_was_open_is_open_in_the_next_process(path: Path, wall: WallClock) -> None:
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", lambda: "[1]")
        store.report(CODE, "home", "down", no_flight)
        before = store.active()
    wall.now += 3_600
    with store_on(path, wall) as store:
        assert store.active() == before
        store.report(CODE, "home", "still down", no_flight)
        assert [each.occurrences for each in store.active()] == [3]
        store.resolve(CODE, "home")
        written(store)
        assert [(e.opened_at, e.occurrences, e.flight) for e in resolved_in(path)] == [
            (NOW, 3, "[1]")
        ]


def test_without_a_path_it_is_all_in_memory_and_works_alike(
    wall: WallClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with store_on("", wall) as store:
        store.report(CODE, "home", "down", no_flight)
        written(store)
        store.resolve(CODE, "home")
        written(store)
        assert [each.subject for each in store.recent(9)] == ["home"]
        assert (store.write_failures, store.failing, store.set_aside) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_made_if_it_is_missing(tmp_path: Path, wall: WallClock) -> None:
    path = tmp_path / "lib" / "nxdns" / "events.db"
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
    assert [each.subject for each in open_in(path)] == ["home"]


def test_what_is_pending_at_the_end_is_written(path: Path, wall: WallClock) -> None:
    with store_on(path, wall) as store:
        store.report(CODE, "home", "down", no_flight)
        store.report(CODE, "other", "down", no_flight)
        store.resolve(CODE, "other")
    assert [each.subject for each in open_in(path)] == ["home"]
    assert [each.subject for each in resolved_in(path)] == ["other"]


def test_a_closed_store_can_be_closed_told_and_asked_again(path: Path, wall: WallClock) -> None:
    store = EventStore(str(path), wall)
    store.load()
    store.close()
    with Timeout(5):
        store.close()
        store.report(CODE, "late", "", no_flight)
        store.resolve(CODE, "late")
        store.resolve_except(CODE, ())
        store.ensure_open(CODE, "late", "")
        store.recent(9)
    assert store._writer is None


def test_resolved_episodes_are_told_once_while_they_are_being_written(
    path: Path, wall: WallClock
) -> None:
    with store_on(path, wall) as store:
        for number in range(20):
            wall.now += 1
            store.report(CODE, f"{number}", "", no_flight)
            gevent.sleep(0)
            store.resolve(CODE, f"{number}")
            assert len(store.recent(99)) == number + 1
