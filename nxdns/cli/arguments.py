"""What several verbs read from the command line."""

import argparse
from collections.abc import Callable


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: a decimal number from ``low`` to ``high``."""

    def parse(text: str) -> int:
        # isdigit alone takes a superscript two for a digit, and int does not.
        decimal = text.isascii() and text.isdigit() and len(text) <= len(str(high))
        if not decimal or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"must be a number from {low} to {high}")
        return int(text)

    return parse
