"""Real upstreams on the internet; only when asked for with ``-m live``."""

import time

import dns.message
import gevent
import pytest

from nxdns.dns.packet import Packet
from nxdns.platform import tls_client
from nxdns.platform.resolver import Resolver
from nxdns.upstream import doh_connection
from nxdns.upstream.doh_client import DohClient, DohSite
from nxdns.upstream.transport import Endpoint, Leaf, SessionStats
from tests.support.dot_leaves import dot_client
from tests.support.messages import make_query

pytestmark = pytest.mark.live

_PATIENCE_SECONDS = 10


def _assert_answers(leaf: Leaf) -> None:
    started = time.monotonic()
    with gevent.Timeout(_PATIENCE_SECONDS):
        reply = leaf.exchange(make_query("example.com"))
    leaf.close()
    assert isinstance(reply, Packet), f"{reply} after {time.monotonic() - started:.1f} s"
    assert dns.message.from_wire(reply.wire).answer


def test_cloudflare_answers_over_tls_by_its_address_in_the_certificate() -> None:
    endpoint = Endpoint.parse("tls://1.1.1.1")
    _assert_answers(dot_client(endpoint, None, tls_client.client_context(None)))


def test_cloudflare_answers_over_https_by_name() -> None:
    endpoint = Endpoint.parse("https://cloudflare-dns.com/dns-query")
    context = doh_connection.client_context(None)
    site = DohSite(
        endpoint,
        None,
        context,
        Resolver(),
        SessionStats(),
        attempt_seconds=_PATIENCE_SECONDS,
        leaves=1,
    )
    _assert_answers(DohClient(site))
