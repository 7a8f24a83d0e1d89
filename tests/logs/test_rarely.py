"""Rarely: a warning at once, then how many more there were."""

import logging
from collections.abc import Iterator

import gevent
import pytest

from nxdns.logs.rarely import Rarely
from tests.support.waiting import eventually

_log = logging.getLogger("tests.rarely")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What has been logged, as it grows."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    seen: list[str] = []
    handler = Lines()
    _log.addHandler(handler)
    yield seen
    _log.removeHandler(handler)


def test_the_first_of_a_kind_is_logged_at_once_and_the_others_are_not(lines: list[str]) -> None:
    rarely = Rarely(_log)
    for number in range(1000):
        rarely.warning("full", "full: %d", number)
        rarely.warning("short", "short")
    assert lines == ["full: 0", "short"]
    rarely.close()


def test_at_the_end_of_the_interval_a_line_says_how_many_more_there_were(
    lines: list[str],
) -> None:
    rarely = Rarely(_log, interval_seconds=0.01)
    for number in range(400):
        rarely.warning("full", "full: %d in flight, 100%% %s", number, "of them")
    eventually(lambda: len(lines) == 2)
    assert lines[1] == "full: 399 in flight, 100% of them (399 more times)"
    rarely.close()


def test_a_storm_that_goes_on_has_one_line_an_interval_and_every_event_is_in_one(
    lines: list[str],
) -> None:
    rarely = Rarely(_log, interval_seconds=0.01)
    said = 0
    while len(lines) < 4:
        rarely.warning("full", "full")
        said += 1
        gevent.sleep(0)
    told = [int(line.split("(")[1].split()[0]) for line in lines[1:]]
    assert 1 + sum(told) == said or 1 + sum(told) == said - 1
    rarely.close()


def test_after_a_quiet_interval_the_next_one_is_logged_at_once_again(lines: list[str]) -> None:
    rarely = Rarely(_log, interval_seconds=0.001)
    rarely.warning("full", "full")
    eventually(lambda: not rarely._silences)
    rarely.warning("full", "full again")
    assert lines == ["full", "full again"]
    rarely.close()


def test_one_that_is_closed_says_nothing_more(lines: list[str]) -> None:
    rarely = Rarely(_log, interval_seconds=0.001)
    rarely.warning("full", "full")
    rarely.warning("full", "full")
    rarely.close()
    other = Rarely(_log, interval_seconds=0.002)
    other.warning("short", "short")
    eventually(lambda: not other._silences)
    assert lines == ["full", "short"]


def test_what_it_remembers_is_bounded_however_many_kinds_there_are(lines: list[str]) -> None:
    rarely = Rarely(_log)
    for number in range(1000):
        rarely.warning(f"kind {number}", "x")
        assert len(rarely._silences) <= 256
    assert len(lines) == 1000
    rarely.close()
