"""``python -m tests.fuzz TARGET [argument of libFuzzer…]``; needs atheris."""

import importlib
import sys

import atheris

from tests.fuzz import TARGETS


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"one of {', '.join(TARGETS)}, please")
    with atheris.instrument_imports(include=["nxdns"]):
        module = importlib.import_module(f"tests.fuzz.{name}")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], module.target)
    atheris.Fuzz()


main()
