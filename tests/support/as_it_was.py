"""What a verb, or a test, sets for the whole process, put back."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import gevent


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Our loggers, and where the hub tells of what escapes a greenlet, are afterwards as before."""
    loggers = [logging.getLogger(name) for name in ("nxdns", "urllib3")]
    before = [(each.handlers[:], each.propagate, each.level) for each in loggers]
    try:
        yield
    finally:
        for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
            each.handlers[:] = handlers
            each.propagate = propagate
            each.setLevel(level)
        vars(gevent.get_hub()).pop("print_exception", None)
