"""The store of episodes: what is wrong now, in memory; what was, in a file.

An SD card may take a fifth of a second for one sync, so the file is the business of a thread, and
nobody waits for it but who asks for resolved episodes. Each change is noted at once, in memory and
as pending: one desired state for each (code, subject), never a list. What cannot be written stays
pending, and is tried again: with the next change or reconciliation, and once a minute.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import gevent
from gevent import Timeout
from gevent.event import Event
from gevent.threadpool import ThreadPool

from nxdns.storage.database import Database, Episode

_log = logging.getLogger(__name__)

# After a failure: a card that is full or read-only stays so for longer than a burst of changes.
_PAUSE_SECONDS = 1.0
# And without any change: somebody may have made room.
_RETRY_SECONDS = 60.0
_CLOSE_SECONDS = 2.0

_Key = tuple[str, str]


class EventStore:
    """Episodes, at most one open for each code and subject. Nothing but ``recent`` waits."""

    def __init__(self, path: str, wall: Callable[[], float]) -> None:
        """``path`` of the file, "" for memory alone; ``wall`` gives seconds since 1970."""
        self.path = path
        self.write_failures = 0
        #: Why what is pending cannot be written; "" when all is well.
        self.failing = ""
        self._wall = wall
        self._open: dict[_Key, Episode] = {}
        self._pending: dict[_Key, Episode] = {}
        self._database = Database(path)
        self._thread = ThreadPool(1)
        self._writer: Any = None
        self._changed = Event()
        self._told_of = ""
        #: Whether the file has been asked in vain for the episodes that it holds open.
        self._unread = False
        self._closed = False

    @property
    def set_aside(self) -> str:
        """The name under which a damaged file was put away, or ""."""
        return self._database.set_aside

    def load(self) -> None:
        """Take over the episodes that were open when the process before this one ended.

        Waits, but only at the start, when there is no query to delay yet. A file that cannot be
        read now is tried again, like one that cannot be written.
        """
        loaded = self._run(self._database.load)
        self._tell_of_damage()
        if isinstance(loaded, str):
            self._note_failure(loaded)
            self._unread = True
            self._wake()
            return
        for episode in loaded:
            self._open.setdefault((episode.code, episode.subject), episode)

    def report(self, code: str, subject: str, detail: str, flight: Callable[[], str]) -> bool:
        """Open an episode, which gives True, or count an occurrence of the one that is open.

        ``flight`` gives what came before it, and is only asked for one that is opened.
        """
        open_one = self._open.get((code, subject))
        now = self._wall()
        if open_one is None:
            unwritten = self._pending.get((code, subject))
            if unwritten is None:
                self._note(Episode(code, subject, detail, now, now, None, 1, flight()))
            else:
                # The end of the one before could not be written yet: they become one.
                occurrences = unwritten.occurrences + 1
                self._note(
                    replace(
                        unwritten,
                        detail=detail,
                        last_seen=now,
                        resolved_at=None,
                        occurrences=occurrences,
                    )
                )
            return True
        occurrences = open_one.occurrences + 1
        self._note(replace(open_one, detail=detail, last_seen=now, occurrences=occurrences))
        return False

    def ensure_open(self, code: str, subject: str, detail: str) -> None:
        """Open an episode if none is open. What cannot be written so far is tried again."""
        if (code, subject) not in self._open:
            self.report(code, subject, detail, str)
        else:
            self._retry()

    def resolve(self, code: str, subject: str) -> bool:
        """Close the open episode, which gives True.

        With none open nothing happens, unless that could not be written yet: it is tried again.
        """
        episode = self._open.pop((code, subject), None)
        if episode is None:
            if (code, subject) in self._pending:
                self._wake()
            return False
        self._pending[code, subject] = replace(episode, resolved_at=self._wall())
        self._wake()
        return True

    def resolve_except(self, code: str, kept: Collection[str]) -> None:
        """Close every open episode of ``code`` whose subject is not among ``kept``."""
        for other, subject in list(self._open):
            if other == code and subject not in kept:
                self.resolve(code, subject)
        self._retry()

    def active(self) -> list[Episode]:
        """The open episodes, the newest first."""
        return sorted(self._open.values(), key=lambda episode: -episode.opened_at)

    def recent(self, limit: int) -> list[Episode]:
        """The last resolved episodes, the newest first; what is still pending included.

        Waits for the file, in the greenlet that asks. What cannot be read is left out.
        """
        stored = [] if self._closed else self._run(self._database.recent, limit)
        if isinstance(stored, str):
            _log.debug("the store of episodes %s cannot be read: %s", self.path, stored)
            stored = []
        self._tell_of_damage()
        # As it is after the wait: what has been read as ended may have been opened again.
        newest_last = (*stored, *self._pending.values())
        known = {(each.code, each.subject, each.opened_at): each for each in newest_last}
        resolved = [(e.resolved_at, e) for e in known.values() if e.resolved_at is not None]
        resolved.sort(key=lambda each: each[0], reverse=True)
        return [episode for _, episode in resolved[:limit]]

    def close(self) -> None:
        """Write what is pending, within two seconds, and close the file. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._writer.kill()
        failed = f"it takes longer than {_CLOSE_SECONDS:g} s"
        with Timeout(_CLOSE_SECONDS, False):
            if self._pending:
                failed = self._run(self._database.write, *self._taken())
                if not failed:
                    self._pending.clear()
            self._run(self._database.close)
            self._thread.join()
        self._thread.maxsize = 0  # its kill would wait for what is stuck
        if self._pending:
            _log.warning("%d episodes are not stored: %s", len(self._pending), failed)

    def _note(self, episode: Episode) -> None:
        key = (episode.code, episode.subject)
        self._open[key] = episode
        self._pending[key] = episode
        self._wake()

    def _retry(self) -> None:
        """Try again what has failed, if anything has."""
        if self._pending or self._unread:
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        if self._writer is None and not self._closed:
            self._writer = gevent.spawn(self._write)

    def _write(self) -> None:
        """Write all that is pending, and what becomes so meanwhile."""
        try:
            while self._pending or self._unread:
                self._changed.clear()
                failed = self._read_late() if self._unread else ""
                taken, now = self._taken()
                failed = failed or self._run(self._database.write, taken, now)
                self._tell_of_damage()
                if failed:
                    self._note_failure(failed)
                    gevent.sleep(_PAUSE_SECONDS)
                    self._changed.wait(_RETRY_SECONDS)
                    continue
                if self.failing:
                    _log.info("the store of episodes can be written again")
                    self.failing = ""
                for episode in taken:
                    key = (episode.code, episode.subject)
                    if self._pending.get(key) is episode:
                        del self._pending[key]
        finally:
            self._writer = None

    def _taken(self) -> tuple[list[Episode], float]:
        """What a write is to be given."""
        return list(self._pending.values()), self._wall()

    def _read_late(self) -> str:
        """Do what could not be done at the start; "" or why not.

        By now memory says what is open, so whatever else the file holds open has ended.
        """
        loaded = self._run(self._database.load)
        if isinstance(loaded, str):
            return loaded
        self._unread = False
        for episode in loaded:
            key = (episode.code, episode.subject)
            if key not in self._open and key not in self._pending:
                self._pending[key] = replace(episode, resolved_at=self._wall())
        return ""

    def _note_failure(self, failed: str) -> None:
        self.write_failures += 1
        if not self.failing:
            _log.warning("the store of episodes %s cannot be used: %s", self.path, failed)
        self.failing = failed

    def _tell_of_damage(self) -> None:
        aside = self._database.set_aside
        if aside and aside != self._told_of:
            self._told_of = aside
            _log.warning("the store of episodes was damaged; it is put away as %s", aside)
            # The new file is to know what is open, too.
            self._pending = {**self._open, **self._pending}

    def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What ``function`` gives, or why no thread could be started for it."""
        try:
            return self._thread.apply(function, arguments)
        except RuntimeError:
            return "no thread can be started"
