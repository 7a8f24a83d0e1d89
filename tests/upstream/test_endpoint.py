"""Endpoint.parse: what names an upstream, and what does not."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.platform.resolver import Resolver
from nxdns.upstream.doh_client import DohSite
from nxdns.upstream.endpoint import (
    BadPort,
    BadUrl,
    Endpoint,
    EndpointError,
    MissingHost,
    Scheme,
    UnsupportedScheme,
)
from nxdns.upstream.transport import SessionStats
from tests.support.authority import Authority
from tests.support.dot_leaves import dot_client

DOH, DOT = Scheme.DOH, Scheme.DOT


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path"),
    [
        pytest.param(
            "https://cloudflare-dns.com/dns-query",
            DOH,
            "cloudflare-dns.com",
            443,
            "/dns-query",
            id="doh",
        ),
        pytest.param(
            "https://dns.example/a/b-c~d/%20;x=1",
            DOH,
            "dns.example",
            443,
            "/a/b-c~d/%20;x=1",
            id="doh-path-preserved",
        ),
        pytest.param(
            "https://dns.example", DOH, "dns.example", 443, "/dns-query", id="doh-path-defaulted"
        ),
        pytest.param("https://dns.example/", DOH, "dns.example", 443, "/", id="doh-root-path"),
        pytest.param(
            "https://dns.example:8443", DOH, "dns.example", 8443, "/dns-query", id="doh-port"
        ),
        pytest.param(
            "https://[2606:4700:4700::1111]/dns-query",
            DOH,
            "2606:4700:4700::1111",
            443,
            "/dns-query",
            id="doh-bracketed-v6",
        ),
        pytest.param("tls://1.1.1.1", DOT, "1.1.1.1", 853, "", id="dot-port-defaulted"),
        pytest.param("tls://1.1.1.1:8853", DOT, "1.1.1.1", 8853, "", id="dot-port"),
        pytest.param("tls://1.1.1.1/", DOT, "1.1.1.1", 853, "", id="dot-slash"),
        pytest.param("tls://[::1]", DOT, "::1", 853, "", id="dot-bracketed-v6"),
        pytest.param("tls://[::1]:8853", DOT, "::1", 8853, "", id="dot-bracketed-v6-port"),
        pytest.param("tls://dns.example", DOT, "dns.example", 853, "", id="dot-name"),
        pytest.param("TLS://1.1.1.1", DOT, "1.1.1.1", 853, "", id="scheme-in-capitals"),
        pytest.param("tls://1.1.1.1:1", DOT, "1.1.1.1", 1, "", id="lowest-port"),
        pytest.param("tls://1.1.1.1:65535", DOT, "1.1.1.1", 65535, "", id="highest-port"),
    ],
)
def test_a_url_is_parsed_and_what_it_leaves_out_is_filled_in(
    url: str, scheme: Scheme, host: str, port: int, path: str
) -> None:
    endpoint = Endpoint.parse(url)
    assert endpoint == Endpoint(scheme, url, host, port, path)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("udp://1.1.1.1", id="udp"),
        pytest.param("http://dns.example/dns-query", id="http-in-the-clear"),
        pytest.param("quic://dns.example", id="quic"),
        pytest.param("dns.example", id="none"),
        pytest.param("1.1.1.1:853", id="host-and-port-only"),
        pytest.param("https:/dns.example", id="one-slash"),
        pytest.param("://dns.example", id="empty"),
        pytest.param("", id="nothing-at-all"),
        pytest.param(" https://dns.example", id="a-space-before"),
    ],
)
def test_a_scheme_other_than_https_and_tls_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedScheme):
        Endpoint.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://", id="doh"),
        pytest.param("tls://", id="dot"),
        pytest.param("https:///dns-query", id="path-only"),
        pytest.param("tls://:853", id="port-only"),
    ],
)
def test_a_missing_host_is_refused(url: str) -> None:
    with pytest.raises(MissingHost):
        Endpoint.parse(url)


@pytest.mark.parametrize("host", ["1.1.1.1", "[::1]", "dns.example"])
@pytest.mark.parametrize(
    "port",
    [
        pytest.param("", id="empty"),
        pytest.param("0", id="zero"),
        pytest.param("65536", id="one-too-high"),
        pytest.param("99999", id="99999"),
        pytest.param("domain", id="text"),
        pytest.param("-1", id="negative"),
        pytest.param("+53", id="plus-sign"),
        pytest.param("8_5", id="underscore"),
        pytest.param("85 ", id="space"),
        pytest.param("٥٣", id="digits-that-are-not-ascii"),
        pytest.param("853:853", id="two-ports"),
    ],
)
@pytest.mark.parametrize("scheme", ["https", "tls"])
def test_a_port_outside_1_to_65535_is_refused(scheme: str, host: str, port: str) -> None:
    with pytest.raises(BadPort):
        Endpoint.parse(f"{scheme}://{host}:{port}")


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://user@dns.example/", id="user"),
        pytest.param("https://user:password@dns.example/", id="user-and-password"),
        pytest.param("tls://@1.1.1.1", id="empty-userinfo"),
        pytest.param("https://dns.example?dns=AAAA", id="query-behind-the-authority"),
        pytest.param("https://dns.example#top", id="fragment-behind-the-authority"),
        pytest.param("https://dns.example/dns-query?dns=AAAA", id="query-in-a-path"),
        pytest.param("https://dns.example/dns-query?", id="empty-query-in-a-path"),
        pytest.param("https://dns.example/dns-query#top", id="fragment-in-a-path"),
        pytest.param("tls://1.1.1.1?x", id="query-on-tls"),
        pytest.param("tls://1.1.1.1#x", id="fragment-on-tls"),
        pytest.param("tls://1.1.1.1/dns-query", id="path-on-tls"),
        pytest.param("tls://1.1.1.1//", id="two-slashes-on-tls"),
        pytest.param("https://dns.example/a b", id="space-in-a-path"),
        pytest.param("https://dns.example/a\r\nHost: evil", id="line-break-in-a-path"),
        pytest.param("https://dns.example/ä", id="path-that-is-not-ascii"),
        pytest.param("https://::1/dns-query", id="v6-without-brackets"),
        pytest.param("https://[1.1.1.1]/", id="v4-in-brackets"),
        pytest.param("https://[::1/", id="bracket-left-open"),
        pytest.param("https://[::1]x/", id="text-behind-the-bracket"),
        pytest.param("https://[]/", id="empty-brackets"),
        pytest.param("https://[dns.example]/", id="name-in-brackets"),
        pytest.param("tls://1.1.1", id="mistyped-v4"),
        pytest.param("tls://1.1.1.256", id="v4-octet-too-high"),
        pytest.param("https://dns..example/", id="empty-label"),
        pytest.param("https://dns example/", id="space-in-the-host"),
        pytest.param("https://dns.exämple/", id="host-that-is-not-ascii"),
    ],
)
def test_what_has_no_place_in_the_url_of_an_upstream_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        Endpoint.parse(url)


def parsed(url: str) -> Endpoint | type[EndpointError]:
    try:
        return Endpoint.parse(url)
    except EndpointError as error:
        return type(error)


@given(st.text() | st.builds("{}://{}".format, st.sampled_from(["https", "tls"]), st.text()))
def test_any_text_is_an_endpoint_or_one_of_four_errors(url: str) -> None:
    outcome = parsed(url)
    if isinstance(outcome, Endpoint):
        assert outcome.host
        assert 0 < outcome.port < 65536
    else:
        assert outcome in {UnsupportedScheme, MissingHost, BadPort, BadUrl}


@given(st.sampled_from(["https://", "tls://"]), st.text(alphabet="a1.-:[]@/?#%\\ é", max_size=20))
def test_nothing_that_delimits_a_url_is_left_in_its_parts(scheme: str, rest: str) -> None:
    outcome = parsed(scheme + rest)
    if isinstance(outcome, Endpoint):
        assert not set(outcome.host) & set("[]@/?#\\ ")
        assert not set(outcome.path) & set("?# ")
    else:
        assert outcome in {MissingHost, BadPort, BadUrl}


@pytest.mark.parametrize(
    ("url", "literal"),
    [
        pytest.param("tls://1.1.1.1", True, id="v4"),
        pytest.param("tls://[::1]", True, id="v6"),
        pytest.param("tls://dns.example", False, id="name"),
    ],
)
def test_only_a_literal_can_be_dialled_without_a_lookup(url: str, literal: bool) -> None:
    assert Endpoint.parse(url).is_literal is literal


def _dot_leaf(endpoint: Endpoint, authority: Authority) -> None:
    dot_client(endpoint, None, authority.dot_context())


def _doh_leaf(endpoint: Endpoint, authority: Authority) -> None:
    context = authority.doh_context()
    DohSite(endpoint, None, context, Resolver(), SessionStats(), attempt_seconds=2.0, leaves=8)


@pytest.mark.parametrize(
    ("build", "url"),
    [
        pytest.param(_dot_leaf, "https://dns.example/s3cret", id="doh-endpoint-to-a-dot-leaf"),
        pytest.param(_doh_leaf, "tls://1.1.1.1", id="dot-endpoint-to-a-doh-leaf"),
    ],
)
def test_a_leaf_of_the_wrong_scheme_is_refused(
    build: Callable[[Endpoint, Authority], None], url: str, authority: Authority
) -> None:
    with pytest.raises(ValueError, match="leaf") as refused:
        build(Endpoint.parse(url), authority)
    assert "s3cret" not in str(refused.value)
