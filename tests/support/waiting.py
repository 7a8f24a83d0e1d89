"""Waiting for a fact, in the place of sleeping for a time."""

from collections.abc import Callable

import gevent


def eventually(fact: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Let other greenlets run until ``fact()`` is true; fail when it never becomes so."""
    with gevent.Timeout(seconds, AssertionError(f"never came true in {seconds} s")):
        while not fact():
            gevent.sleep(0.001)
