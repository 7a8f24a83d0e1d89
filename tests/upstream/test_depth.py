"""How deep an upstream's sessions are, and for how long they are not."""

import pytest

from nxdns.upstream.depth import PIPELINE_DEPTH, Depth
from tests.support.fake_leaves import SECOND

T0 = 1_000 * SECOND


@pytest.mark.parametrize("limit", [0, -1])
def test_a_session_that_carries_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Depth(limit)


def test_eight_sessions_carry_256() -> None:
    assert 8 * PIPELINE_DEPTH == 256


@pytest.mark.parametrize("limit", [1, 2, 32])
def test_a_depth_is_its_limit_until_told_otherwise(limit: int) -> None:
    assert Depth(limit).at(T0) == limit


def test_a_serial_upstream_carries_one_exchange_a_session_for_a_minute() -> None:
    depth = Depth(32)
    depth.be_serial(T0)
    seen = [depth.at(T0 + at) for at in (0, 60 * SECOND - 1, 60 * SECOND, 61 * SECOND)]
    assert seen == [1, 1, 32, 32]
    assert depth.limit == 32


def test_each_sign_of_a_serial_upstream_extends_the_minute() -> None:
    depth = Depth(32)
    depth.be_serial(T0)
    depth.be_serial(T0 + 40 * SECOND)
    assert depth.at(T0 + 99 * SECOND) == 1
    assert depth.at(T0 + 100 * SECOND) == 32


def test_a_sign_that_is_told_late_never_shortens_the_minute() -> None:
    depth = Depth(32)
    depth.be_serial(T0 + 40 * SECOND)
    depth.be_serial(T0)
    assert depth.at(T0 + 99 * SECOND) == 1
