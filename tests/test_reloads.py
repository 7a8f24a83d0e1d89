"""What became of the reloads."""

from nxdns.reloads import Reloads
from nxdns.snapshots import ReloadSnapshot
from tests.storage.stores import NOW, WallClock


def test_the_start_counts_as_a_success_and_as_no_reload() -> None:
    assert Reloads(WallClock()).snapshot() == ReloadSnapshot(0, 0, True, NOW, ())


def test_each_is_counted_and_the_last_one_is_told_with_its_problems() -> None:
    wall = WallClock()
    reloads = Reloads(wall)
    wall.now += 1
    reloads.failed(["line 3: no", "line 4: nor this"])
    failed = reloads.snapshot()
    assert failed == ReloadSnapshot(0, 1, False, NOW + 1, ("line 3: no", "line 4: nor this"))
    wall.now += 1
    reloads.succeeded(["[web] has changed, which needs a restart"])
    assert reloads.snapshot() == ReloadSnapshot(
        1, 1, True, NOW + 2, ("[web] has changed, which needs a restart",)
    )
    reloads.succeeded([])
    assert reloads.snapshot().problems == ()
    assert failed.failed_total == 1, "a snapshot is a copy"
