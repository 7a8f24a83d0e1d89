"""What systemd is told about the state of the service (sd_notify(3))."""

import os
import time

from gevent import socket

_US_PER_NS = 1000


def notify(*assignments: str) -> bool:
    """Send ``READY=1`` and the like; whether somebody was there to be told.

    Never waits, and a supervisor that does not listen is no reason to fail.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # the abstract namespace, unix(7)
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.0)
            sock.sendto("\n".join(assignments).encode(), address)
    except OSError:
        return False
    return True


def reloading() -> tuple[str, str]:
    """The assignments that begin a reload: systemd wants to know when it began (microseconds)."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // _US_PER_NS}"
