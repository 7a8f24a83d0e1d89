"""Prometheus' own judge of metrics, rules and expressions."""

import shutil
from pathlib import Path

import pytest
from gevent import Timeout, subprocess

_PATIENCE_SECONDS = 20.0

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: Debian's package prometheus"
)


def promtool(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str]:
    """Its exit status, and all that it said."""
    process = subprocess.Popen(
        ["promtool", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with Timeout(_PATIENCE_SECONDS, AssertionError("promtool does not end")):
        output, _ = process.communicate(stdin)
    return process.returncode, output.decode()
