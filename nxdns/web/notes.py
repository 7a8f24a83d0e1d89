"""What the page tells its owner in words. Pure."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that its owner should know."""

    key: str
    """The same for the same thing at the next look."""
    severity: Severity
    title: str
    cause: str
    what_to_do: str
    details: tuple[str, ...] = ()
    """Lines to read as they are, as those of a configuration that was refused."""
