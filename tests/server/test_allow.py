"""Who may ask, by rules and address."""

import ipaddress
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.server.allow import DEFAULT, ON_LINK, PRIVATE, Allow, Prefix, Rules, is_private

HOME = [ip_network(text) for text in ("192.168.7.2/32", "2001:db8:7::/64", "198.51.100.0/24")]


@pytest.mark.parametrize(
    ("host", "permitted"),
    [
        pytest.param("127.0.0.1", True, id="loopback"),
        pytest.param("127.255.255.255", True, id="loopback-last"),
        pytest.param("126.255.255.255", False, id="below-loopback"),
        pytest.param("128.0.0.0", False, id="above-loopback"),
        pytest.param("::1", True, id="loopback-v6"),
        pytest.param("::2", False, id="beside-loopback-v6"),
        pytest.param("::", False, id="unspecified-v6"),
        pytest.param("10.0.0.0", True, id="rfc1918-10"),
        pytest.param("9.255.255.255", False, id="below-10"),
        pytest.param("11.0.0.0", False, id="above-10"),
        pytest.param("172.16.0.0", True, id="rfc1918-172"),
        pytest.param("172.31.255.255", True, id="rfc1918-172-last"),
        pytest.param("172.15.255.255", False, id="below-172.16"),
        pytest.param("172.32.0.0", False, id="above-172.31"),
        pytest.param("192.168.255.255", True, id="rfc1918-192"),
        pytest.param("192.167.255.255", False, id="below-192.168"),
        pytest.param("192.169.0.0", False, id="above-192.168"),
        pytest.param("169.254.1.1", True, id="link-local"),
        pytest.param("169.253.1.1", False, id="below-link-local"),
        pytest.param("fe80::1", True, id="link-local-v6"),
        pytest.param("fe80::1%eth0", True, id="link-local-v6-with-its-interface"),
        pytest.param("febf:ffff::1%3", True, id="link-local-v6-last"),
        pytest.param("fec0::1", False, id="site-local"),
        pytest.param("fc00::1", True, id="ula"),
        pytest.param("fdff:ffff::1", True, id="ula-last"),
        pytest.param("fbff::1", False, id="below-ula"),
        pytest.param("fe00::1", False, id="above-ula"),
        pytest.param("100.64.0.1", False, id="shared"),
        pytest.param("100.127.255.255", False, id="shared-last"),
        pytest.param("8.8.8.8", False, id="public"),
        pytest.param("2001:db8:7::abcd", True, id="on-link-v6"),
        pytest.param("2001:db8:7:0:ffff:ffff:ffff:ffff", True, id="on-link-v6-last"),
        pytest.param("2001:db8:7:1::", False, id="beside-on-link-v6"),
        pytest.param("198.51.100.9", True, id="on-link-v4"),
        pytest.param("198.51.101.0", False, id="beside-on-link-v4"),
        pytest.param("::ffff:192.168.1.1", True, id="mapped-private"),
        pytest.param("::ffff:198.51.100.9", True, id="mapped-on-link"),
        pytest.param("::ffff:8.8.8.8", False, id="mapped-public"),
        pytest.param("::192.168.1.1", False, id="compatible-is-not-mapped"),
        pytest.param("64:ff9b::c0a8:101", False, id="translated"),
    ],
)
def test_the_default_is_the_household_and_nobody_else(host: str, permitted: bool) -> None:
    allow = Allow(Rules.parse(DEFAULT), HOME)
    assert allow.permits(host) is permitted
    assert allow.permits(host) is permitted, "and the same when it is remembered"


def test_a_list_takes_the_place_of_the_default() -> None:
    allow = Allow(Rules.parse(["192.0.2.0/24", "2001:db8::1"]), HOME)
    asked = ("192.0.2.1", "2001:db8::1", "127.0.0.1", "192.168.1.1", "2001:db8:7::1", "2001:db8::2")
    assert [allow.permits(host) for host in asked] == [True, True, False, False, False, False]


def test_private_alone_leaves_the_public_prefixes_of_interfaces_out() -> None:
    allow = Allow(Rules.parse([PRIVATE]), HOME)
    assert [allow.permits(host) for host in ("10.0.0.1", "198.51.100.9")] == [True, False]


def test_on_link_alone_leaves_even_this_machine_out() -> None:
    allow = Allow(Rules.parse([ON_LINK]), HOME)
    assert [allow.permits(host) for host in ("127.0.0.1", "198.51.100.9")] == [False, True]


def test_of_a_shared_prefix_on_link_only_our_own_address_may_ask() -> None:
    shared = [ip_network("100.70.0.0/20"), ip_network("100.70.0.9/32"), ip_network("100.0.0.0/8")]
    allow = Allow(Rules.parse(DEFAULT), shared)
    asked = ("100.70.0.9", "100.70.0.8", "100.64.0.1", "100.1.1.1")
    assert [allow.permits(host) for host in asked] == [True, False, False, False]


def test_the_shared_prefix_may_ask_when_it_is_named() -> None:
    allow = Allow(Rules.parse([*DEFAULT, "100.64.0.0/10"]))
    asked = ("100.64.0.0", "100.127.255.255", "100.128.0.0")
    assert [allow.permits(host) for host in asked] == [True, True, False]


def test_a_prefix_that_comes_and_goes_is_followed_whoever_is_remembered() -> None:
    allow = Allow(Rules.parse(DEFAULT))
    assert not allow.permits("2001:db8:7::1")
    allow.set_on_link(HOME)
    assert allow.permits("2001:db8:7::1")
    allow.set_on_link([])
    assert not allow.permits("2001:db8:7::1")


