"""A hostile message costs work in proportion to its size, however it points at itself.

Work is counted and never timed: lines of Python executed, and octets read from the message.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, SupportsIndex

import pytest

from nxdns.dns import packet
from nxdns.dns.header import HEADER_LENGTH, WalkError
from nxdns.dns.name import equal_names, expand_name
from tests.dns.wires import HEADER, raw_record

SIZE = 65535
POINTABLE = 0x4000  # what the fourteen bits of a pointer reach
PER_OCTET = 12  # lines, or octets read, for each octet of a message: half as many again as measured


class CountedBytes(bytes):
    """Bytes that count the octets read from them."""

    octets = 0

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        got = super().__getitem__(key)
        self.octets += len(got) if isinstance(got, bytes) else 1
        return got


def lines_executed(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` runs."""
    lines = 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def assert_linear(wire: bytes, work: Callable[[bytes], object], per_octet: int = PER_OCTET) -> None:
    counted = CountedBytes(wire)
    lines = lines_executed(lambda: work(counted))
    assert lines <= per_octet * len(wire)
    assert counted.octets <= per_octet * len(wire)


def pointer(target: int) -> bytes:
    return (0xC000 | target).to_bytes(2, "big")


def hostile(chain: bytes, owners: Callable[[int], bytes]) -> bytes:
    """A message of SIZE bytes or a little less: ``chain`` in the RDATA of its first record.

    Behind it stand as many records without RDATA as fit, and the name of record ``i`` is
    ``owners(i)``.
    """
    records = [raw_record(16, rdata=chain)]
    left = SIZE - HEADER_LENGTH - len(records[0])
    while left >= len(record := raw_record(1, owner=owners(len(records) - 1))):
        records.append(record)
        left -= len(record)
    return HEADER.pack(7, 0x8000, 0, len(records), 0, 0) + b"".join(records)


CHAIN = HEADER_LENGTH + len(raw_record(16))  # where the first record's RDATA begins
LINKS = (POINTABLE - CHAIN - 1) // 2


def pointer_chain() -> bytes:
    """A root, and LINKS pointers behind it: the first to it, and each to the one before."""
    targets = [CHAIN, *range(CHAIN + 1, CHAIN + 2 * LINKS - 1, 2)]
    return b"\0" + b"".join(map(pointer, targets))


def link(index: int) -> int:
    """The offset of a pointer of the chain."""
    return CHAIN + 1 + 2 * (index % LINKS)


def label_chain() -> bytes:
    """Names of 255 octets: 127 labels of one octet each, and a root."""
    return (b"\x01a" * 127 + b"\0") * 64


def linked_labels() -> bytes:
    """One name of 255 octets whose every label is followed by a pointer to the next."""
    chain = b"\0"
    at = CHAIN
    for _ in range(127):
        at, chain = CHAIN + len(chain), chain + b"\x01a" + pointer(at)
    return chain


