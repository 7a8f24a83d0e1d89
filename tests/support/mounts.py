"""File systems of a test's own: permission bits do not stop root, a read-only mount does."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gevent import subprocess


class Mount:
    """A file system in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remount(self, *options: str) -> None:
        """Such as ``ro``, ``rw``, ``size=1m``. Nothing in it may be open for writing if ``ro``."""
        _run("mount", "-o", ",".join(["remount", *options]), str(self.folder))


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Mount]:
    """A tmpfs of ``size``, as ``64k``, on ``folder``. Skips the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    if os.geteuid():
        pytest.skip("only root may mount")
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounting.returncode:
        pytest.skip(f"no mounts here: {mounting.stderr.decode().strip()}")
    try:
        yield Mount(folder)
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
