"""Where log lines go and what they look like. Imports nothing of ours."""

import json
import logging
import os
import select  # noqa: TID251 - it is only asked, with no time to wait
import sys
import time
from typing import TextIO

_ROOT = "nxdns"
# What a pipe that is writable takes without waiting (PIPE_BUF in limits.h).
_PIECE = 4096


def configure(level: str, log_format: str) -> None:
    """Send our loggers to stderr at ``level``, as ``text`` or ``json``.

    Only ours: urllib3 would log a DoH path, which can be a secret, with every request.
    """
    handler = _Handler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _text_formatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    urllib3 = logging.getLogger("urllib3")
    urllib3.handlers[:] = [logging.NullHandler()]
    urllib3.propagate = False


class _Handler(logging.Handler):
    """Writes lines, or drops and counts them while nobody reads: a full pipe would stop the hub."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self._dropped = 0
        self._poll: select.poll | None = None
        try:
            descriptor = stream.fileno()  # type: ignore[union-attr]  # caught below
        except (AttributeError, OSError, ValueError):
            return  # not a file, or closed by whoever started us: nothing of it can block
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        lines = self.format(record) + "\n"
        if self._dropped:
            text = f"{self._dropped} log lines were dropped, as nobody read them"
            note = logging.LogRecord(_ROOT, logging.WARNING, __file__, 0, text, None, None)
            lines = f"{self.format(note)}\n{lines}"
        try:
            self._dropped = 0 if self._write(lines) else self._dropped + 1
        except (OSError, ValueError):
            self._dropped += 1  # a full disk, a reader that has gone, a stream that was closed

    def _write(self, text: str) -> bool:
        """Whether all of it was written."""
        if self._stream is None:
            return False
        if self._poll is None:
            self._stream.write(text)
            return True
        data = text.encode(errors="backslashreplace")
        for start in range(0, len(data), _PIECE):
            if not self._poll.poll(0):
                return False
            os.write(self._descriptor, data[start : start + _PIECE])
        return True


def set_level(level: str) -> None:
    """Log from ``level`` on, as ``configure`` names it."""
    logging.getLogger(_ROOT).setLevel(level.upper())


def _text_formatter() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter


class _JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
