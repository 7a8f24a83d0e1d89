"""setuptools' build backend (PEP 517), which brings a compiler along where one is asked for.

See setup.py for NXDNS_COMPILE. mypyc reads the types of what nxdns imports, so these must be there
while it compiles, too: the set that was tested.
"""

import os
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """See PEP 517."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """See PEP 660."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def _compiler() -> list[str]:
    if os.environ.get("NXDNS_COMPILE") != "1":
        return []
    tested = Path(__file__).with_name("requirements.txt").read_text().splitlines()
    return ["mypy==2.4.1", *(line for line in tested if line and not line.startswith("#"))]
