"""Greenlets that park between jobs: bounded, reused, and never lost."""

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult, Event
from greenlet import getcurrent

from nxdns.server.workers import Workers
from tests.support.fake_clients import settle
from tests.support.waiting import eventually


def submit(workers: Workers, *job: Any) -> bool:
    """``workers.submit`` as the event loop calls it."""
    result = AsyncResult()
    gevent.get_hub().loop.run_callback(lambda: result.set(workers.submit(*job)))
    accepted: bool = result.get(timeout=10)
    return accepted


class Gate:
    """A job that waits until the gate is opened."""

    def __init__(self) -> None:
        self.open = Event()
        self.begun = 0
        self.inside = 0
        self.ended = 0
        self.killed = 0

    def __call__(self) -> None:
        self.begun += 1
        self.inside += 1
        try:
            self.open.wait()
            self.ended += 1
        except gevent.GreenletExit:
            self.killed += 1
            raise
        finally:
            self.inside -= 1


def test_a_job_gets_what_was_submitted() -> None:
    seen: list[tuple[str, int]] = []
    workers = Workers(1, lambda word, number: seen.append((word, number)))
    assert submit(workers, "one", 1)
    eventually(lambda: seen)
    assert seen == [("one", 1)]
    workers.drain(0)


def test_one_greenlet_does_job_after_job() -> None:
    greenlets = []
    workers = Workers(8, lambda: greenlets.append(getcurrent()))
    for _ in range(100):
        assert submit(workers)
        eventually(lambda: workers.busy == 0)
    assert len(greenlets) == 100
    assert len(set(greenlets)) == 1
    workers.drain(0)


def test_a_parked_worker_runs_a_job_that_does_not_wait_before_submit_returns() -> None:
    done: list[int] = []
    workers = Workers(1, done.append)
    submit(workers, 1)
    eventually(lambda: done == [1])
    ran: list[bool] = []

    def in_the_loop() -> None:
        workers.submit(2)
        ran.append(done == [1, 2])

    gevent.get_hub().loop.run_callback(in_the_loop)
    eventually(lambda: ran)
    assert ran == [True]
    workers.drain(0)


def test_when_all_are_busy_a_job_is_refused_and_not_kept() -> None:
    gate = Gate()
    workers = Workers(3, gate)
    assert [submit(workers) for _ in range(5)] == [True, True, True, False, False]
    eventually(lambda: gate.begun == 3)
    assert workers.busy == 3
    gate.open.set()
    eventually(lambda: workers.busy == 0)
    settle()
    assert gate.begun == gate.ended == 3
    assert submit(workers), "there is room again"
    workers.drain(10)
    assert gate.ended == 4


def test_a_burst_leaves_no_more_greenlets_parked_than_are_to_be_kept() -> None:
    gate = Gate()
    greenlets = set()

    def job() -> None:
        greenlets.add(getcurrent())
        gate()

    workers = Workers(20, job, keep=3)
    assert all(submit(workers) for _ in range(20))
    eventually(lambda: gate.begun == 20)
    gate.open.set()
    eventually(lambda: workers.busy == 0)
    settle()
    assert sum(not each.dead for each in greenlets) == 3
    assert all(submit(workers) for _ in range(20))
    workers.drain(10)
    assert gate.ended == 40


def test_a_parked_worker_holds_nothing_of_the_job_it_has_done() -> None:
    class Thing:
        pass

    workers = Workers(1, lambda _thing: None)
    thing = Thing()
    gone = weakref.ref(thing)
    submit(workers, thing)
    eventually(lambda: workers.busy == 0)
    del thing
    gc.collect()
    assert gone() is None
    workers.drain(0)


def test_a_burst_leaves_no_more_greenlets_than_its_size() -> None:
    greenlets = set()
    gate = Gate()

    def job() -> None:
        greenlets.add(getcurrent())
        gate()

    workers = Workers(4, job)
    for _ in range(3):
        gate.open.clear()
        assert all(submit(workers) for _ in range(4))
        eventually(lambda: gate.inside == 4)
        gate.open.set()
        eventually(lambda: workers.busy == 0)
    assert gate.ended == 12
    assert len(greenlets) == 4
    workers.drain(0)


