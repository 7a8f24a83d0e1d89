"""What the kernel's messages say to be on link."""

import struct
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.platform import rtnetlink
from nxdns.platform.rtnetlink import Message, messages, prefixes_of

INET, INET6 = 2, 10
IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_CACHEINFO = 1, 2, 3, 6
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_MULTIPATH, RTA_VIA, RTA_NH_ID = 1, 4, 5, 9, 18, 30
MAIN, LOCAL = 254, 255
UNICAST, BLACKHOLE = 1, 6
KERNEL, BOOT, STATIC, RA = 2, 3, 4, 9


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def packed(text: str) -> bytes:
    return ip_address(text).packed


def address(family: int, length: int, *attributes: bytes, kind: int = 20) -> Message:
    body = struct.pack("=BBBBI", family, length, 0x80, 0, 2) + b"".join(attributes)
    return Message(kind, 0, 1, body)


def route(
    to: str | None,
    length: int,
    *attributes: bytes,
    family: int = INET6,
    table: int = MAIN,
    protocol: int = RA,
    of: int = UNICAST,
) -> Message:
    body = struct.pack("=BBBBBBBBI", family, length, 0, 0, table, protocol, 0, of, 0)
    if to is not None:
        body += attribute(RTA_DST, packed(to))
    return Message(24, 0, 1, body + b"".join(attributes))


OIF = attribute(RTA_OIF, struct.pack("=I", 2))


@pytest.mark.parametrize(
    ("message", "found"),
    [
        pytest.param(
            address(
                INET,
                24,
                attribute(IFA_ADDRESS, packed("192.168.1.7")),
                attribute(IFA_LOCAL, packed("192.168.1.7")),
                attribute(IFA_LABEL, b"eth0\0"),
                attribute(IFA_CACHEINFO, bytes(16)),
            ),
            ["192.168.1.0/24", "192.168.1.7/32"],
            id="v4",
        ),
        pytest.param(
            address(INET6, 64, attribute(IFA_ADDRESS, packed("2001:db8::7"))),
            ["2001:db8::/64", "2001:db8::7/128"],
            id="v6",
        ),
        pytest.param(
            address(
                INET,
                32,
                attribute(IFA_LOCAL, packed("203.0.113.7")),
                attribute(IFA_ADDRESS, packed("203.0.113.1")),
            ),
            ["203.0.113.1/32", "203.0.113.7/32"],
            id="a-link-between-two",
        ),
        pytest.param(
            address(INET6, 128, attribute(IFA_ADDRESS, packed("2001:db8::7"))),
            ["2001:db8::7/128"],
            id="by-dhcpv6",
        ),
        pytest.param(
            address(INET, 0, attribute(IFA_LOCAL, packed("203.0.113.7"))),
            ["203.0.113.7/32"],
            id="a-length-of-zero-is-not-everybody",
        ),
        pytest.param(
            address(INET, 24, attribute(IFA_ADDRESS, packed("192.168.1.7")), kind=21),
            ["192.168.1.0/24", "192.168.1.7/32"],
            id="deleted",
        ),
        pytest.param(address(INET, 24), [], id="no-address"),
        pytest.param(address(INET, 33, attribute(IFA_ADDRESS, bytes(4))), [], id="too-long"),
        pytest.param(address(INET, 24, attribute(IFA_ADDRESS, bytes(16))), [], id="of-both"),
        pytest.param(address(7, 24, attribute(IFA_ADDRESS, bytes(4))), [], id="another-family"),
        pytest.param(route("2001:db8::", 64, OIF), ["2001:db8::/64"], id="announced"),
        pytest.param(
            route("2001:db8::", 64, OIF, protocol=KERNEL), ["2001:db8::/64"], id="by-the-kernel"
        ),
        pytest.param(route("2001:db8::", 64, OIF, protocol=STATIC), [], id="by-hand"),
        pytest.param(route("2001:db8::", 64, OIF, protocol=BOOT), [], id="by-a-script"),
        pytest.param(route("2001:db8::", 64, OIF, table=LOCAL), [], id="another-table"),
        pytest.param(route("2001:db8::", 64, OIF, of=BLACKHOLE), [], id="to-nowhere"),
        pytest.param(route(None, 0, OIF), [], id="the-default-route"),
        pytest.param(
            route("2001:db8::", 48, OIF, attribute(RTA_GATEWAY, packed("fe80::1"))),
            [],
            id="behind-a-router",
        ),
        pytest.param(
            route("2001:db8::", 48, attribute(RTA_MULTIPATH, bytes(8))), [], id="several-ways"
        ),
        pytest.param(route("2001:db8::", 48, attribute(RTA_VIA, bytes(6))), [], id="via"),
        pytest.param(route("2001:db8::", 48, attribute(RTA_NH_ID, bytes(4))), [], id="nexthop"),
        pytest.param(route("192.0.2.1", 24, OIF, family=INET), [], id="a-v4-route"),
        pytest.param(Message(16, 0, 1, bytes(64)), [], id="of-a-link"),
        pytest.param(Message(20, 0, 1, b""), [], id="an-empty-address"),
        pytest.param(Message(24, 0, 1, b""), [], id="an-empty-route"),
    ],
)
def test_a_message_tells_what_is_on_link(message: Message, found: list[str]) -> None:
    assert prefixes_of(message) == {ip_network(text) for text in found}


def framed(message: Message) -> bytes:
    head = struct.pack("=IHHII", 16 + len(message.body), message.kind, message.flags, 1, 0)
    return head + message.body + bytes(-len(message.body) % 4)


def test_several_messages_come_in_one_datagram() -> None:
    sent = [Message(20, 2, 1, b"abcde"), Message(24, 2, 1, b""), Message(3, 2, 1, bytes(4))]
    assert list(messages(b"".join(map(framed, sent)))) == sent


def test_one_that_is_cut_off_is_left() -> None:
    whole = Message(20, 2, 1, bytes(8))
    assert list(messages(framed(whole) + framed(whole)[:-1])) == [whole]


@pytest.mark.parametrize(("body", "number"), [(b"", 0), (bytes(4), 0), (b"\xff" * 4, 1)])
def test_an_error_says_its_number(body: bytes, number: int) -> None:
    assert rtnetlink.error_of(Message(rtnetlink.ERROR, 0, 1, body)) == number


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_to_an_end(data: bytes) -> None:
    assert len(list(messages(data))) <= len(data) // 16


@given(st.sampled_from([20, 21, 24, 25, 2, 3, 16]), st.binary(max_size=120))
def test_an_arbitrary_message_never_means_everybody(kind: int, body: bytes) -> None:
    message = Message(kind, 0, 1, body)
    assert all(prefix.prefixlen > 0 for prefix in prefixes_of(message))
    assert rtnetlink.error_of(message) == 0 or len(body) >= 4


@given(st.ip_addresses(), st.integers(0, 128), st.binary(max_size=40))
def test_an_address_is_within_the_prefixes_that_it_brings(
    own: object, length: int, rest: bytes
) -> None:
    host = ip_address(str(own))
    length = min(length, host.max_prefixlen)
    family = INET if host.version == 4 else INET6
    found = prefixes_of(address(family, length, attribute(IFA_ADDRESS, host.packed), rest[:3]))
    assert found
    assert all(host in prefix for prefix in found)
    assert {prefix.prefixlen for prefix in found} == {length or host.max_prefixlen} | {
        host.max_prefixlen
    }
