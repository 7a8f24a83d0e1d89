"""How both listeners end what they have under way."""

from typing import Any

# A greenlet that is killed ends at once; one that cannot must not hang a stop.
_KILL_SECONDS = 1.0


def end(greenlets: Any, timeout_seconds: float) -> None:
    """Let all greenlets of a pool end by themselves, and kill what has not in time."""
    greenlets.join(timeout_seconds)
    greenlets.kill(timeout=_KILL_SECONDS)
