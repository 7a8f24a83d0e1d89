"""What each feature costs a query, by instructions: free of noise, so that once is enough."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.subjects import Bench, Skip
from tests.bench.table import Figures
from tests.bench.without import FEATURES
from tests.support.instructions import Forwarding, is_compiled

LAUNCHER = "tests/bench/without.py"
# Fewer than a test needs that holds a limit: half a percent of a query may be noise here.
_FEW, _MANY = 128, 640


def features(bench: Bench) -> Iterator[tuple[str, Figures]]:
    """A query without each of the features, and how much less that is."""
    if is_compiled():
        raise Skip("nxdns runs compiled, and only in an interpreted one can a feature be replaced")
    if shutil.which("valgrind") is None:
        raise Skip("valgrind is not installed")
    whole = _instructions(bench, Forwarding(few=_FEW, many=_MANY))
    yield "whole query", {"instructions": whole, "less": 0.0, "less %": 0.0}
    for feature in FEATURES:
        program = (LAUNCHER, feature)
        rest = _instructions(bench, Forwarding(program=program, few=_FEW, many=_MANY))
        less = whole - rest
        yield (
            f"without {feature}",
            {"instructions": rest, "less": less, "less %": less / whole * 100},
        )


def _instructions(bench: Bench, forwarding: Forwarding) -> float:
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        return forwarding.per_query(Path(folder)).instructions
