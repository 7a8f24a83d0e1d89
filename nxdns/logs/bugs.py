"""Bugs of ours in the log: each with its traceback, the first time it shows."""

import logging
from types import TracebackType
from typing import Any

import gevent

_log = logging.getLogger(__name__)
_seen: set[tuple[type[BaseException], str, int]] = set()


def log_bug_once(log: logging.Logger, exc: BaseException) -> None:
    """Log ``exc``, unless one of its type from the same line has been logged before.

    A bug on the path of a query shows with every query.
    """
    key = (type(exc), *_innermost(exc.__traceback__))
    if key not in _seen:
        _seen.add(key)
        log.error("unexpected error; this is a bug of nxdns", exc_info=exc)


def log_hub_errors() -> None:
    """Send what escapes a greenlet to the log; gevent would print it to stderr by itself."""
    hub: Any = gevent.get_hub()
    hub.print_exception = _log_escaped


def _log_escaped(_context: object, kind: Any, value: Any, _traceback: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return  # gevent throws it into the main greenlet, where it ends the verb
    log_bug_once(_log, value)


def _innermost(traceback: TracebackType | None) -> tuple[str, int]:
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
