"""Two names are compared without regard to ASCII case, whatever their compression."""

import dns.name
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns.header import Truncated, WalkError
from nxdns.dns.name import equal_names
from nxdns.dns.packet import parse
from tests.dns.strategies import names
from tests.dns.wires import HEADER, name_wire, raw_message

thorough = settings(max_examples=300, deadline=None)


def compressed(name: dns.name.Name, kept: int) -> tuple[bytes, int]:
    """``name`` with all but its first ``kept`` labels behind a pointer, and its offset."""
    tail = name_wire(dns.name.Name(name.labels[kept:]))
    head = b"".join(bytes([len(label)]) + label for label in name.labels[:kept])
    return tail + head + b"\xc0\x00", len(tail)


@thorough
@given(names(), names())
def test_equality_is_dnspythons(one: dns.name.Name, other: dns.name.Name) -> None:
    assert equal_names(name_wire(one), 0, name_wire(other), 0) == (one == other)


@thorough
@given(names(), st.data())
def test_one_octet_changed_makes_a_name_unequal_when_dnspython_says_so(
    name: dns.name.Name, data: st.DataObject
) -> None:
    if name == dns.name.root:
        return
    labels = [bytearray(label) for label in name.labels]
    label = labels[data.draw(st.integers(0, len(labels) - 2))]
    at = data.draw(st.integers(0, len(label) - 1))
    label[at] = data.draw(st.one_of(st.just(label[at] ^ 0x20), st.integers(0, 255)))
    changed = dns.name.Name([bytes(label) for label in labels])
    assert equal_names(name_wire(name), 0, name_wire(changed), 0) == (name == changed)


@thorough
@given(names(), st.data())
def test_compression_and_case_do_not_matter(name: dns.name.Name, data: st.DataObject) -> None:
    last = len(name.labels) - 1
    shouted = dns.name.Name([label.upper() for label in name.labels])
    one, one_start = compressed(name, data.draw(st.integers(0, last)))
    other, other_start = compressed(shouted, data.draw(st.integers(0, last)))
    assert equal_names(one, one_start, other, other_start)
    assert equal_names(one, one_start, name_wire(shouted), 0)
    assert equal_names(name_wire(name), 0, other, other_start)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(b"\x01[\0", b"\x01{\0", id="bracket-and-brace-differ-by-the-case-bit"),
        pytest.param(b"\x01@\0", b"\x01`\0", id="at-sign-and-backquote-too"),
        pytest.param(b"\x01\xc9\0", b"\x01\xe9\0", id="latin-1-letters-have-no-case-here"),
        pytest.param(b"\x02\xc3\x89\0", b"\x02\xc3\xa9\0", id="nor-have-utf-8-letters"),
        pytest.param(b"\x01a\x01b\0", b"\x03a.b\0", id="a-dot-in-a-label-is-no-boundary"),
        pytest.param(b"\x01a\x01b\0", b"\x03a\x01b\0", id="labels-are-not-their-octets"),
        pytest.param(b"\x01a\0", b"\x01a\x01a\0", id="a-prefix-is-another-name"),
        pytest.param(b"\0", b"\x01a\0", id="root-and-not"),
        pytest.param(b"\x01\x10\0", b"\x01\x30\0", id="digits-have-no-case"),
    ],
)
def test_names_that_differ_by_more_than_case_are_unequal(one: bytes, other: bytes) -> None:
    assert not equal_names(one, 0, other, 0)
    assert not equal_names(other, 0, one, 0)


def test_every_letter_equals_its_other_case() -> None:
    upper, lower = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz"
    assert equal_names(b"\x1a" + upper + b"\0", 0, b"\x1a" + lower + b"\0", 0)


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        pytest.param(b"\x03ab", Truncated, id="truncated"),
        pytest.param(b"\xc0\x00", WalkError, id="pointer-to-itself"),
        pytest.param(b"\x40", WalkError, id="reserved-label-type"),
    ],
)
def test_a_name_that_cannot_be_walked_cannot_be_compared(
    wire: bytes, error: type[WalkError]
) -> None:
    with pytest.raises(error):
        equal_names(wire, 0, b"\0", 0)
    with pytest.raises(error):
        equal_names(b"\0", 0, wire, 0)
    with pytest.raises(error):  # nor with itself: the fast path is no way around the rules
        equal_names(wire, 0, wire, 0)


def test_equal_bytes_with_a_pointer_into_unequal_messages_are_unequal_names() -> None:
    # Pointers at the ID, which reads as the name "a" in one message and as "b" in the other.
    question = b"\xc0\x00\x00\x01\x00\x01"
    one = parse(HEADER.pack(0x0161, 0, 1, 0, 0, 0) + question).question()
    other = parse(HEADER.pack(0x0162, 0, 1, 0, 0, 0) + question).question()
    shouted = parse(HEADER.pack(0x0141, 0, 1, 0, 0, 0) + question).question()
    assert one.name == other.name == shouted.name
    assert not one.same_name(other)
    assert one.same_name(shouted)


@thorough
@given(names(), names())
def test_questions_are_compared_by_name_alone(one: dns.name.Name, other: dns.name.Name) -> None:
    asked = parse(raw_message(question=name_wire(one) + b"\0\x01\0\x01")).question()
    echoed = parse(raw_message(question=name_wire(other) + b"\0\x02\0\x03")).question()
    assert asked.same_name(echoed) == (one == other)
    assert asked.name == name_wire(one)
