"""Whether a failed exchange may be tried once more on a fresh dial. Pure."""

import enum
from typing import Final

from nxdns.upstream.errors import Cause


class Decision(enum.Enum):
    """What to do with a failed exchange."""

    RETRY = enum.auto()
    FINAL = enum.auto()


# What a peer that hung up on an idle session looks like from here. RFC 7858 §3.4 and RFC 9112
# §9.3 let it do so at any time, so none of these is evidence of ill health. The last one is all
# that DoH's HTTP library lets us see of the first three.
LIFECYCLE: Final = frozenset(
    {
        Cause.END_OF_STREAM,
        Cause.TLS_CONNECTION_TRUNCATED,
        Cause.CONNECTION_RESET_BY_PEER,
        Cause.BROKEN_PIPE,
        Cause.HTTP_CONNECTION_CLOSING,
    }
)


def retry_decision(*, reused: bool, bytes_received: int, cause: str) -> Decision:
    """Retry only on a reused session that ended before the first byte of this response.

    A fresh session that fails, a response that had begun and any other cause are final: to try
    those again would hide a sick upstream behind a doubled latency.
    """
    if reused and bytes_received == 0 and cause in LIFECYCLE:
        return Decision.RETRY
    return Decision.FINAL
