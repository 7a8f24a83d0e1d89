"""Which heads are read, and under which names the server may be asked."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.web.head import END, BadHead, is_allowed_host, parse

ALLOWED = frozenset({"dns.home.arpa"})


def test_method_host_and_body_are_read() -> None:
    head = parse(b"GET /api/health?x=1 HTTP/1.1\r\nhOsT:  127.0.0.1:8053\t\r\nA: b\r\n\r\n")
    assert (head.method, head.host, head.has_body) == ("GET", "127.0.0.1:8053", False)


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"Content-Length: 1", id="length"),
        pytest.param(b"Content-Length: 0\r\nContent-Length: 5", id="two-lengths"),
        pytest.param(b"Content-Length: +0", id="strange-length"),
        pytest.param(b"Content-Length:", id="empty-length"),
        pytest.param(b"Transfer-Encoding: chunked", id="chunked"),
        pytest.param(b"transfer-encoding: identity", id="identity"),
    ],
)
def test_a_body_is_seen_in_whatever_form_it_is_announced(field: bytes) -> None:
    assert parse(b"GET / HTTP/1.1\r\nHost: ::1\r\n" + field + END).has_body


def test_a_length_of_zero_is_no_body() -> None:
    assert not parse(b"GET / HTTP/1.1\r\nContent-Length: 0" + END).has_body


@pytest.mark.parametrize("fields", [b"", b"\r\nHost: a\r\nHost: a"], ids=["none", "two"])
def test_without_exactly_one_host_there_is_none(fields: bytes) -> None:
    assert parse(b"GET / HTTP/1.1" + fields + END).host is None


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /\r\n\r\n", id="http-0.9"),
        pytest.param(b"GET / HTTP/2.0\r\n\r\n", id="http-2"),
        pytest.param(b"GET / HTTP/1.1 \r\n\r\n", id="trailing-space"),
        pytest.param(b"GET  / HTTP/1.1\r\n\r\n", id="two-spaces"),
        pytest.param(b"GET http://evil.example/ HTTP/1.1\r\n\r\n", id="absolute-form"),
        pytest.param(b"CONNECT evil.example:80 HTTP/1.1\r\n\r\n", id="authority-form"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n\r\n", id="asterisk-form"),
        pytest.param(b"GET /\x00 HTTP/1.1\r\n\r\n", id="null-in-target"),
        pytest.param(b"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", id="umlaut-in-target"),
        pytest.param(b"G@T / HTTP/1.1\r\n\r\n", id="method-no-token"),
        pytest.param(b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", id="no-colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n", id="space-before-colon"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\r\n Host: c\r\n\r\n", id="folded"),
        pytest.param(b"GET / HTTP/1.1\r\n: b\r\n\r\n", id="no-name"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\x00\r\n\r\n", id="null-in-value"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\nHost: c\r\n\r\n", id="bare-newline"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\rHost: c\r\n\r\n", id="bare-return"),
        pytest.param(b"\r\nGET / HTTP/1.1\r\n\r\n", id="empty-line-first"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n", id="without-end"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", id="tls"),
    ],
)
def test_what_two_readers_could_read_differently_is_refused(head: bytes) -> None:
    with pytest.raises(BadHead):
        parse(head)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    with suppress(BadHead):
        parse(data + END)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:8053", "192.168.1.2", "[::1]", "[::1]:8053", "[fe80::1]"),
        *("localhost", "LOCALHOST:8053", "localhost.", "dns.home.arpa", "DNS.Home.Arpa.:80"),
    ],
)
def test_addresses_localhost_and_allowed_names_are_hosts(host: str) -> None:
    assert is_allowed_host(host, ALLOWED)


@pytest.mark.parametrize(
    "host",
    [
        *(
            None,
            "",
            " ",
            ":",
            ":8053",
            "evil.example",
            "evil.example:8053",
            "localhost.evil.example",
        ),
        *("127.0.0.1.evil.example", "dns.home.arpa.evil.example", "home.arpa", "xlocalhost"),
        # What inet_aton, or a proxy, would take for an address.
        *("127.1", "2130706433", "0x7f000001", "127.0.0.1 evil.example", "evil.example@127.0.0.1"),
        *("::1", "[::1", "[::1]x", "[::1]:", "[127.0.0.1]", "127.0.0.1:", "127.0.0.1:x"),
        *("127.0.0.1:123456", "127.0.0.1:80:80", "localhost..", "127.0.0.1,evil.example"),
    ],
)
def test_any_other_host_is_refused(host: str | None) -> None:
    assert not is_allowed_host(host, ALLOWED)