def test_other_rules_hold_at_once_with_the_prefixes_that_are_on_link() -> None:
    allow = Allow(Rules.parse([PRIVATE]), HOME)
    assert allow.permits("10.0.0.1")
    allow.replace(Rules.parse([ON_LINK]))
    assert [allow.permits(host) for host in ("10.0.0.1", "2001:db8:7::1")] == [False, True]


def test_what_it_remembers_is_bounded_however_many_ask() -> None:
    allow = Allow(Rules.parse(DEFAULT))
    for number in range(5000):
        allow.permits(str(ipaddress.IPv6Address(number << 64)))
        allow.permits(str(ipaddress.IPv4Address(number + (10 << 24))))
    assert len(allow._decided) <= 1024
    assert allow.permits("10.0.0.1")


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        pytest.param("192.168.1.0/24", "192.168.1.0/24", id="v4"),
        pytest.param("192.0.2.7", "192.0.2.7/32", id="address"),
        pytest.param("2001:0DB8:0::/56", "2001:db8::/56", id="v6"),
        pytest.param("2001:db8::7", "2001:db8::7/128", id="address-v6"),
        pytest.param("10.0.0.0/255.0.0.0", "10.0.0.0/8", id="netmask"),
        pytest.param("0.0.0.0/0", "0.0.0.0/0", id="all"),
        pytest.param("::/0", "::/0", id="all-v6"),
        pytest.param("::ffff:10.0.0.0/104", "10.0.0.0/8", id="mapped"),
        pytest.param("::ffff:0:0/96", "0.0.0.0/0", id="all-mapped"),
        pytest.param("::ffff:10.0.0.1", "10.0.0.1/32", id="mapped-address"),
    ],
)
def test_a_prefix_is_read_as_people_write_it(text: str, prefix: str) -> None:
    assert Rules.parse([text]) == Rules((ip_network(prefix),), on_link=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "must be a prefix", id="empty"),
        pytest.param("home", '"private" or "on-link"', id="a-word"),
        pytest.param("Private", "must be a prefix", id="another-case"),
        pytest.param("10", "must be a prefix", id="a-number"),
        pytest.param("192.168.1.0/33", "must be a prefix", id="too-long"),
        pytest.param("192.168.1.0/24/24", "must be a prefix", id="two-lengths"),
        pytest.param("192.168.1.256/24", "must be a prefix", id="no-address"),
        pytest.param("[::1]", "must be a prefix", id="brackets"),
        pytest.param("192.168.1.5/24", 'write "192.168.1.0/24"', id="bits-behind"),
        pytest.param("2001:db8::1/64", 'write "2001:db8::/64"', id="bits-behind-v6"),
        pytest.param("fe80::%eth0/64", '"fe80::/10" covers', id="interface"),
    ],
)
def test_what_is_no_prefix_is_refused_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|has|a prefix)") as raised:
        Rules.parse([PRIVATE, text])
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("texts", "anybody"),
    [
        (DEFAULT, False),
        (["0.0.0.0/1"], False),
        (["0.0.0.0/0"], True),
        ([PRIVATE, "::/0"], True),
        (["::ffff:0:0/96"], True),
    ],
)
def test_it_is_known_when_all_of_a_family_may_ask(texts: list[str], anybody: bool) -> None:
    assert Rules.parse(texts).anybody is anybody


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True), ("::1", True), ("192.168.1.2", True), ("fe80::1%eth0", True),
        ("fd00::1", True), ("0.0.0.0", False), ("::", False), ("203.0.113.1", False),
        ("2001:db8::1", False), ("100.64.0.1", False),
    ],
)  # fmt: skip
def test_a_wildcard_or_public_address_is_not_private(host: str, private: bool) -> None:
    assert is_private(host) is private


_V4 = st.builds(
    lambda number, length: ip_network((number, length), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)
_V6 = st.builds(
    lambda number, length: ipaddress.IPv6Network((number, length), strict=False),
    st.integers(0, 2**128 - 1),
    st.integers(0, 128),
)
_PREFIXES = st.lists(_V4 | _V6, max_size=12)


def _near(prefixes: list[Prefix]) -> st.SearchStrategy[str]:
    """Addresses at and beside the ends of ``prefixes``, where it matters; and any other."""
    any_one = st.ip_addresses().map(str)
    if not prefixes:
        return any_one

    def beside(prefix: Prefix, step: int, *, last: bool) -> str:
        end = prefix.broadcast_address if last else prefix.network_address
        number = min(max(int(end) + step, 0), 2**prefix.max_prefixlen - 1)
        return str(type(end)(number))

    near = st.builds(beside, st.sampled_from(prefixes), st.integers(-1, 1), last=st.booleans())
    return near | any_one


@given(st.data(), _PREFIXES, st.booleans())
def test_it_decides_as_ipaddress_does(
    data: st.DataObject, prefixes: list[Prefix], on_link: bool
) -> None:
    if on_link:
        shared = ip_network("100.64.0.0/10")
        prefixes = [p for p in prefixes if p.version == 6 or not p.overlaps(shared)]
        allow = Allow(Rules.parse([ON_LINK]), prefixes)
    else:
        allow = Allow(Rules.parse(map(str, prefixes)))
        prefixes = list(allow.rules.prefixes)  # mapped ones are of IPv4 there
    for _ in range(5):
        host = data.draw(_near(prefixes))
        address = ip_address(host)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        expected = any(address in prefix for prefix in prefixes)
        assert allow.permits(host) is expected
        assert allow.permits(host) is expected
