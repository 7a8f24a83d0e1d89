"""Identity and labels: which upstreams are the same one, and what each is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.upstream.endpoint import Endpoint, Identity, identity_of, labels_of


def identity(url: str, tls_name: str | None = None) -> Identity:
    return identity_of(Endpoint.parse(url), tls_name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            ("https://dns.example", None), ("HTTPS://dns.example", None), id="case-of-the-scheme"
        ),
        pytest.param(
            ("https://dns.example", None), ("https://DNS.Example", None), id="case-of-the-host"
        ),
        pytest.param(
            ("https://dns.example", None), ("https://dns.example.", None), id="trailing-dot"
        ),
        pytest.param(
            ("https://dns.example", None), ("https://dns.example:443", None), id="doh-default-port"
        ),
        pytest.param(("tls://1.1.1.1", None), ("tls://1.1.1.1:853", None), id="dot-default-port"),
        pytest.param(("tls://1.1.1.1", None), ("tls://1.1.1.1/", None), id="dot-slash"),
        pytest.param(
            ("https://dns.example", None),
            ("https://dns.example/dns-query", None),
            id="doh-default-path",
        ),
        pytest.param(
            ("tls://[2001:db8::1]", None),
            ("tls://[2001:0DB8:0:0:0:0:0:0001]", None),
            id="v6-in-rfc-5952-form",
        ),
        pytest.param(
            ("tls://[::ffff:1.2.3.4]", None), ("tls://[::FFFF:102:304]", None), id="mapped-v4"
        ),
        pytest.param(
            ("tls://1.1.1.1", None),
            ("tls://1.1.1.1", "1.1.1.1"),
            id="tls-name-defaults-to-the-host",
        ),
        pytest.param(
            ("tls://[2001:db8::1]", None),
            ("tls://[2001:db8::1]", "2001:DB8:0::1"),
            id="v6-tls-name-in-rfc-5952-form",
        ),
        pytest.param(
            ("tls://1.1.1.1", "dns.example"),
            ("tls://1.1.1.1", "DNS.example."),
            id="case-and-dot-of-the-tls-name",
        ),
    ],
)
def test_two_ways_to_write_one_upstream_have_one_identity(
    one: tuple[str, str | None], other: tuple[str, str | None]
) -> None:
    assert identity(*one) == identity(*other)
    assert hash(identity(*one)) == hash(identity(*other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(("https://1.1.1.1", None), ("tls://1.1.1.1:443", None), id="scheme"),
        pytest.param(("tls://1.1.1.1", None), ("tls://1.1.1.2", None), id="host"),
        pytest.param(("tls://1.1.1.1", None), ("tls://1.1.1.1:8853", None), id="port"),
        pytest.param(("https://dns.example/a", None), ("https://dns.example/b", None), id="path"),
        pytest.param(
            ("https://dns.example/Token", None),
            ("https://dns.example/token", None),
            id="case-of-the-path",
        ),
        pytest.param(
            ("https://dns.example/", None), ("https://dns.example", None), id="root-path-or-default"
        ),
        pytest.param(
            ("tls://1.1.1.1", "one.example"), ("tls://1.1.1.1", "two.example"), id="tls-name"
        ),
        pytest.param(
            ("tls://1.1.1.1", None), ("tls://1.1.1.1", "one.example"), id="tls-name-or-default"
        ),
    ],
)
def test_upstreams_that_differ_have_different_identities(
    one: tuple[str, str | None], other: tuple[str, str | None]
) -> None:
    assert identity(*one) != identity(*other)


def labels(*named: tuple[str | None, str]) -> list[str]:
    return labels_of((name, Endpoint.parse(url)) for name, url in named)


def test_a_label_is_the_configured_name_else_the_redacted_url() -> None:
    assert labels(("home", "tls://1.1.1.1"), (None, "https://dns.example/t0ken")) == [
        "home",
        "https://dns.example/…",
    ]


def test_upstreams_that_differ_only_in_a_secret_path_are_told_apart_by_a_number() -> None:
    urls = [f"https://dns.example/{token}" for token in ("a1", "b2", "c3")]
    assert labels(*((None, url) for url in urls)) == [
        "https://dns.example/…",
        "https://dns.example/… (2)",
        "https://dns.example/… (3)",
    ]


def test_equal_names_are_told_apart_by_a_number() -> None:
    assert labels(("home", "tls://1.1.1.1"), ("home", "tls://1.0.0.1")) == ["home", "home (2)"]


NAMES = st.sampled_from([None, "home", "home (2)", "home (2) (2)", "tls://1.1.1.1"])
URLS = st.sampled_from(["tls://1.1.1.1", "https://dns.example/a1", "https://dns.example/b2"])


@given(st.lists(st.tuples(NAMES, URLS), max_size=12))
def test_no_two_upstreams_have_the_same_label(named: list[tuple[str | None, str]]) -> None:
    found = labels(*named)
    assert len(found) == len(named)
    assert len(set(found)) == len(found)
    for (name, url), label in zip(named, found, strict=True):
        assert label.startswith(name or Endpoint.parse(url).redacted)
