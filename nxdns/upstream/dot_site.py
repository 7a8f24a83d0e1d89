"""One DoT endpoint, and what its leaves and their sessions have in common."""

from collections.abc import Callable

from OpenSSL import SSL

from nxdns.upstream.depth import Depth
from nxdns.upstream.transport import Endpoint, Scheme, SessionStats


class DotSite:
    """Where to dial, whom to trust, and how long an attempt may take."""

    __slots__ = ("attempt_ns", "context", "depth", "draw_id", "endpoint", "stats", "tls_name")

    def __init__(
        self,
        endpoint: Endpoint,
        tls_name: str | None,
        context: SSL.Context,
        stats: SessionStats,
        depth: Depth,
        *,
        attempt_ns: int,
        draw_id: Callable[[], int],
    ) -> None:
        """``tls_name`` is the name to verify and, if it is none, the SNI; default: the host.

        ``draw_id`` gives the message IDs of its sessions, in [0, 65536). Raises ValueError for an
        endpoint that is not ``tls://``.
        """
        if endpoint.scheme is not Scheme.DOT:
            raise ValueError(f"a DoT leaf cannot speak to {endpoint.redacted}")
        self.endpoint = endpoint
        self.tls_name = tls_name or endpoint.host
        self.context = context
        self.stats = stats
        self.depth = depth
        self.attempt_ns = attempt_ns
        self.draw_id = draw_id
