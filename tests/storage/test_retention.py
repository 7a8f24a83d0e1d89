"""What the file keeps, and for how long."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nxdns.storage.database import (
    KEPT_EPISODES,
    KEPT_FLIGHTS,
    KEPT_SECONDS,
    Database,
    Episode,
)
from tests.storage.stores import CODE, NOW, WallClock, no_flight, store_on, written

DAY = 86_400.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(str(tmp_path / "events.db"))) as database:
        yield database


def ended(subject: str, resolved_at: float | None, flight: str = "") -> Episode:
    opened_at = NOW - 1_000 * DAY
    return Episode(CODE, subject, "", opened_at, opened_at, resolved_at, 1, flight)


def subjects(episodes: list[Episode] | str) -> list[str]:
    assert not isinstance(episodes, str), episodes
    return [each.subject for each in episodes]


def test_a_resolved_episode_is_kept_for_ninety_days_and_no_longer(database: Database) -> None:
    assert KEPT_SECONDS == 90 * DAY
    kept, gone = NOW - 90 * DAY + 1, NOW - 90 * DAY - 1
    assert database.write([ended("kept", kept), ended("gone", gone)], NOW) == ""
    assert subjects(database.recent(9)) == ["kept"]
    assert database.write([], NOW + 2) == ""
    assert subjects(database.recent(9)) == []


def test_an_open_one_is_kept_however_old_it_is(database: Database) -> None:
    assert database.write([ended("old", None)], NOW) == ""
    assert subjects(database.load()) == ["old"]


def test_the_newest_ten_thousand_are_kept(database: Database) -> None:
    assert KEPT_EPISODES == 10_000
    episodes = [ended(f"{number}", NOW - number) for number in range(KEPT_EPISODES + 5)]
    assert database.write([ended("open", None), *episodes], NOW) == ""
    kept = subjects(database.recent(99_999))
    assert kept == [f"{number}" for number in range(KEPT_EPISODES)]
    assert subjects(database.load()) == ["open"]


def test_flight_records_are_kept_of_the_latest_and_of_what_is_open(database: Database) -> None:
    extra = 3
    episodes = [ended(f"{n}", NOW - n, flight="[1]") for n in range(KEPT_FLIGHTS + extra)]
    assert database.write([ended("open", None, flight="[1]"), *episodes], NOW) == ""
    recent = database.recent(999)
    assert not isinstance(recent, str)
    assert [each.flight for each in recent] == ["[1]"] * KEPT_FLIGHTS + [""] * extra
    still_open = database.load()
    assert not isinstance(still_open, str)
    assert [each.flight for each in still_open] == ["[1]"]


def test_each_write_of_the_store_prunes_by_the_stores_own_clock(tmp_path: Path) -> None:
    wall = WallClock()
    with store_on(tmp_path / "events.db", wall) as store:
        store.report(CODE, "long ago", "", no_flight)
        store.resolve(CODE, "long ago")
        written(store)
        wall.now += 91 * DAY
        store.report(CODE, "now", "", no_flight)
        written(store)
        assert store.recent(9) == []
        assert [each.subject for each in store.active()] == ["now"]


def test_at_most_one_is_open_for_each_code_and_subject(database: Database) -> None:
    older = Episode(CODE, "home", "", NOW, NOW, None, 1, "")
    newer = Episode(CODE, "home", "", NOW + 9, NOW + 9, None, 1, "")
    assert database.write([older], NOW) == ""
    assert database.write([newer], NOW) == ""
    assert database.load() == [newer]
    recent = database.recent(9)
    assert not isinstance(recent, str)
    assert [(each.opened_at, each.resolved_at) for each in recent] == [(NOW, NOW + 9)]
