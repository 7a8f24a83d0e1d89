"""What a process may lack while a test runs."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptor_free() -> Iterator[None]:
    """Every descriptor that this process asks for is refused with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # what is open stays open
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