def questions() -> bytes:
    """A question with a name of 127 labels, and as many as fit that point at each of them."""
    names = [b"\x01a" * 127 + b"\0"]
    names += [pointer(HEADER_LENGTH + 2 * (i % 127)) for i in range((SIZE - 271) // 6)]
    body = b"".join(name + b"\0\x01\0\x01" for name in names)
    return HEADER.pack(7, 0x8000, len(names), 0, 0, 0) + body


WALKABLE = {
    "all-to-the-far-end-of-a-chain": hostile(pointer_chain(), lambda i: pointer(link(LINKS - 1))),
    "along-a-chain-from-its-near-end": hostile(pointer_chain(), lambda i: pointer(link(i))),
    "along-a-chain-from-its-far-end": hostile(pointer_chain(), lambda i: pointer(link(-1 - i))),
    "a-label-and-then-a-chain": hostile(pointer_chain(), lambda i: b"\x01a" + pointer(link(-1))),
    "all-to-one-name-of-255-octets": hostile(label_chain(), lambda i: pointer(CHAIN)),
    "all-to-the-end-of-linked-labels": hostile(
        linked_labels(), lambda i: pointer(CHAIN + 1 + 4 * 126)
    ),
    "along-linked-labels": hostile(
        linked_labels(), lambda i: pointer(CHAIN + 1 + 4 * (126 - i % 127))
    ),
    "to-every-label-of-long-names": hostile(
        label_chain(), lambda i: pointer(CHAIN + 255 * (i // 127 % 64) + 2 * (i % 127))
    ),
    "to-every-octet-of-long-names": hostile(
        b"\x01" * 254 + b"\0\0" + label_chain(), lambda i: pointer(CHAIN + i % 254)
    ),
    "questions-that-point-at-the-first": questions(),
    "small-records-and-no-pointer": hostile(b"", lambda i: b"\0"),
    "one-name-of-255-octets-in-full-each": hostile(b"", lambda i: b"\x01a" * 127 + b"\0"),
    "the-first-questions-name-each": HEADER.pack(7, 0x8000, 1, 5000, 0, 0)
    + (b"\x01a" * 127 + b"\0" + b"\0\x01\0\x01")
    + raw_record(1, owner=pointer(HEADER_LENGTH)) * 5000,
}


@pytest.mark.parametrize("wire", WALKABLE.values(), ids=WALKABLE)
def test_a_message_full_of_pointers_is_walked_in_linear_work(wire: bytes) -> None:
    assert 60_000 < len(wire) <= SIZE
    assert_linear(wire, packet.parse)


REFUSED = {
    "a-name-of-65k-octets": HEADER.pack(7, 0, 1, 0, 0, 0) + b"\x01a" * 32_761 + b"\0",
    "a-bad-record-behind-a-thousand-good-ones": WALKABLE["along-a-chain-from-its-far-end"][:-12]
    + raw_record(1, owner=b"\x80\0"),
    "a-chain-that-ends-in-a-loop": hostile(
        pointer(CHAIN) + b"".join(pointer(CHAIN + 2 * i) for i in range(8000)),
        lambda i: pointer(CHAIN + 2 * 8000),
    ),
    "a-chain-with-one-label-too-many": hostile(
        b"\0\x01a"
        + pointer(CHAIN)
        + b"".join(b"\x01a" + pointer(CHAIN + 1 + 4 * i) for i in range(4000)),
        lambda i: pointer(CHAIN + 1 + 4 * 4000),
    ),
    "counts-far-beyond-the-records": HEADER.pack(7, 0, 65535, 65535, 65535, 65535) + bytes(65_523),
}


def refuse(wire: bytes) -> None:
    with pytest.raises(WalkError):
        packet.parse(wire)


@pytest.mark.parametrize("wire", REFUSED.values(), ids=REFUSED)
def test_a_message_that_is_refused_late_is_refused_in_linear_work(wire: bytes) -> None:
    assert 60_000 < len(wire) <= SIZE
    assert_linear(wire, refuse)


def test_a_name_behind_the_longest_chain_is_expanded_and_compared_in_linear_work() -> None:
    chain = bytes(CHAIN) + pointer_chain()
    assert len(chain) > POINTABLE - 3
    assert expand_name(chain, link(LINKS - 1)) == b"\0"
    # Nearly every other octet is a pointer here: thrice as many as in a whole message.
    dense = 3 * PER_OCTET
    assert_linear(chain, lambda wire: expand_name(wire, link(-1)), dense)
    assert_linear(chain, lambda wire: equal_names(wire, link(-1), wire, link(-1)), 2 * dense)


def test_the_counters_see_work_that_is_not_linear() -> None:
    def quadratic(wire: bytes) -> int:
        return sum(wire[-1] for _ in range(40) for _ in range(len(wire)))

    def slicing(wire: bytes) -> list[bytes]:
        return [wire[at:] for at in range(len(wire))]

    for work in (quadratic, slicing):
        with pytest.raises(AssertionError):
            assert_linear(bytes(1000), work)
