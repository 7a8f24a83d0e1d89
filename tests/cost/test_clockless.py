"""The event loop of a process that is counted."""

from tests.support.clockless import LOOP, ClocklessLoop


def test_it_is_found_by_its_name() -> None:
    module, _, name = LOOP.rpartition(".")
    assert getattr(__import__(module, fromlist=[name]), name) is ClocklessLoop


def test_a_timer_that_repeats_does_not_fire_and_one_that_does_not_does() -> None:
    fired: list[str] = []
    looping = ClocklessLoop(default=False)
    try:
        repeating = looping.timer(0.001, 0.001, ref=False)
        once = looping.timer(0.02)
        repeating.start(fired.append, "repeating")
        once.start(fired.append, "once")
        looping.run()
        repeating.close()
        once.close()
    finally:
        looping.destroy()
    assert fired == ["once"]
