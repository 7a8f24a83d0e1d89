"""Names on the wire: labels, lengths and compression pointers."""

import dns.exception
import dns.name
import pytest

from nxdns.dns.header import Truncated, WalkError
from nxdns.dns.name import expand_name, skip_name

LABEL_63 = b"\x3f" + b"x" * 63
NAME_255 = LABEL_63 * 3 + b"\x3d" + b"y" * 61 + b"\0"
NAME_256 = LABEL_63 * 3 + b"\x3e" + b"y" * 62 + b"\0"


@pytest.mark.parametrize(
    ("wire", "start", "end", "name"),
    [
        pytest.param(b"\0", 0, 1, b"\0", id="root"),
        pytest.param(b"\x03wWw\x00", 0, 5, b"\x03wWw\0", id="case-kept"),
        pytest.param(LABEL_63 + b"\0", 0, 65, LABEL_63 + b"\0", id="label-of-63-octets"),
        pytest.param(NAME_255, 0, 255, NAME_255, id="name-of-255-octets"),
        pytest.param(b"\x01a\x00\xc0\x00", 3, 5, b"\x01a\0", id="pointer-alone"),
        pytest.param(b"\x01a\x00\x01b\xc0\x00", 3, 7, b"\x01b\x01a\0", id="label-then-pointer"),
        pytest.param(b"\x01a\x01b\x00\xc0\x02", 5, 7, b"\x01b\0", id="into-the-middle-of-a-name"),
        pytest.param(b"\x01a\x00\xc0\x02", 3, 5, b"\0", id="to-a-root"),
        pytest.param(b"\0\xc0\0\xc0\x01\xc0\x03", 5, 7, b"\0", id="pointer-to-pointer-to-pointer"),
        pytest.param(b"\x02\x01z\0\xc0\x00", 4, 6, b"\x02\x01z\0", id="label-that-looks-like-one"),
        pytest.param(b"\x02\x01z\0\xc0\x01", 4, 6, b"\x01z\0", id="into-the-middle-of-a-label"),
        pytest.param(b"\x01.\x00", 0, 3, b"\x01.\0", id="dot-within-a-label"),
        pytest.param(b"\x02\xff\x00\x00", 0, 4, b"\x02\xff\0\0", id="any-octet-within-a-label"),
    ],
)
def test_a_name_is_skipped_and_expanded_as_dnspython_reads_it(
    wire: bytes, start: int, end: int, name: bytes
) -> None:
    oracle, used = dns.name.from_wire(wire, start)
    assert (oracle.to_wire(), start + used) == (name, end)
    assert skip_name(wire, start, {}) == end
    assert expand_name(wire, start) == name


@pytest.mark.parametrize("behind", [b"", b"\0\0", b"\xff\xff"])
def test_a_name_ends_where_it_ends_whatever_follows(behind: bytes) -> None:
    assert skip_name(b"\x01a\x00" + behind, 0, {}) == 3
    assert skip_name(b"\0\xc0\x00" + behind, 1, {}) == 3


@pytest.mark.parametrize(
    ("wire", "start"),
    [
        pytest.param(b"\0\0\xc0\x04\0", 2, id="pointer-forward"),
        pytest.param(b"\0\0\xc0\x40", 2, id="pointer-past-the-end"),
        pytest.param(b"\0\0\xc0\x02", 2, id="pointer-to-itself"),
        pytest.param(b"\x01a\xc0\x00", 0, id="pointer-to-the-start-of-its-own-name"),
        pytest.param(b"\x01a\x01b\xc0\x02", 0, id="pointer-into-its-own-name"),
        pytest.param(b"\x02\0z\xc0\x01", 0, id="pointer-into-a-label-of-its-own-name"),
        pytest.param(b"\xc0\x02\xc0\x00", 0, id="two-pointers-at-each-other-from-the-first"),
        pytest.param(b"\xc0\x02\xc0\x00", 2, id="two-pointers-at-each-other-from-the-second"),
        pytest.param(b"\xc0\x04\xc0\x00\xc0\x02", 4, id="ring-of-three-pointers"),
        pytest.param(b"\0\xc0\x01\xc0\x01", 3, id="to-a-pointer-at-itself"),
        pytest.param(b"\x01a\xc0\x00\xc0\x00", 4, id="to-a-name-that-points-at-its-own-start"),
        pytest.param(b"\x01a\x01b\xc0\x02\xc0\x00", 6, id="to-a-name-that-points-into-itself"),
        pytest.param(b"\x01a\x01b\xc0\x00\xc0\x02", 6, id="two-labels-in-a-ring"),
        pytest.param(b"\0\x01a\xc0\x04\xc0\x01", 5, id="to-a-name-that-points-forward"),
        pytest.param(b"\x01a\xc0\x00\0", 2, id="to-labels-that-run-into-the-same-pointer"),
        pytest.param(b"\x40" + b"x" * 64 + b"\0", 0, id="label-of-64-octets"),
        pytest.param(b"\x80\0\0", 0, id="label-type-10"),
        pytest.param(b"\x41\x01\0", 0, id="label-type-01"),
        pytest.param(b"\xbf\0\0", 0, id="last-of-the-reserved-types"),
        pytest.param(b"\0\x40\0", 1, id="type-01-that-would-point-at-a-root"),
        pytest.param(b"\0\x80\0", 1, id="type-10-that-would-point-at-a-root"),
        pytest.param(b"\0\x40\0\xc0\x01", 3, id="pointer-to-type-01"),
        pytest.param(b"\0\x80\0\xc0\x01", 3, id="pointer-to-type-10"),
        pytest.param(b"\x01a\x80\0\xc0\x00", 4, id="pointer-to-a-label-before-a-reserved-type"),
        pytest.param(NAME_256, 0, id="name-of-256-octets"),
        pytest.param(LABEL_63 * 1000 + b"\0", 0, id="name-of-64001-octets"),
        pytest.param(b"\x01a" * 127 + b"\x01b\0", 0, id="name-of-128-labels"),
    ],
)
def test_a_bad_name_is_refused_and_is_not_called_truncated(wire: bytes, start: int) -> None:
    with pytest.raises(dns.exception.DNSException):
        dns.name.from_wire(wire, start)
    for read in (lambda: skip_name(wire, start, {}), lambda: expand_name(wire, start)):
        with pytest.raises(WalkError) as refused:
            read()
        assert not isinstance(refused.value, Truncated)


