"""Log lines and whoever reads stderr: nobody, somebody slow, somebody who has gone."""

import fcntl
import io
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from typing import TextIO

import pytest

from nxdns import logs
from tests.support.as_it_was import logging_as_it_was

# What blocks here blocks for good, and in a call that knows nothing of gevent.
pytestmark = pytest.mark.timeout(10)

OURS = logging.getLogger("nxdns.some.module")
MANY = 5000  # lines: several times what a pipe holds
_DROPPED = re.compile(r"(\d+) log lines were dropped")


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    with logging_as_it_was():
        yield


class Pipe:
    """A pipe with its two ends. It is read when the test says so."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.capacity = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ)
        os.set_blocking(reading, False)
        self.reader = open(reading, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        self.writer: TextIO = open(writing, "w", encoding="utf-8")  # noqa: SIM115

    def read(self) -> str:
        """Everything that is in it."""
        pieces = []
        while piece := self.reader.read(self.capacity):
            pieces.append(piece)
        return b"".join(pieces).decode()

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture
def stderr() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def log_to(stream: TextIO | None, log_format: str = "text") -> None:
    """Send our lines to ``stream``, as to the stderr of a process of its own."""
    with redirect_stderr(stream):
        logs.configure("info", log_format)


def fill(count: int = MANY) -> None:
    for number in range(count):
        OURS.info("line %d of many that nobody reads", number)


def test_lines_that_nobody_reads_are_dropped_and_counted_once_somebody_does(stderr: Pipe) -> None:
    log_to(stderr.writer)
    fill()
    before = stderr.read().splitlines()
    assert 0 < len(before) < MANY
    assert before[-1].endswith(f"line {len(before) - 1} of many that nobody reads")
    OURS.info("somebody reads again")
    note, line = stderr.read().splitlines()
    match = _DROPPED.search(note)
    assert match
    assert len(before) + int(match[1]) == MANY
    assert line.endswith("INFO somebody reads again")
    OURS.info("and it is told once")
    [line] = stderr.read().splitlines()
    assert line.endswith("INFO and it is told once")


def test_in_json_the_note_of_what_was_dropped_is_an_object_as_well(stderr: Pipe) -> None:
    log_to(stderr.writer, "json")
    fill()
    stderr.read()
    OURS.info("somebody reads again")
    *notes, last = [json.loads(line) for line in stderr.read().splitlines()]
    assert last["message"].endswith("somebody reads again")
    assert any(_DROPPED.search(entry["message"]) for entry in [*notes, last])


@pytest.mark.parametrize("length", [4095, 4096, 4097, 50_000])
def test_a_line_that_is_longer_than_a_page_arrives_whole(stderr: Pipe, length: int) -> None:
    log_to(stderr.writer)
    message = "é" * (length // 2) + "." * (length % 2)
    OURS.info("%s", message)
    OURS.info("the next")
    long, short = stderr.read().splitlines()
    assert long.endswith(f" INFO {message}")
    assert short.endswith(" INFO the next")


def test_a_line_that_finds_too_little_room_does_not_wait_for_more(stderr: Pipe) -> None:
    log_to(stderr.writer)
    OURS.info("%s", "x" * (2 * stderr.capacity))
    stderr.read()
    OURS.info("somebody reads again")
    assert "1 log lines were dropped" in stderr.read()


def test_a_reader_that_has_gone_raises_nothing(stderr: Pipe) -> None:
    log_to(stderr.writer)
    stderr.reader.close()
    fill(2)


def test_a_stream_that_is_closed_later_raises_nothing(stderr: Pipe) -> None:
    log_to(stderr.writer)
    stderr.writer.close()
    fill(2)


def _closed_text() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


def _closed_file() -> TextIO:
    stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it is closed
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(_closed_text(), id="text"),
        pytest.param(_closed_file(), id="file"),
        # What Python makes of a stderr that was closed before it started.
        pytest.param(None, id="none"),
    ],
)
def test_a_stream_that_is_closed_from_the_start_raises_nothing(stream: TextIO | None) -> None:
    log_to(stream)
    fill(2)


def test_a_stream_that_is_no_file_takes_every_line() -> None:
    stream = io.StringIO()
    log_to(stream)
    fill()
    assert len(stream.getvalue().splitlines()) == MANY
