"""What a test may not leave behind."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import gevent


def open_descriptors() -> int:
    """Descriptors of this process that are open now."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def greenlets_alive() -> int:
    """Greenlets of gevent that have begun, or are to begin, and have not ended."""
    gc.collect()
    return sum(isinstance(each, gevent.Greenlet) and not each.dead for each in gc.get_objects())


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Fails when the block leaves more descriptors open than it found."""
    before = open_descriptors()
    yield
    gevent.idle()  # sockets closed under a waiting greenlet are let go by the loop
    assert open_descriptors() <= before