@pytest.mark.parametrize(
    ("wire", "start"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"\0", 1, id="behind-the-end"),
        pytest.param(b"\0", 9, id="far-behind-the-end"),
        pytest.param(b"\x03", 0, id="after-a-length"),
        pytest.param(b"\x03ab", 0, id="within-a-label"),
        pytest.param(b"\x03abc", 0, id="before-the-root"),
        pytest.param(b"\0\xc0", 1, id="within-a-pointer"),
        pytest.param(b"\0\x01a\xc0", 1, id="within-a-pointer-behind-a-label"),
        pytest.param(b"\x09ab\xc0\x00", 3, id="target-runs-off-the-end"),
        pytest.param(b"\x04ab\xc0\x00", 3, id="target-runs-off-the-end-by-its-root"),
    ],
)
def test_a_name_that_runs_off_the_message_is_truncated(wire: bytes, start: int) -> None:
    with pytest.raises(Truncated):
        skip_name(wire, start, {})
    with pytest.raises(Truncated):
        expand_name(wire, start)


def pointed_at(suffix: bytes, labels: bytes) -> tuple[bytes, int]:
    """``suffix``, and behind it ``labels`` that end in a pointer to it, with their offset."""
    return suffix + labels + b"\xc0\x00", len(suffix)


@pytest.mark.parametrize(
    "split",
    [
        pytest.param(1, id="one-label-and-a-pointer"),
        pytest.param(2, id="two-labels-and-a-pointer"),
        pytest.param(3, id="three-labels-and-a-pointer"),
        pytest.param(4, id="pointer-to-the-root"),
    ],
)
@pytest.mark.parametrize(
    ("last", "legal"),
    [
        pytest.param(61, True, id="255-octets"),
        pytest.param(62, False, id="256-octets"),
    ],
)
def test_the_length_of_a_name_is_counted_through_its_pointer(
    split: int, last: int, legal: bool
) -> None:
    labels = [LABEL_63] * 3 + [bytes([last]) + b"y" * last]
    wire, start = pointed_at(b"".join(labels[split:]) + b"\0", b"".join(labels[:split]))
    if legal:
        assert skip_name(wire, start, {}) == len(wire)
        assert len(expand_name(wire, start)) == 255
    else:
        with pytest.raises(WalkError):
            skip_name(wire, start, {})
        with pytest.raises(WalkError):
            expand_name(wire, start)


@pytest.mark.parametrize(
    ("last", "legal"),
    [pytest.param(61, True, id="255-octets"), pytest.param(62, False, id="256-octets")],
)
def test_the_length_of_a_name_is_counted_through_a_chain_of_pointers(
    last: int, legal: bool
) -> None:
    wire = b"\0"
    start = 0
    for label in [LABEL_63] * 3 + [bytes([last]) + b"y" * last]:
        before, start = start, len(wire)
        wire += label + b"\xc0" + bytes([before])
    if legal:
        assert skip_name(wire, start, {}) == len(wire)
        assert expand_name(wire, start) == dns.name.from_wire(wire, start)[0].to_wire()
        assert len(expand_name(wire, start)) == 255
    else:
        with pytest.raises(WalkError):
            skip_name(wire, start, {})


def test_a_name_known_to_be_long_is_counted_when_it_is_pointed_at_again() -> None:
    known: dict[int, tuple[int, int]] = {}
    wire = NAME_255 + b"\xc0\x00" + b"\x01a\xc0\x00"
    assert skip_name(wire, 255, known) == 257
    with pytest.raises(WalkError):  # 255 octets and two more
        skip_name(wire, 257, known)


@pytest.mark.parametrize(
    "pointers", [pytest.param(17, id="seventeen"), pytest.param(8000, id="eight-thousand")]
)
def test_a_chain_of_pointers_is_followed_to_its_end_without_recursion(pointers: int) -> None:
    chain = [0, *range(3, 3 + 2 * (pointers - 1), 2)]
    wire = b"\x01a\0" + b"".join((0xC000 | to).to_bytes(2, "big") for to in chain)
    start = len(wire) - 2
    assert skip_name(wire, start, {}) == len(wire)
    assert expand_name(wire, start) == b"\x01a\0"


def test_a_pointer_reaches_the_last_of_its_16384_octets() -> None:
    wire = bytes(0x3FFF) + b"\x01a\x00" + b"\xff\xff"
    # Offset 0x3FFF holds the label's length, and the pointer all fourteen bits.
    assert expand_name(wire, len(wire) - 2) == b"\x01a\0"
