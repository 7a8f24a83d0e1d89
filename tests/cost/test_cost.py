"""What a forwarded query costs at most, by counting: a slow machine is as good as a fast one.

Needs valgrind; without it these are skipped, or fail where NXDNS_VALGRIND_REQUIRED is set.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.instructions import Forwarding, is_compiled

# Valgrind starts Python in seconds, or in a minute beside other work, twice over here.
pytestmark = [pytest.mark.cost, pytest.mark.timeout(600)]

_REQUIRED = "NXDNS_VALGRIND_REQUIRED"
_SPARE = 1.03  # far beyond what two runs differ by, and less than any change worth a look


@dataclass(frozen=True)
class _Measured:
    """What a query over DoT was measured at, one at a time, when somebody last looked closely.

    Whoever makes it cheaper lowers these, whoever makes it dearer on purpose raises them, and the
    message of that commit says what it bought.
    """

    #: With a CPython 3.11 built without more ado, as pyenv does. Debian's is optimised by profile,
    #: which nothing in it tells, and needs 7 % less.
    instructions: int
    #: Calls of malloc, calloc and realloc, all of Python's own allocations among them.
    allocations: int


_INTERPRETED = _Measured(instructions=196_000, allocations=128)
_COMPILED = _Measured(instructions=93_500, allocations=97)


@pytest.fixture
def limits() -> _Measured:
    """Of the build that is tested."""
    if shutil.which("valgrind") is None:
        (pytest.fail if os.environ.get(_REQUIRED) else pytest.skip)("Debian's package valgrind")
    return _COMPILED if is_compiled() else _INTERPRETED


def test_a_forwarded_query_needs_no_more_instructions_than_it_did(
    tmp_path: Path, limits: _Measured
) -> None:
    cost = Forwarding().per_query(tmp_path)
    assert 0 < cost.instructions <= limits.instructions * _SPARE


def test_a_forwarded_query_allocates_no_more_blocks_than_it_did(
    tmp_path: Path, limits: _Measured
) -> None:
    cost = Forwarding(python_malloc=False).per_query(tmp_path)
    assert 0 < cost.allocations <= limits.allocations * _SPARE
