"""A secret in a URL reaches no surface: neither redacted, nor a label, nor an error's text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nxdns.upstream.endpoint import Endpoint, EndpointError, labels_of, redact_text

# With "zq" in front a token is nowhere in a host, a scheme or a message by chance.
TOKENS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_~.%!$&'()*+,;=", min_size=1).map(
    lambda text: f"zq{text}"
)
ANY_TEXT = st.text(max_size=10)


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        pytest.param("https://dns.example", "https://dns.example/dns-query", id="default-path"),
        pytest.param(
            "https://dns.example/dns-query", "https://dns.example/dns-query", id="that-very-path"
        ),
        pytest.param("https://dns.example/t0ken", "https://dns.example/…", id="secret-path"),
        pytest.param(
            "https://dns.example/dns-query/t0ken",
            "https://dns.example/…",
            id="secret-below-the-default-path",
        ),
        pytest.param("https://dns.example/", "https://dns.example/…", id="root-path"),
        pytest.param("https://dns.example:443", "https://dns.example/dns-query", id="default-port"),
        pytest.param(
            "https://dns.example:8443/x", "https://dns.example:8443/…", id="port-and-secret-path"
        ),
        pytest.param("https://[::1]:8443/x", "https://[::1]:8443/…", id="bracketed-v6"),
        pytest.param(
            "https://abc123.dns.example/dns-query",
            "https://abc123.dns.example/dns-query",
            id="first-label-not-altered",
        ),
        pytest.param("tls://1.1.1.1", "tls://1.1.1.1", id="dot"),
        pytest.param("tls://1.1.1.1:853/", "tls://1.1.1.1", id="dot-default-port"),
        pytest.param("tls://[2001:db8::1]:8853", "tls://[2001:db8::1]:8853", id="dot-v6-port"),
    ],
)
def test_a_redacted_url_shows_all_but_a_path_that_may_be_a_secret(url: str, redacted: str) -> None:
    assert Endpoint.parse(url).redacted == redacted


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("udp://dns.example", id="unknown-scheme"),
        pytest.param("udp://dns.example/t0ken", id="path"),
        pytest.param("udp://dns.example?t0ken", id="query"),
        pytest.param("udp://dns.example#t0ken", id="fragment"),
        pytest.param("udp://dns.example:99999", id="bad-port"),
    ],
)
def test_a_url_that_did_not_parse_is_still_recognised_by_its_scheme_and_host(url: str) -> None:
    assert redact_text(url).startswith("udp://dns.example")


def everything_shown(url: str) -> str:
    """All that surfaces, logs and errors may be given for ``url``."""
    shown = [redact_text(url)]
    try:
        endpoint = Endpoint.parse(url)
    except EndpointError as error:
        shown += [str(error), repr(error)]
    else:
        shown += [endpoint.redacted, *labels_of([(None, endpoint), (None, endpoint)])]
    return "\n".join(shown)


@given(
    token=TOKENS,
    scheme=st.sampled_from(["https", "tls", "HTTPS", "htps", "http"]),
    host=st.sampled_from(["dns.example", "1.1.1.1", "[::1]", "dns.example:8443", "dns.example:x"]),
    place=st.sampled_from(
        [
            "{scheme}://{host}/{token}",
            "{scheme}://{host}/dns-query/{token}",
            "{scheme}://{host}/{token}/dns-query",
            "{scheme}://{host}//{token}",
            "{scheme}://{host}/dns-query?{token}",
            "{scheme}://{host}?{token}",
            "{scheme}://{host}#{token}",
            "{scheme}://{host}/dns-query#{token}",
            "{scheme}://{token}@{host}",
            "{scheme}://{token}:password@{host}/dns-query",
            "{scheme}://user:{token}@{host}",
            "{scheme}://user@{token}@{host}",
            "{scheme}://{host}/dns-query@{token}",
            "{scheme}://{host}/dns-query?user@{token}",
            "{host}/{token}",
            "{host}?{token}",
            "{token}@{host}",
        ]
    ),
)
def test_a_token_in_a_path_a_query_or_the_user_information_is_never_shown(
    token: str, scheme: str, host: str, place: str
) -> None:
    url = place.format(scheme=scheme, host=host, token=token)
    assert token not in everything_shown(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://user:zq/s3cret@dns.example/", id="slash"),
        pytest.param("https://user:zq?s3cret@dns.example/", id="question-mark"),
        pytest.param("https://user:zq#s3cret@dns.example/", id="hash"),
        pytest.param("https://user:zq\\s3cret@dns.example/", id="backslash"),
        pytest.param("https://user:zq:s3cret@dns.example/", id="colon"),
        pytest.param("https://user:zq@s3cret@dns.example/", id="at"),
    ],
)
def test_a_password_that_holds_a_delimiter_is_never_shown_in_part(url: str) -> None:
    shown = everything_shown(url)
    assert "zq" not in shown
    assert "s3cret" not in shown
    assert "user:" not in shown


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("s3cret@https://dns.example/", id="user-before-the-scheme"),
        pytest.param("dns.example/s3cret?next=https://x", id="url-in-a-query"),
        pytest.param("https:/dns.example/s3cret://", id="separator-in-a-path"),
    ],
)
def test_what_stands_before_a_misplaced_separator_is_not_taken_for_a_scheme(url: str) -> None:
    assert "s3cret" not in everything_shown(url)


@given(ANY_TEXT, ANY_TEXT)
@example("", "")
def test_redaction_of_any_text_never_fails(before: str, after: str) -> None:
    everything_shown(before)
    everything_shown(f"{before}://{after}")
