"""Fixtures of the command line's tests."""

from collections.abc import Iterator

import pytest

from tests.support.as_it_was import logging_as_it_was


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A verb that runs in this process sets up its logging; the next test must not find it so."""
    with logging_as_it_was():
        yield


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What argparse takes for the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
