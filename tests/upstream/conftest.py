"""Fixtures of the upstream's tests."""

from collections.abc import Iterator

import pytest

from tests.support.dot_leaves import DEPTHS, leaves_of_depth


@pytest.fixture(params=DEPTHS, ids=lambda depth: f"depth-{depth}")
def at_every_depth(request: pytest.FixtureRequest) -> Iterator[int]:
    """What holds for one exchange at a time holds on a session that could carry more."""
    depth: int = request.param
    with leaves_of_depth(depth):
        yield depth
