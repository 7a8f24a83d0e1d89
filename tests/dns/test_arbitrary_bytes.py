"""Any byte string comes back as a value or as an error of the wire core's own."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxdns.dns import packet
from nxdns.dns.edns import OptError, find_opt, parse_opt
from nxdns.dns.framing import EmptyFrame, Unframer
from nxdns.dns.header import HEADER_LENGTH, Header, Truncated, WalkError
from nxdns.dns.name import MAX_NAME, equal_names, expand_name, skip_name
from nxdns.dns.reply import ResponseBuilder
from tests.dns.strategies import any_bytes, tangled_names

fuzzed = settings(max_examples=200, deadline=None)


@fuzzed
@given(any_bytes())
def test_a_message_is_walked_or_refused_with_a_walk_error(wire: bytes) -> None:
    with suppress(WalkError):
        packet.parse(wire)


@fuzzed
@given(any_bytes())
def test_a_header_is_parsed_from_any_twelve_bytes_and_refused_below(wire: bytes) -> None:
    if len(wire) < HEADER_LENGTH:
        with pytest.raises(Truncated):
            Header.parse(wire)
    else:
        assert Header.parse(wire).id == int.from_bytes(wire[:2], "big")


@fuzzed
@given(any_bytes())
def test_whatever_was_walked_has_a_readable_question_and_opt_or_an_opt_error(wire: bytes) -> None:
    try:
        message = packet.parse(wire)
    except WalkError:
        return
    # From here on nothing but the OPT may be refused: the walk has seen every name.
    if message.qdcount:
        question = message.question()
        assert question.same_name(question)
        echo = question.echo()
        assert expand_name(wire, HEADER_LENGTH) == echo[:-4]
        packet.parse(ResponseBuilder(message, echo).build())
    record = message.opt_record()
    try:
        opt = find_opt(message)
    except OptError:
        assert record is not None
        return
    assert (opt is None) == (record is None)
    if record is not None:
        assert parse_opt(record).options == record.rdata


@fuzzed
@given(tangled_names(), st.integers(0, 70))
def test_a_name_is_skipped_within_the_message_or_refused(wire: bytes, start: int) -> None:
    try:
        end = skip_name(wire, start, {})
    except WalkError:
        with pytest.raises(WalkError):
            expand_name(wire, start)
        return
    assert start < end <= len(wire)
    name = expand_name(wire, start)
    assert len(name) <= MAX_NAME
    assert skip_name(name, 0, {}) == len(name)
    assert expand_name(name, 0) == name


@fuzzed
@given(tangled_names(), st.lists(st.integers(0, 70), max_size=20))
def test_what_a_message_taught_about_one_name_changes_no_verdict_on_the_next(
    wire: bytes, starts: list[int]
) -> None:
    known: dict[int, tuple[int, int]] = {}
    for start in starts:
        try:
            alone = skip_name(wire, start, {})
        except WalkError:
            continue  # a walk ends at its first error, and what it knew with it
        assert skip_name(wire, start, known) == alone


@fuzzed
@given(tangled_names(), st.lists(st.integers(0, 70), max_size=20), st.integers(0, 70))
def test_a_bad_name_is_refused_however_much_is_known(
    wire: bytes, starts: list[int], bad: int
) -> None:
    known: dict[int, tuple[int, int]] = {}
    for start in starts:
        try:
            skip_name(wire, start, {})
        except WalkError:
            continue
        skip_name(wire, start, known)
    try:
        skip_name(wire, bad, {})
    except WalkError:
        with pytest.raises(WalkError):
            skip_name(wire, bad, known)


@fuzzed
@given(tangled_names(), st.integers(0, 70), tangled_names(), st.integers(0, 70))
def test_two_names_are_compared_or_refused(
    one: bytes, one_start: int, other: bytes, other_start: int
) -> None:
    try:
        equal = equal_names(one, one_start, other, other_start)
    except WalkError:
        return
    assert equal == equal_names(other, other_start, one, one_start)


@fuzzed
@given(st.lists(st.one_of(st.binary(max_size=8), st.sampled_from([b"\0", b"\0\1", b"\0\0"]))))
def test_a_stream_is_unframed_or_refused_as_an_empty_frame(chunks: list[bytes]) -> None:
    unframer = Unframer()
    fed = taken = 0
    for chunk in chunks:
        unframer.feed(chunk)
        fed += len(chunk)
        try:
            while (message := unframer.next_message()) is not None:
                assert message
                taken += 2 + len(message)
        except EmptyFrame:
            return
        assert unframer.received == fed - taken
