"""nxdns without what it does by the clock, so that only what each query costs is counted.

``python tests/support/clockless.py serve --config FILE``
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from nxdns import cli
from nxdns.upstream import deadlines

_LONGER_THAN_ANY_RUN_SECONDS = 86_400.0


def stop_the_clock() -> None:
    """Let no sweep for deadlines come: one comes every so many milliseconds, and a slow machine
    answers fewer queries between two of them."""
    if not isinstance(deadlines.SWEEP_SECONDS, float):
        raise TypeError("this no longer is what decides how often deadlines are looked at")
    deadlines.SWEEP_SECONDS = _LONGER_THAN_ANY_RUN_SECONDS


if __name__ == "__main__":
    stop_the_clock()
    cli.run()
