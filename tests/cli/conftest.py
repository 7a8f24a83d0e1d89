"""Fixtures of the command line's tests."""

import logging
from collections.abc import Iterator

import gevent
import pytest


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A verb that runs in this process sets up its logging; the next test must not find it so."""
    loggers = [logging.getLogger(name) for name in ("nxdns", "urllib3")]
    before = [(each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
        each.handlers[:] = handlers
        each.propagate = propagate
        each.setLevel(level)
    vars(gevent.get_hub()).pop("print_exception", None)


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What argparse takes for the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
