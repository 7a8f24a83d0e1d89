"""What is known of one exchange with an upstream. Pure."""

import enum
from typing import Final


class Phase(enum.IntEnum):
    """Where the time of an exchange goes. The lower-case name is the label on every surface."""

    QUEUE = 0
    DIAL = 1
    TLS = 2
    SEND = 3
    FIRST_BYTE = 4
    REST = 5

    @property
    def label(self) -> str:
        return self.name.lower()


# As plain integers: an enumeration's members cost on the path of a query.
QUEUE: Final = 0
DIAL: Final = 1
TLS: Final = 2
SEND: Final = 3
FIRST_BYTE: Final = 4
REST: Final = 5


class ExchangeInfo:
    """How an exchange was done.

    Times are nanoseconds, 0 for a phase that did not happen. After a redial they are those of the
    last try.
    """

    __slots__ = (
        "dial_ns",
        "first_byte_ns",
        "hint",
        "opened_at",
        "phase",
        "rest_ns",
        "reused",
        "send_ns",
        "tls_ns",
        "tls_version",
    )

    def __init__(self) -> None:
        #: Whether a session that had been open before carried it.
        self.reused = False
        #: Such as ``TLSv1.3``; "" while no handshake has been completed.
        self.tls_version = ""
        #: What the owner of this upstream might do about its fault, or "".
        self.hint = ""
        #: When the session that carried it was open, monotonic nanoseconds; 0 while there is none.
        self.opened_at = 0
        #: The :class:`Phase` that it is in, or was in when it ended.
        self.phase = DIAL
        self.dial_ns = self.tls_ns = self.send_ns = self.first_byte_ns = self.rest_ns = 0

    def begin(self, *, reused: bool, tls_version: str) -> None:
        """Forget the try before."""
        self.reused = reused
        self.tls_version = tls_version
        self.hint = ""
        self.opened_at = 0
        self.phase = SEND if reused else DIAL
        self.dial_ns = self.tls_ns = self.send_ns = self.first_byte_ns = self.rest_ns = 0
