"""How an attempt ends whose time is up."""

from gevent import Timeout


class AttemptExpired(Timeout):  # type: ignore[misc]  # gevent ships no types
    """Thrown into whoever makes an attempt, when its time is up."""
