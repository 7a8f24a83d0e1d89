"""Log a bug of ours with its traceback, the first time it shows: a bug on the path of a query
shows with every query."""

import logging
from types import TracebackType

_seen: set[tuple[type[BaseException], str, int]] = set()


def log_bug_once(log: logging.Logger, exc: BaseException) -> None:
    """Log ``exc``, unless one of its type from the same line has been logged before."""
    key = (type(exc), *_innermost(exc.__traceback__))
    if key not in _seen:
        _seen.add(key)
        log.error("unexpected error; this is a bug of nxdns", exc_info=exc)


def _innermost(traceback: TracebackType | None) -> tuple[str, int]:
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
