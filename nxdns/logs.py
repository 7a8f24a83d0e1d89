"""Where log lines go and what they look like."""

import json
import logging
import sys
import time

_ROOT = "nxdns"


def configure(level: str, log_format: str) -> None:
    """Send our loggers to stderr at ``level``, as ``text`` or ``json``.

    Only ours: urllib3 would log a DoH path, which can be a secret, with every request.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _text_formatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    urllib3 = logging.getLogger("urllib3")
    urllib3.handlers[:] = [logging.NullHandler()]
    urllib3.propagate = False


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
