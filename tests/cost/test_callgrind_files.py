"""What is read out of the files that callgrind writes."""

from tests.support.instructions import Counted, read_callgrind

_FILE = """\
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir

ob=(1) /usr/bin/python3.11
fl=(1) ???
fn=(1) main
0 7
cob=(2) /usr/lib/libc.so.6
cfn=(2) malloc
calls=3 0
0 90
cfn=(3) free
calls=9 0
0 90

ob=(2)
fn=(3)
0 5

fn=(4) grow
0 2
cob=(2)
cfn=(2)
calls=4 0
0 8
cfn=(5) realloc
calls=2 0
0 8
cfn=(6) calloc
calls=1 0
0 8
cfn=(7) malloc_usable_size
calls=50 0
0 8

totals: 220
"""


def test_all_instructions_and_the_calls_of_each_allocator_are_summed_up() -> None:
    assert read_callgrind(_FILE) == Counted(220, 3 + 4 + 2 + 1)


def test_what_both_runs_did_is_in_no_query() -> None:
    assert Counted(2200, 30).per_query(Counted(200, 10), 10) == Counted(200, 2)