def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError("a bug"), id="an-exception"),
        pytest.param(gevent.Timeout(), id="a-timeout-that-nobody-caught"),
    ],
)
def test_a_job_that_raises_is_logged_and_costs_no_worker(
    error: BaseException, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    greenlets = set()

    def job(run: Callable[[], None]) -> None:
        greenlets.add(getcurrent())
        run()

    workers = Workers(1, job)
    assert submit(workers, lambda: raise_(error))
    eventually(lambda: greenlets and workers.busy == 0)
    done = Event()
    assert submit(workers, done.set)
    assert done.wait(10)
    assert len(greenlets) == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert capfd.readouterr().err == ""
    workers.drain(0)


@pytest.mark.parametrize("parked", [True, False], ids=["parked", "at-work"])
def test_a_worker_that_is_killed_makes_room_for_another(parked: bool) -> None:
    greenlets = []
    gate = Gate()

    def job() -> None:
        greenlets.append(getcurrent())
        gate()

    workers = Workers(1, job)
    assert submit(workers)
    eventually(lambda: gate.begun == 1)
    if parked:
        gate.open.set()
        eventually(lambda: workers.busy == 0)
    greenlets[0].kill()
    eventually(lambda: workers.busy == 0)
    assert submit(workers)
    eventually(lambda: gate.begun == 2)
    assert greenlets[0] is not greenlets[1]
    workers.drain(0)


def test_drain_waits_for_the_jobs_under_way() -> None:
    gate = Gate()
    workers = Workers(2, gate)
    assert submit(workers)
    assert submit(workers)
    eventually(lambda: gate.begun == 2)
    draining = gevent.spawn(workers.drain, 10)
    settle()
    assert not draining.dead
    gate.open.set()
    draining.get(timeout=10)
    assert (gate.ended, gate.killed) == (2, 0)


@pytest.mark.parametrize("patience_seconds", [0, 0.01])
def test_drain_kills_what_exceeds_its_patience(patience_seconds: float) -> None:
    gate = Gate()
    workers = Workers(2, gate)
    assert submit(workers)
    workers.drain(patience_seconds)
    assert (gate.begun, gate.ended, gate.killed) == (1, 0, 1)
    assert workers.busy == 0


def test_drain_ends_parked_workers_at_once() -> None:
    gate = Gate()
    greenlets = []

    def job() -> None:
        greenlets.append(getcurrent())
        gate()

    workers = Workers(3, job)
    for _ in range(3):
        assert submit(workers)
    gate.open.set()
    eventually(lambda: gate.ended == 3 and workers.busy == 0)
    with gevent.Timeout(5, AssertionError("drain waits for workers that have no job")):
        workers.drain(60)
    assert all(greenlet.dead for greenlet in greenlets)


def test_after_a_drain_no_job_is_taken() -> None:
    gate = Gate()
    gate.open.set()
    workers = Workers(2, gate)
    assert submit(workers)
    workers.drain(10)
    assert not submit(workers)
    settle()
    assert gate.begun == 1


def test_while_draining_a_worker_that_ends_its_job_takes_no_other() -> None:
    gate = Gate()
    workers = Workers(2, gate)
    assert submit(workers)
    eventually(lambda: gate.begun == 1)
    draining = gevent.spawn(workers.drain, 10)
    settle()
    assert not submit(workers), "there is room, but not for this"
    gate.open.set()
    draining.get(timeout=10)
    assert gate.begun == 1


def test_a_drain_without_jobs_and_a_second_one_change_nothing() -> None:
    workers = Workers(2, Gate())
    with gevent.Timeout(5, AssertionError("drain waits for nothing")):
        workers.drain(60)
        workers.drain(60)
    assert workers.busy == 0
