"""DoT leaves of tests: of any depth, and with message IDs that a scripted peer can know before."""

from collections.abc import Iterator
from contextlib import contextmanager

from OpenSSL import SSL

from nxdns.upstream.depth import Depth
from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.dot_site import DotSite
from nxdns.upstream.transport import Endpoint, SessionStats
from tests.support.authority import NAME, Authority
from tests.support.fake_leaves import SECOND

DEPTHS = (1, 32)
"""At each of them, whatever concerns one exchange at a time must be the same."""

QUERY_ID = 4711
"""The message ID that every session draws first, and again whenever it is free."""


_depth = 1


@contextmanager
def leaves_of_depth(depth: int) -> Iterator[None]:
    """Leaves of tests that do not say otherwise are so deep."""
    global _depth
    before, _depth = _depth, depth
    try:
        yield
    finally:
        _depth = before


def dot_client(
    endpoint: Endpoint,
    tls_name: str | None,
    context: SSL.Context,
    stats: SessionStats | None = None,
    *,
    depth: int | None = None,
    attempt_ns: int = 10 * SECOND,
) -> DotClient:
    """One leaf of a site of its own."""
    site = DotSite(
        endpoint,
        tls_name,
        context,
        stats or SessionStats(),
        Depth(depth or _depth),
        attempt_ns=attempt_ns,
        draw_id=lambda: QUERY_ID,
    )
    return DotClient(site)


def dot_leaf(
    authority: Authority,
    port: int,
    stats: SessionStats | None = None,
    *,
    depth: int | None = None,
    attempt_ns: int = 10 * SECOND,
) -> DotClient:
    """One leaf for the peer that listens on ``port``."""
    return dot_client(
        Endpoint.parse(f"tls://127.0.0.1:{port}"),
        NAME,
        authority.dot_context(),
        stats,
        depth=depth,
        attempt_ns=attempt_ns,
    )
