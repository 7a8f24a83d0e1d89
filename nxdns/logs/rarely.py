"""Say a thing at once, and then once a minute how often it has happened since."""

import logging
from typing import Any

import gevent

INTERVAL_SECONDS = 60.0
# A kind is a word of ours with at most an errno's name behind it, so there are few; the bound
# holds even if one day a kind is made of what a peer sends.
_MAX_KINDS = 256


class _Silence:
    """A kind that was logged a moment ago: how often it has come since, and what it last said."""

    __slots__ = ("arguments", "count", "text", "timer")

    def __init__(self, timer: Any) -> None:
        self.timer = timer
        self.count = 0
        self.text = ""
        self.arguments: tuple[object, ...] = ()


class Rarely:
    """Warnings of one part of the program, by kind. To be closed when it ends.

    A storm of thousands is two lines: that it has begun, and at the end of its minute how many
    more there were; and one a minute for as long as it goes on.
    """

    def __init__(self, log: logging.Logger, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._log = log
        self._interval_seconds = interval_seconds
        self._silences: dict[str, _Silence] = {}

    def warning(self, kind: str, text: str, *arguments: object) -> bool:
        """Log it now, which gives True, or count it. The arguments are as for a logger."""
        silence = self._silences.get(kind)
        if silence is None:
            if len(self._silences) >= _MAX_KINDS:
                self.close()
            # Not a reason for the event loop to go on, nor anything that a stop waits for.
            timer = gevent.get_hub().loop.timer(self._interval_seconds, ref=False)
            self._silences[kind] = _Silence(timer)
            timer.start(self._end, kind)
            self._log.warning(text, *arguments)
            return True
        silence.count += 1
        silence.text = text
        silence.arguments = arguments
        return False

    def _end(self, kind: str) -> None:
        """A minute is over. Runs in the event loop."""
        silence = self._silences[kind]
        if silence.count == 0:
            silence.timer.close()
            del self._silences[kind]
            return
        count, silence.count = silence.count, 0
        silence.timer.start(self._end, kind)
        self._log.warning(f"{silence.text} (%d more times)", *silence.arguments, count)

    def close(self) -> None:
        """Forget everything; the counters have what was not told."""
        for silence in self._silences.values():
            silence.timer.close()
        self._silences.clear()
