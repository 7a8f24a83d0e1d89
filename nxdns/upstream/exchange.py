"""What is known of one exchange with an upstream. Pure."""


class ExchangeInfo:
    """How an exchange was done.

    Times are nanoseconds, 0 for a phase that did not happen. After a redial they are those of the
    last try.
    """

    __slots__ = (
        "dial_ns",
        "first_byte_ns",
        "hint",
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
        self.dial_ns = self.tls_ns = self.send_ns = self.first_byte_ns = self.rest_ns = 0

    def begin(self, *, reused: bool, tls_version: str) -> None:
        """Forget the try before."""
        self.reused = reused
        self.tls_version = tls_version
        self.hint = ""
        self.dial_ns = self.tls_ns = self.send_ns = self.first_byte_ns = self.rest_ns = 0
