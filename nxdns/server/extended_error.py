"""Why there was no answer, for clients that can tell their owner (RFC 8914)."""

from typing import Final

from greenlet import GreenletExit

from nxdns.dns.edns import EXTENDED_ERROR, encode_options
from nxdns.upstream.transport import LocalResource, PeerFault

OTHER: Final = 0  # RFC 8914 §4.1
NO_REACHABLE_AUTHORITY: Final = 22  # RFC 8914 §4.23
NETWORK_ERROR: Final = 23  # RFC 8914 §4.24

# So that the reply fits the smallest datagram, with the longest name.
_MAX_TEXT: Final = 192


def _option(code: int, text: bytes = b"") -> bytes:
    return encode_options([(EXTENDED_ERROR, code.to_bytes(2, "big") + text)])


UNEXPLAINED: Final = _option(OTHER)


def extended_error(error: PeerFault | LocalResource | GreenletExit) -> bytes:
    """An OPT's RDATA: the code, and ``1 cloudflare: Timeout; 2 google: backoff 12s``."""
    if isinstance(error, GreenletExit):
        return b""
    code = OTHER
    if isinstance(error, PeerFault) and error.tried:
        all_at_connect = all(tried.at_connect for tried in error.tried)
        code = NETWORK_ERROR if all_at_connect else NO_REACHABLE_AUTHORITY
    text = "; ".join(map(str, error.tried)).encode()
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 3].decode(errors="ignore").encode() + b"..."
    return _option(code, text)
