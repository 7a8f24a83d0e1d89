"""Names on the wire: skipping, expanding and comparing them (RFC 1035 §3.1, §4.1.4).

A compression pointer must point strictly backwards: before the name it ends, and each further
one before the place it was reached at. So a loop cannot be written, only refused.
"""

from typing import Final

from nxdns.dns.header import Truncated, WalkError

MAX_NAME: Final = 255  # RFC 1035 §2.3.4, length octets and the root's zero included
MAX_LABEL: Final = 63  # RFC 1035 §2.3.4; what six bits can say
POINTER: Final = 0xC0  # RFC 1035 §4.1.4: the two high bits of a pointer; 01 and 10 are not in use

NameLengths = dict[int, tuple[int, int]]
"""What is known of the names of one message: by the offset of each label, pointer or root seen,
the octets of the name from there on, pointers followed, and the target of the first pointer
behind it (-1 for none). It keeps a walk linear however often a name is pointed at."""


def skip_name(wire: bytes, start: int, known: NameLengths) -> int:
    """The offset just behind the name at ``start``, which is walked but not expanded.

    ``known`` is this message's memo: pass the same (at first empty) dict for every name of it.
    Raises Truncated, or WalkError for a reserved label type, a pointer that does not point
    backwards, or a name that is longer than 255 octets once its pointers are followed.
    """
    offset = start
    try:
        while True:
            octet = wire[offset]
            if octet == 0:
                if offset - start >= MAX_NAME:
                    raise WalkError(f"a name of more than {MAX_NAME} octets at {start}")
                return offset + 1
            if octet <= MAX_LABEL:
                offset += octet + 1
            elif octet >= POINTER:
                target = (octet & 0x3F) << 8 | wire[offset + 1]
                if target >= start:
                    raise WalkError(f"a pointer at {offset} to {target}, which is not backwards")
                if offset - start + _expanded_length(wire, target, known) > MAX_NAME:
                    raise WalkError(f"a name of more than {MAX_NAME} octets at {start}")
                return offset + 2
            else:
                raise WalkError(f"a label of the reserved type {octet >> 6:02b} at {offset}")
    except IndexError:
        raise Truncated(f"the name at {start} runs off the message") from None


def _expanded_length(wire: bytes, target: int, known: NameLengths) -> int:
    """Octets of the name at ``target``, pointers followed. Raises IndexError off the end.

    Iterative, because a message may chain thousands of pointers; every label is visited once in
    the life of ``known``, because a message may also point at the same chain thousands of times.
    """
    trail: list[tuple[list[int], int]] = []  # runs of labels, each with the pointer it ends in
    while True:
        labels: list[int] = []
        offset = target
        while (hit := known.get(offset)) is None:
            octet = wire[offset]
            if octet == 0:
                hit = known[offset] = (1, -1)
                break
            if octet <= MAX_LABEL:
                labels.append(offset)
                offset += octet + 1
            elif octet >= POINTER:
                break
            else:
                raise WalkError(f"a label of the reserved type {octet >> 6:02b} at {offset}")
        pointer = hit[1] if hit else (wire[offset] & 0x3F) << 8 | wire[offset + 1]
        if pointer >= target:
            raise WalkError(f"a pointer to {pointer}, which is not before {target}")
        if hit is None:
            labels.append(offset)
            trail.append((labels, pointer))
            target = pointer
            continue
        length = _settle(wire, labels, hit[0], pointer, known)
        for labels, pointer in reversed(trail):
            length = _settle(wire, labels, length, pointer, known)
        return length


def _settle(wire: bytes, labels: list[int], length: int, pointer: int, known: NameLengths) -> int:
    """Enter ``labels`` into ``known``, last first; ``length`` is what follows them."""
    for offset in reversed(labels):
        octet = wire[offset]
        if octet <= MAX_LABEL:
            length += octet + 1
            if length > MAX_NAME:
                raise WalkError(f"a name of more than {MAX_NAME} octets at {offset}")
        known[offset] = (length, pointer)
    return length


def expand_name(wire: bytes, start: int) -> bytes:
    """The name at ``start`` without pointers, root label included, case kept.

    Raises Truncated or WalkError as skip_name does.
    """
    skip_name(wire, start, {})
    name = bytearray()
    offset = start
    while octet := wire[offset]:
        if octet <= MAX_LABEL:
            name += wire[offset : offset + octet + 1]
            offset += octet + 1
        else:
            offset = (octet & 0x3F) << 8 | wire[offset + 1]
    name.append(0)
    return bytes(name)


def equal_names(one: bytes, one_start: int, other: bytes, other_start: int) -> bool:
    """Whether two names, each in its own message, are equal without regard to ASCII case.

    RFC 4343 §3. Raises Truncated or WalkError when one of them cannot be walked.
    """
    # Length octets are at most 63 and so below "A": lower() changes letters of labels only.
    return expand_name(one, one_start).lower() == expand_name(other, other_start).lower()
