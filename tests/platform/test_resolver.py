"""Lookups in threads of their own: what is stuck there holds up nobody else."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
from gevent import socket

from nxdns.platform.resolver import RESOLVER_THREADS, Resolver
from tests.support.lookups import let_lookups_fail, no_thread_to_start, nothing_told
from tests.support.waiting import eventually


class StuckSystem:
    """A getaddrinfo that waits in its thread, as for a name server that is gone."""

    def __init__(self) -> None:
        self.entered = 0
        self._read, self._write = os.pipe()

    def getaddrinfo(self, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        self.entered += 1
        os.read(self._read, 1)  # a wait that knows nothing of gevent
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 443))]

    def let_go(self, lookups: int) -> None:
        os.write(self._write, b"." * lookups)

    def close(self) -> None:
        self.let_go(100)
        os.close(self._write)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckSystem]:
    system = StuckSystem()
    monkeypatch.setattr("socket.getaddrinfo", system.getaddrinfo)
    yield system
    system.close()


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    resolver = Resolver()
    yield resolver
    resolver.close()


def threads() -> int:
    """Native threads of this process."""
    return len(os.listdir("/proc/self/task"))


def test_localhost_is_found_at_a_loopback_address(resolver: Resolver) -> None:
    found = resolver.lookup("localhost", 443)
    assert found
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(found) == len(set(found))


@pytest.mark.parametrize("literal", ["127.0.0.1", "::1"])
def test_a_literal_is_its_own_address(resolver: Resolver, literal: str) -> None:
    assert resolver.lookup(literal, 443) == [literal]


def test_each_address_is_given_once_in_the_order_of_the_system(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = ["2001:db8::2", "192.0.2.9", "2001:db8::2", "192.0.2.1", "192.0.2.9"]

    def getaddrinfo(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return [(0, 0, 0, "", (address, 443)) for address in order]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    assert resolver.lookup("doh.test", 443) == ["2001:db8::2", "192.0.2.9", "192.0.2.1"]


def test_an_unknown_name_is_told_apart(resolver: Resolver) -> None:
    # Longer than a name can be, so that the system refuses it without asking another machine.
    with pytest.raises(socket.gaierror):
        resolver.lookup(".".join(["a" * 60] * 6), 443)
    assert resolver.lookup("localhost", 443)


def test_a_lookup_that_fails_in_its_thread_is_no_bug_and_nothing_to_tell(
    resolver: Resolver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    let_lookups_fail(monkeypatch)
    with nothing_told(caplog, capfd):
        for _ in range(2):
            with pytest.raises(socket.gaierror):
                resolver.lookup("doh.test", 443)


def test_a_thread_that_cannot_be_started_is_a_lack_of_memory_and_the_next_lookup_finds_one(
    resolver: Resolver,
) -> None:
    with no_thread_to_start():
        for _ in range(RESOLVER_THREADS + 1):  # none of them keeps a place of another's
            with pytest.raises(OSError, match="no thread") as raised:
                resolver.lookup("localhost", 443)
            assert raised.value.errno == errno.ENOMEM
    assert resolver.lookup("localhost", 443)


@contextmanager
def out_of_descriptors() -> Iterator[None]:
    """Nothing more can be opened inside the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_lack_of_descriptors_is_not_taken_for_an_unknown_name(resolver: Resolver) -> None:
    resolver.lookup("localhost", 443)  # its thread is there
    with out_of_descriptors(), pytest.raises(OSError, match="Too many open files") as raised:
        resolver.lookup("nxdns.invalid", 443)
    assert not isinstance(raised.value, socket.gaierror)


def test_what_the_system_calls_a_temporary_failure_may_be_a_lack_of_descriptors(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    with pytest.raises(socket.gaierror):
        resolver.lookup("doh.test", 443)
    with out_of_descriptors(), pytest.raises(OSError, match="Too many open files") as raised:
        resolver.lookup("doh.test", 443)
    assert not isinstance(raised.value, socket.gaierror)


@pytest.mark.parametrize("exception", [gevent.GreenletExit, gevent.Timeout])
def test_a_stuck_lookup_can_be_given_up_at_once(
    resolver: Resolver, stuck: StuckSystem, exception: type[BaseException]
) -> None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            resolver.lookup("doh.test", 443)
        except (gevent.GreenletExit, gevent.Timeout) as error:
            caught.append(error)

    task = gevent.spawn(run)
    eventually(lambda: stuck.entered)
    thrown = exception()
    task.kill(thrown)
    assert caught == [thrown]


def test_the_loop_runs_on_while_every_thread_is_stuck(
    resolver: Resolver, stuck: StuckSystem
) -> None:
    tasks = [gevent.spawn(resolver.lookup, f"{n}.test", 443) for n in range(RESOLVER_THREADS + 2)]
    eventually(lambda: stuck.entered >= RESOLVER_THREADS)
    gevent.sleep(0.001)
    assert not any(task.ready() for task in tasks)
    # Nor do they keep gevent's own threads from anybody.
    assert gevent.get_hub().threadpool.apply(sum, ([1, 2],)) == 3
    stuck.let_go(len(tasks))
    gevent.joinall(tasks, raise_error=True)
    assert [task.value for task in tasks] == [["192.0.2.1"]] * len(tasks)


def test_no_more_threads_than_its_own_are_ever_used(resolver: Resolver, stuck: StuckSystem) -> None:
    before = threads()
    tasks = [gevent.spawn(resolver.lookup, f"{n}.test", 443) for n in range(20)]
    eventually(lambda: stuck.entered >= RESOLVER_THREADS)
    gevent.sleep(0.001)
    assert stuck.entered == RESOLVER_THREADS
    assert threads() <= before + RESOLVER_THREADS
    stuck.let_go(len(tasks))
    gevent.joinall(tasks, raise_error=True)


def test_lookups_that_were_given_up_do_not_use_the_threads_up(
    resolver: Resolver, stuck: StuckSystem
) -> None:
    for _ in range(3):
        tasks = [gevent.spawn(resolver.lookup, f"{n}.test", 443) for n in range(20)]
        gevent.sleep(0.001)
        gevent.killall(tasks)
    stuck.let_go(100)
    with gevent.Timeout(5):
        assert resolver.lookup("doh.test", 443) == ["192.0.2.1"]


def test_close_does_not_wait_for_a_stuck_lookup_and_its_threads_end_in_time(
    stuck: StuckSystem,
) -> None:
    before = threads()
    resolver = Resolver()
    tasks = [gevent.spawn(resolver.lookup, f"{n}.test", 443) for n in range(2)]
    eventually(lambda: stuck.entered == 2)
    switched = gevent.spawn(lambda: None)
    resolver.close()
    resolver.close()
    assert not switched.dead  # it did not even switch
    assert not any(task.ready() for task in tasks)
    stuck.let_go(2)
    gevent.joinall(tasks, raise_error=True)
    eventually(lambda: threads() <= before)


def test_close_of_a_resolver_never_used_is_safe() -> None:
    before = threads()
    resolver = Resolver()
    resolver.close()
    assert threads() == before
