"""Addresses as people write them: what is accepted, and in which form it is kept."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.platform.address import (
    ListenAddress,
    canonical_literal,
    is_host_name,
    is_literal,
    parse_listen_address,
    parse_port,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        pytest.param("127.0.0.1:53", "127.0.0.1", 53, id="v4"),
        pytest.param("0.0.0.0:0", "0.0.0.0", 0, id="v4 wildcard, any port"),
        pytest.param("[::1]:5300", "::1", 5300, id="v6"),
        pytest.param("[::]:65535", "::", 65535, id="v6 wildcard, highest port"),
        pytest.param("[2001:0DB8::0001]:53", "2001:db8::1", 53, id="v6 in RFC 5952 form"),
    ],
)
def test_a_listen_address_is_a_literal_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_listen_address(text) == ListenAddress(host, port)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("127.0.0.1", "port is missing", id="no port"),
        pytest.param("", "port is missing", id="nothing"),
        pytest.param("127.0.0.1:", "0 to 65535", id="empty port"),
        pytest.param("127.0.0.1:65536", "0 to 65535", id="port too high"),
        pytest.param("127.0.0.1:dns", "0 to 65535", id="port in words"),
        pytest.param("[::1]", "0 to 65535", id="v6 without port"),
        pytest.param("localhost:53", "IP address", id="name"),
        pytest.param(":53", "IP address", id="no host"),
        pytest.param("*:53", "IP address", id="star"),
        pytest.param("127.1:53", "IP address", id="short v4"),
        pytest.param("[dns.example]:53", "IP address", id="name in brackets"),
        pytest.param("::1:53", "brackets", id="v6 without brackets"),
        pytest.param("[127.0.0.1]:53", "brackets", id="v4 in brackets"),
        pytest.param("[::1:53", "IP address", id="bracket left open"),
    ],
)
def test_another_listen_address_is_refused_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_listen_address(text)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_a_listen_address_is_written_as_it_is_read(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    address = ListenAddress(str(ip), port)
    assert parse_listen_address(str(address)) == address
    assert address.is_ipv6 == (ip.version == 6)
    assert address.is_wildcard == (int(ip) == 0)


def test_another_port_leaves_the_host_alone() -> None:
    assert ListenAddress("::1", 0).with_port(53) == ListenAddress("::1", 53)


@given(st.integers(0, 65535))
def test_every_port_is_read_back(port: int) -> None:
    assert parse_port(str(port)) == port


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("65536", id="too high"),
        pytest.param("9" * 400, id="far too high"),
        pytest.param("-1", id="negative"),
        pytest.param("+53", id="plus sign"),
        pytest.param(" 53", id="space before"),
        pytest.param("53\n", id="line break behind"),
        pytest.param("5_3", id="underscore"),
        pytest.param("0x35", id="hexadecimal"),
        pytest.param("53.0", id="fraction"),
        pytest.param("٥٣", id="digits that are not ASCII"),
        pytest.param("²", id="superscript"),
    ],
)
def test_what_is_no_port_is_none(text: str) -> None:
    assert parse_port(text) is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("1.2.3.4", "1.2.3.4", id="v4"),
        pytest.param("::1", "::1", id="v6"),
        pytest.param("2001:DB8:0:0:0:0:0:1", "2001:db8::1", id="v6 in capitals and in full"),
        pytest.param("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1", id="one group not shortened"),
        pytest.param("2001:0:0:1:0:0:0:1", "2001:0:0:1::1", id="the longest run shortened"),
        pytest.param("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1", id="the first of equal runs"),
        pytest.param("dns.example", None, id="name"),
        pytest.param("[::1]", None, id="brackets"),
        pytest.param("1.2.3", None, id="three octets"),
        pytest.param("1.2.3.04", None, id="leading zero"),
        pytest.param("1.2.3.256", None, id="octet too high"),
        pytest.param("12345:", None, id="half a v6"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_literal_has_one_form_and_a_name_has_none(text: str, canonical: str | None) -> None:
    assert canonical_literal(text) == canonical
    assert is_literal(text) is (canonical is not None)


LABEL_63 = "a" * 63
NAME_253 = ".".join([LABEL_63] * 3 + ["a" * 61])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("dns.example", id="two labels"),
        pytest.param("dns.example.", id="trailing dot"),
        pytest.param("localhost", id="one label"),
        pytest.param("DNS.Example", id="capitals"),
        pytest.param("a-b.c_d.example", id="hyphen and underscore"),
        pytest.param("_dns.example", id="underscore in front"),
        pytest.param("1.1.1.one", id="digits but for the last label"),
        pytest.param("xn--exmple-cua.example", id="punycode"),
        pytest.param(f"{LABEL_63}.example", id="label of 63"),
        pytest.param(NAME_253, id="name of 253"),
        pytest.param(f"{NAME_253}.", id="name of 253 and its trailing dot"),
    ],
)
def test_a_host_name_is_accepted(text: str) -> None:
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(".", id="the root"),
        pytest.param("dns..example", id="empty label"),
        pytest.param(".example", id="dot in front"),
        pytest.param("dns.example..", id="two trailing dots"),
        pytest.param("-a.example", id="hyphen in front"),
        pytest.param("a-.example", id="hyphen behind"),
        pytest.param("a b.example", id="space"),
        pytest.param("dns.example\n", id="line break"),
        pytest.param("dns.exämple", id="not ASCII"),
        pytest.param("user@dns.example", id="at sign"),
        pytest.param("*.example", id="wildcard"),
        pytest.param("1.2.3", id="mistyped v4"),
        pytest.param("1.2.3.256", id="v4 octet too high"),
        pytest.param("::1", id="v6"),
        pytest.param(f"{LABEL_63}a.example", id="label of 64"),
        pytest.param(f"{NAME_253}a", id="name of 254"),
    ],
)
def test_what_cannot_be_looked_up_is_no_host_name(text: str) -> None:
    assert not is_host_name(text)


@given(st.text())
def test_no_text_is_both_a_host_name_and_a_literal(text: str) -> None:
    assert not (is_host_name(text) and is_literal(text))
