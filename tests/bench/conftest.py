"""What every bench needs: a place to print to."""

from collections.abc import Callable

import pytest


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a line past pytest's capture: a bench is run for its figures."""

    def print_line(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", end="")

    return print_line
