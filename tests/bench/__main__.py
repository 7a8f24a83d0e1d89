"""``python -m tests.bench``: measure nxdns, and beside it what it is compared with.

Rounds are interleaved: each measures every cell once, so that what else the machine does meanwhile
meets all of them. What is shown is the median of the rounds.
"""

import argparse
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from gevent import Timeout

import nxdns
from tests.bench import lab
from tests.bench.cells import CELLS, Cell
from tests.bench.rig import OwnRig, Rig
from tests.bench.subjects import Bench, Plan, Skip
from tests.bench.table import Results
from tests.support.instructions import is_compiled

_ROUNDS = 5
_SECONDS = 2.0
_QUICK = Plan(
    rounds=1,
    seconds=0.3,
    latencies_ms=(0,),
    in_flight=(1, 32),
    bursts=(30,),
    rates=(10, 1_000),
    upstreams=(1, 4),
    memory=(1_000,),
    calls=2_000,
)
_WITHOUT_RIG = frozenset({"walker", "echo", "features"})
_INTERRUPTED = 130  # as a shell has it of a program that Ctrl-C has ended


def select(names: Sequence[str]) -> list[Cell]:
    """The cells that have one of ``names`` as a part of theirs, or as a whole; all for none.

    Raises ValueError for a name of no cell.
    """
    known = {part for cell in CELLS for part in (cell.name, *cell.name.split("."))}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no cell is {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    wanted = set(names)
    return [cell for cell in CELLS if not wanted or wanted & {cell.name, *cell.name.split(".")}]


def measure(bench: Bench, cells: Sequence[Cell], results: Results) -> None:
    """All rounds of ``cells``, into ``results``, which has what was measured if this ends early."""
    for number in range(bench.plan.rounds):
        for cell in cells:
            if cell.name in results.without or (cell.once and number):
                continue
            _say(f"round {number + 1} of {bench.plan.rounds}: {cell.name}")
            rows: Any = cell.rows(bench)
            try:
                # What a round has started ends with it, also when it fails half-way.
                with closing(rows):
                    for row, figures in rows:
                        results.add(row, figures)
            except Skip as skip:
                results.skipped[cell.name] = str(skip)
            except (Exception, Timeout) as exc:  # noqa: BLE001 - the other cells are worth their time
                results.failed[cell.name] = f"{type(exc).__name__}: {exc}"
    results.add_ratio(
        "forwarded query / echo", "dot, 0 ms, 32 in flight", "echo, 32 in flight", "CPU µs"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parse(arguments)
    try:
        cells = select(options.only)
    except ValueError as exc:
        print(f"tests.bench: {exc}", file=sys.stderr)
        return 2
    plan = _QUICK if options.quick else Plan(_ROUNDS, _SECONDS)
    plan = replace(
        plan, rounds=options.rounds or plan.rounds, seconds=options.seconds or plan.seconds
    )
    results = Results()
    status = 0
    # As Ctrl-C: what was started is ended, and what was measured is shown.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    about: dict[str, object] = _about(plan)
    try:
        with ExitStack() as ending:
            folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="nxdns-bench-")))
            rig = _rig(folder, ending, results, cells)
            about["rig"] = rig.about
            measure(Bench(plan, rig, folder), cells, results)
        status = 1 if results.failed else 0
    except KeyboardInterrupt:
        status = _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    print(f"\n{_headline(about)}\n\n{results.render()}", end="")
    if options.json:
        Path(options.json).write_text(results.as_json(about), encoding="utf-8")
    return status


def _rig(folder: Path, ending: ExitStack, results: Results, cells: Sequence[Cell]) -> Rig:
    """The lab's if there is one and it is needed."""
    if any(cell.name not in _WITHOUT_RIG for cell in cells):
        try:
            return lab.LabRig(lab.find(), folder, ending)
        except lab.NoLab as exc:
            results.skipped["lab"] = str(exc)
    return OwnRig(folder, ending)


def _about(plan: Plan) -> dict[str, object]:
    return {
        "nxdns": nxdns.__version__,
        "build": "compiled" if is_compiled() else "interpreted",
        "python": platform.python_version(),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rounds": plan.rounds,
        "seconds": plan.seconds,
    }


def _headline(about: dict[str, object]) -> str:
    return (
        f"nxdns {about['nxdns']}, {about['build']}, Python {about['python']}; medians of "
        f"{about['rounds']} rounds of {about['seconds']} s; {about.get('rig', 'nothing started')}"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {_ROUNDS}")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help=f"of load in each; default {_SECONDS}"
    )
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,NAME",
        help="these cells, such as walker, throughput, burst.dot, unbound",
    )
    parser.add_argument("--quick", action="store_true", help="one short round of fewer cells")
    parser.add_argument("--json", metavar="FILE", help="write all figures of all rounds there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
