"""The two-byte length prefix, there and back."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns.framing import EmptyFrame, Unframer, frame

SIZES = [1, 2, 255, 256, 257, 4096, 65534, 65535]


def unframed(*chunks: bytes) -> list[bytes]:
    """The messages of a stream, asked for after every chunk."""
    unframer = Unframer()
    messages = []
    for chunk in chunks:
        unframer.feed(chunk)
        while (message := unframer.next_message()) is not None:
            messages.append(message)
    return messages


@pytest.mark.parametrize("size", SIZES)
def test_a_message_comes_back_as_it_was_framed(size: int) -> None:
    message = bytes(index % 251 for index in range(size))
    assert unframed(frame(message)) == [message]


@pytest.mark.parametrize("size", SIZES)
def test_the_prefix_is_the_length_of_the_message_high_octet_first(size: int) -> None:
    framed = frame(b"x" * size)
    assert framed[0] * 256 + framed[1] == size
    assert framed[2:] == b"x" * size


def test_a_prefix_of_one_and_zero_announces_256_bytes() -> None:
    assert frame(b"x" * 256)[:2] == b"\x01\x00"
    assert unframed(b"\x01\x00" + b"x" * 255) == []
    assert unframed(b"\x01\x00" + b"x" * 256) == [b"x" * 256]


@pytest.mark.parametrize("size", [0, 65536, 65537, 131073])
def test_what_sixteen_bits_cannot_say_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=str(size)):
        frame(b"x" * size)


@pytest.mark.parametrize("rest", [b"", b"\x00\x01x"], ids=["nothing-behind", "a-message-behind"])
def test_a_length_of_zero_is_refused_and_what_is_behind_it_never_read(rest: bytes) -> None:
    unframer = Unframer()
    unframer.feed(b"\0\0" + rest)
    for _ in range(3):
        with pytest.raises(EmptyFrame):
            unframer.next_message()


def test_a_message_before_a_length_of_zero_is_still_given() -> None:
    unframer = Unframer()
    unframer.feed(frame(b"first") + b"\0\0")
    assert unframer.next_message() == b"first"
    with pytest.raises(EmptyFrame):
        unframer.next_message()


def test_a_length_of_zero_is_refused_as_soon_as_its_second_byte_is_there() -> None:
    unframer = Unframer()
    unframer.feed(b"\0")
    assert unframer.next_message() is None
    unframer.feed(b"\0")
    with pytest.raises(EmptyFrame):
        unframer.next_message()


def test_two_messages_split_at_every_offset_come_back_whole() -> None:
    messages = [b"\x00\x01first", b"\x00" * 5]  # they look like prefixes themselves
    stream = b"".join(frame(message) for message in messages)
    for at in range(len(stream) + 1):
        assert unframed(stream[:at], stream[at:]) == messages


def test_a_message_fed_byte_by_byte_comes_with_its_last_byte_and_not_before() -> None:
    message = bytes(range(1, 200))
    unframer = Unframer()
    for count, octet in enumerate(frame(message), start=1):
        assert unframer.next_message() is None
        unframer.feed(bytes([octet]))
        assert unframer.received == count
    assert unframer.next_message() == message
    assert unframer.next_message() is None


def test_the_longest_message_comes_with_its_last_byte() -> None:
    message = bytes(65535)
    unframer = Unframer()
    unframer.feed(frame(message)[:-1])
    assert unframer.next_message() is None
    unframer.feed(b"\0")
    assert unframer.next_message() == message


def test_several_messages_in_one_feed_come_one_by_one() -> None:
    messages = [b"a", b"bb" * 300, b"c", b"dddd"]
    unframer = Unframer()
    unframer.feed(b"".join(frame(message) for message in messages) + b"\x00")
    assert [unframer.next_message() for _ in range(5)] == [*messages, None]
    assert unframer.received == 1


def test_received_counts_from_the_last_message_taken_prefix_included() -> None:
    unframer = Unframer()
    assert unframer.received == 0
    unframer.feed(b"")
    assert unframer.received == 0
    unframer.feed(b"\x00")
    assert unframer.received == 1
    unframer.feed(b"\x02h")
    assert unframer.received == 3
    assert unframer.next_message() is None  # asking takes nothing
    assert unframer.received == 3
    unframer.feed(b"i\x00\x05be")
    assert unframer.received == 8
    assert unframer.next_message() == b"hi"
    assert unframer.received == 4
    unframer.feed(b"gun")
    assert unframer.next_message() == b"begun"
    assert unframer.received == 0


def test_a_message_given_is_the_callers_own() -> None:
    unframer = Unframer()
    unframer.feed(frame(b"first"))
    first = unframer.next_message()
    unframer.feed(frame(b"other"))
    assert unframer.next_message() == b"other"
    assert first == b"first"
    assert isinstance(first, bytes)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.data())
def test_a_stream_cut_anyhow_gives_the_same_messages(
    messages: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(frame(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    bounds = [0, *cuts, len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(bounds)]
    assert unframed(*chunks) == messages
