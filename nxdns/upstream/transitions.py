"""The log lines that tell an owner when an upstream stops being trusted, and when it is again."""

import logging

from nxdns.upstream.health import Effect, Tripped
from nxdns.upstream.pool import Entry

_log = logging.getLogger(__name__)


class TransitionLog:
    """Tells the log when an upstream stops being trusted, and when it is trusted again."""

    def __init__(self) -> None:
        self._tripped: set[str] = set()

    def note(self, entry: Entry, effect: Effect) -> None:
        """An effect of the pool; what it does not change is not told again. Never switches."""
        if isinstance(effect.episode, Tripped):
            if entry.label not in self._tripped:
                self._tripped.add(entry.label)
                _log.warning("upstream '%s' failed: %s", entry.label, effect.episode.fault)
        elif entry.label in self._tripped:
            self._tripped.discard(entry.label)
            _log.info("upstream '%s' has recovered", entry.label)
