"""The SQLite file behind the store of episodes. Blocking: it lives in a thread of its own.

Nothing here raises out of :meth:`Database.write`: what went wrong is returned, as a line of text,
for the thread pool that runs it would log an exception with a traceback of its own.
"""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS episodes (
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    opened_at REAL NOT NULL,
    last_seen REAL NOT NULL,
    resolved_at REAL,
    occurrences INTEGER NOT NULL,
    flight TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_open
    ON episodes (code, subject) WHERE resolved_at IS NULL;
CREATE INDEX IF NOT EXISTS by_opening ON episodes (code, subject, opened_at);
CREATE INDEX IF NOT EXISTS by_end ON episodes (resolved_at);
"""

KEPT_SECONDS = 90 * 86_400  # a quarter: long enough to see that it happens every month
KEPT_EPISODES = 10_000  # some 3 MiB, should an upstream flap all that time
# With what came before them: up to 64 KiB each, of which nobody reads more than the latest.
KEPT_FLIGHTS = 100
# Another process that reads the file holds it for a moment; one that holds it longer is in the way.
# Shorter than the flush at exit may take, so that the reason is told.
_BUSY_SECONDS = 1.0

_COLUMNS = "code, subject, detail, opened_at, last_seen, resolved_at, occurrences, flight"


@dataclass(frozen=True, slots=True)
class Episode:
    """As it is stored. Times are seconds since 1970."""

    code: str
    subject: str
    detail: str
    opened_at: float
    last_seen: float
    resolved_at: float | None
    occurrences: int
    flight: str
    """JSON; "" when nothing came before it, or it is kept no longer."""


class Database:
    """One file, or memory for the path "". Used by one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        #: The name under which a damaged file was put away, or "".
        self.set_aside = ""

    def load(self) -> list[Episode] | str:
        """The open episodes; or why the file cannot be used."""
        try:
            return self._select("WHERE resolved_at IS NULL ORDER BY opened_at")
        except (sqlite3.Error, OSError) as exc:
            return self._told(exc)

    def recent(self, limit: int) -> list[Episode] | str:
        """The last ``limit`` resolved episodes, the newest first; or why there are none to see."""
        try:
            return self._select(
                "WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, id DESC LIMIT ?", limit
            )
        except (sqlite3.Error, OSError) as exc:
            return self._told(exc)

    def write(self, episodes: Sequence[Episode], now: float) -> str:
        """Store each as the one episode of its code and subject and opening; "" or what failed.

        All of them, or none. What has become too old by ``now``, seconds since 1970, goes.
        """
        try:
            connection = self._open()
            with connection:
                for episode in episodes:
                    self._put(connection, episode)
                self._prune(connection, now)
        except (sqlite3.Error, OSError) as exc:
            return self._told(exc)
        return ""

    def close(self) -> None:
        """Close the file. What is written is on the disk."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _select(self, clause: str, *values: object) -> list[Episode]:
        rows = self._open().execute(f"SELECT {_COLUMNS} FROM episodes {clause}", values)
        return [Episode(*row) for row in rows]

    def _put(self, connection: sqlite3.Connection, episode: Episode) -> None:
        values = (
            episode.detail,
            episode.last_seen,
            episode.resolved_at,
            episode.occurrences,
            episode.code,
            episode.subject,
            episode.opened_at,
        )
        updated = connection.execute(
            "UPDATE episodes SET detail = ?, last_seen = ?, resolved_at = ?, occurrences = ?"
            " WHERE code = ? AND subject = ? AND opened_at = ?",
            values,
        )
        if updated.rowcount == 0:
            # An older one may still be open, if its end could never be written.
            connection.execute(
                "UPDATE episodes SET resolved_at = ? WHERE code = ? AND subject = ?"
                " AND resolved_at IS NULL",
                (episode.opened_at, episode.code, episode.subject),
            )
            connection.execute(
                f"INSERT INTO episodes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    episode.code,
                    episode.subject,
                    episode.detail,
                    episode.opened_at,
                    episode.last_seen,
                    episode.resolved_at,
                    episode.occurrences,
                    episode.flight,
                ),
            )

    def _prune(self, connection: sqlite3.Connection, now: float) -> None:
        beyond = (
            "id IN (SELECT id FROM episodes WHERE resolved_at IS NOT NULL"
            " ORDER BY resolved_at DESC, id DESC LIMIT -1 OFFSET ?)"
        )
        connection.execute("DELETE FROM episodes WHERE resolved_at < ?", (now - KEPT_SECONDS,))
        connection.execute(f"DELETE FROM episodes WHERE {beyond}", (KEPT_EPISODES,))
        connection.execute(
            f"UPDATE episodes SET flight = '' WHERE flight <> '' AND {beyond}", (KEPT_FLIGHTS,)
        )

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._connect()
            except sqlite3.DatabaseError as exc:
                if not _is_damaged(exc):
                    raise
                self._put_away()
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if self._path:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path or ":memory:", timeout=_BUSY_SECONDS)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_SCHEMA)
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError("database disk image is malformed")
        except BaseException:
            connection.close()
            raise
        return connection

    def _told(self, exc: Exception) -> str:
        """One line for the owner. What comes next starts from a fresh connection: one that was
        opened while the card was read-only stays so, whatever becomes of the card."""
        if self._path:  # memory would be lost with its connection
            self.close()
            if isinstance(exc, sqlite3.Error) and _is_damaged(exc):
                try:
                    self._put_away()
                except OSError as refused:
                    return f"{exc}, and it cannot be put away: {refused.strerror}"
        return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)

    def _put_away(self) -> None:
        """Set the damaged file aside, with what belongs to it. Raises OSError."""
        path = Path(self._path)
        aside = _free_name(path)
        path.replace(aside)
        # The log of what the file does not hold yet: whoever wants to recover it needs both.
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
        self.set_aside = str(aside)


def _free_name(path: Path) -> Path:
    """A dated one; two files may come to harm within one second."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    return aside


def _is_damaged(exc: sqlite3.Error) -> bool:
    code = getattr(exc, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return "malformed" in str(exc)
