"""One browser for all tests that look at the page: it takes seconds to start."""

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser, browser, is_wanted


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Started once."""
    if not is_wanted():
        pytest.skip("there is no chromium with its chromedriver; Debian has both")
    with browser() as started:
        yield started


@pytest.fixture
def window(chromium: Browser) -> Iterator[Browser]:
    """An empty page of the size of a desk, in light colours; its console ends empty."""
    chromium.open("about:blank")
    chromium.resize(1200, 900)
    chromium.prefer("light")
    chromium.console()
    yield chromium
    said = chromium.console()
    chromium.open("about:blank")
    assert said == []
