"""Stores of episodes on files of a test's own."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nxdns.storage.database import Database, Episode
from nxdns.storage.events import EventStore
from tests.support.waiting import eventually

CODE = "upstream_exchange"
NOW = 1_700_000_000.0


class WallClock:
    """Seconds since 1970 that pass when the test says so."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def no_flight() -> str:
    """Nothing came before it."""
    return ""


@contextmanager
def store_on(path: Path | str, wall: Callable[[], float]) -> Iterator[EventStore]:
    """A store that has loaded what the file holds, closed at the end."""
    store = EventStore(str(path), wall)
    store.load()
    try:
        yield store
    finally:
        store.close()


def written(store: EventStore) -> None:
    """Wait until nothing is pending any more."""
    eventually(lambda: not store._pending and store._writer is None)


def open_in(path: Path) -> list[Episode]:
    """What the file holds open, read as another process would."""
    return _read(path, Database.load)


def resolved_in(path: Path) -> list[Episode]:
    """What has ended, as the file holds it, the newest first."""
    return _read(path, lambda database: database.recent(1_000_000))


def _read(path: Path, read: Callable[[Database], list[Episode] | str]) -> list[Episode]:
    with closing(Database(str(path))) as database:
        episodes = read(database)
    assert not isinstance(episodes, str), episodes
    return episodes


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process is in the middle of a long write."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")
