"""Who rides on a session under which message ID, and what answers whom."""

import pytest

from nxdns.dns.framing import frame
from nxdns.upstream.depth import PIPELINE_DEPTH
from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.pipeline import Pipeline
from nxdns.upstream.rider import Ending, Rider
from tests.support.fake_leaves import MS, SECOND
from tests.support.messages import big_response, make_query, make_response
from tests.support.pipelines import (
    CLIENT_ID,
    board,
    board_all,
    pipeline_of,
    reply_to,
    reply_with_id,
    what_the_client_gets,
)

WRONG_ID = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)
WRONG_NAME = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME)
WRONG_TYPE = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_TYPE)
EMPTY = Fault(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE)
TRUNCATED = Fault(FaultKind.BAD_RESPONSE, Cause.TRUNCATED)
NOT_A_RESPONSE = Fault(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE)

NOBODYS_ID = 0x0BAD
LATE_FOR = 60 * SECOND


def answered(pipeline: Pipeline, plaintext: bytes, *, now: int = 0) -> list[tuple[Rider, bytes]]:
    """What the octets answer, none of which ends the session."""
    answers, ending = pipeline.feed(plaintext, now)
    assert ending is None
    return [(rider, response.wire) for rider, response in answers]


def bad(pipeline: Pipeline, plaintext: bytes, *, now: int = 0) -> Ending:
    """The end of the session that the octets bring about."""
    _, ending = pipeline.feed(plaintext, now)
    assert ending is not None
    assert ending.ours, "it is we who end a session for what it carries"
    return ending


def test_what_is_sent_is_the_query_under_another_message_id() -> None:
    rider = board(pipeline_of(0x1234))
    assert rider.query[:2] == CLIENT_ID.to_bytes(2, "big")
    assert rider.message == b"\x12\x34" + rider.query[2:]
    assert rider.frame == frame(rider.message)


def test_the_answer_comes_back_under_the_message_id_of_the_client() -> None:
    pipeline = pipeline_of(0x1234)
    rider = board(pipeline)
    assert answered(pipeline, reply_to(rider)) == [(rider, what_the_client_gets(rider))]
    assert pipeline.waiting == {}
    assert (pipeline.answered, pipeline.late, pipeline.surplus) == (1, 0, False)


@pytest.mark.parametrize("drawn", [0, 4711, 0xFFFF])
def test_those_who_wait_have_message_ids_of_their_own_whatever_is_drawn(drawn: int) -> None:
    riders = board_all(pipeline_of(drawn), 300)
    ids = {rider.message_id for rider in riders}
    assert len(ids) == len(riders)
    assert riders[0].message_id == drawn, "what is free is taken as drawn"
    assert all(int.from_bytes(r.message[:2], "big") == r.message_id for r in riders)


def test_who_has_given_up_keeps_its_message_id_from_others_for_five_seconds() -> None:
    pipeline = pipeline_of(7)
    first, _ = board_all(pipeline, 2)
    pipeline.abandon(first, 0)
    assert board(pipeline, now=LATE_FOR).message_id not in {7, 8}
    assert board(pipeline, now=LATE_FOR + 1).message_id == 7


def test_the_message_id_of_an_answered_one_is_free_again() -> None:
    pipeline = pipeline_of(7)
    answered(pipeline, reply_to(board(pipeline)))
    assert board(pipeline).message_id == 7


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_answers_may_come_in_any_order(order: tuple[int, ...]) -> None:
    pipeline = pipeline_of()
    riders = board_all(pipeline, 3)
    for turn, index in enumerate(order):
        rider = riders[index]
        address = f"192.0.2.{turn + 1}"
        got = answered(pipeline, reply_to(rider, address))
        assert got == [(rider, what_the_client_gets(rider, address))]
    assert pipeline.waiting == {}


def test_the_same_question_asked_twice_gets_each_its_own_answer() -> None:
    pipeline = pipeline_of()
    one, other = board(pipeline), board(pipeline)
    both = reply_to(other, "192.0.2.2") + reply_to(one, "192.0.2.1")
    assert answered(pipeline, both) == [
        (other, what_the_client_gets(other, "192.0.2.2")),
        (one, what_the_client_gets(one, "192.0.2.1")),
    ]


def test_the_question_may_come_back_in_another_case() -> None:
    pipeline = pipeline_of(7)
    rider = board(pipeline, "www.example.com")
    [(who, response)] = answered(pipeline, reply_with_id(7, "WWW.eXample.COM"))
    assert who is rider
    assert response[:2] == CLIENT_ID.to_bytes(2, "big")


def test_several_answers_that_come_at_once_are_all_taken() -> None:
    pipeline = pipeline_of()
    riders = board_all(pipeline, 32)
    got = answered(pipeline, b"".join(reply_to(rider) for rider in reversed(riders)))
    assert [rider for rider, _ in got] == riders[::-1]


def test_answers_may_be_split_anywhere() -> None:
    replies = b"".join(reply_to(rider) for rider in board_all(pipeline_of(), 3))
    for offset in range(len(replies) + 1):
        pipeline = pipeline_of()
        riders = board_all(pipeline, 3)
        got = answered(pipeline, replies[:offset]) + answered(pipeline, replies[offset:])
        assert got == [(rider, what_the_client_gets(rider)) for rider in riders], offset
        assert not pipeline.surplus


def test_answers_may_come_octet_by_octet() -> None:
    pipeline = pipeline_of()
    riders = board_all(pipeline, 3)
    replies = b"".join(reply_to(rider) for rider in riders)
    got = [answer for octet in replies for answer in answered(pipeline, bytes([octet]))]
    assert got == [(rider, what_the_client_gets(rider)) for rider in riders]


def test_the_longest_message_there_is_is_taken() -> None:
    pipeline = pipeline_of()
    rider, other = board_all(pipeline, 2)
    longest = frame(big_response(rider.message, 65535))
    got = answered(pipeline, longest[:40_000])
    got += answered(pipeline, longest[40_000:] + reply_to(other))
    assert [who for who, _ in got] == [rider, other]
    assert got[0][1] == big_response(rider.query, 65535)


# Answers that nobody waits for any more.


@pytest.mark.parametrize("others_wait", [True, False])
def test_an_answer_within_five_seconds_of_giving_up_is_late_and_ignored(others_wait: bool) -> None:
    pipeline = pipeline_of()
    rider, other = board_all(pipeline, 2)
    pipeline.abandon(rider, 0)
    if not others_wait:
        answered(pipeline, reply_to(other))
    assert answered(pipeline, reply_to(rider), now=LATE_FOR) == []
    assert (pipeline.late, pipeline.surplus) == (1, False)
    assert list(pipeline.waiting.values()) == ([other] if others_wait else [])


def test_an_answer_after_more_than_a_minute_is_one_that_nobody_asked_for() -> None:
    pipeline = pipeline_of()
    rider, other, _ = board_all(pipeline, 3)
    pipeline.abandon(rider, 0)
    ending = bad(pipeline, reply_to(rider), now=LATE_FOR + 1)
    assert (ending.fault, ending.culprit) == (WRONG_ID, other)
    assert pipeline.late == 0


def test_of_those_who_gave_up_each_has_a_minute_of_its_own() -> None:
    pipeline = pipeline_of()
    early, later, other = board_all(pipeline, 3)
    pipeline.abandon(early, 0)
    pipeline.abandon(later, 3 * SECOND)
    assert answered(pipeline, reply_to(later), now=LATE_FOR + 1) == []
    assert pipeline.late == 1
    assert bad(pipeline, reply_to(early), now=LATE_FOR + 1).culprit is other


def test_the_minute_stands_still_while_nobody_waits_and_so_nobody_reads() -> None:
    pipeline = pipeline_of(1, 2, 3)
    gone, other = board_all(pipeline, 2)
    pipeline.abandon(gone, 0)
    answered(pipeline, reply_to(other), now=SECOND)
    # It came a moment later, and is read with the answer to the next query.
    after = board(pipeline, now=600 * SECOND)
    assert answered(pipeline, reply_to(gone) + reply_to(after), now=600 * SECOND) == [
        (after, what_the_client_gets(after))
    ]
    assert pipeline.late == 1
    last = board(pipeline, now=601 * SECOND)
    assert bad(pipeline, reply_to(gone), now=660 * SECOND + 1).culprit is last


def test_an_answer_that_comes_again_is_late() -> None:
    pipeline = pipeline_of()
    rider, other = board_all(pipeline, 2)
    assert len(answered(pipeline, reply_to(rider) * 3)) == 1
    assert answered(pipeline, reply_to(rider), now=60 * SECOND) == []
    assert (pipeline.late, pipeline.answered) == (3, 1)
    assert list(pipeline.waiting.values()) == [other]


def test_of_a_busy_session_the_last_256_answers_are_known_when_they_come_again() -> None:
    pipeline = pipeline_of(*range(1_000))
    riders = board_all(pipeline, 1_000)
    replies = [reply_to(rider) for rider in riders[:-1]]
    for first in range(0, len(replies), PIPELINE_DEPTH):
        answered(pipeline, b"".join(replies[first : first + PIPELINE_DEPTH]))
    assert answered(pipeline, b"".join(reply_to(rider) for rider in riders[-257:-1])) == []
    assert pipeline.late == 256
    assert bad(pipeline, reply_to(riders[0])).culprit is riders[-1]


def test_giving_up_after_the_answer_retires_nothing() -> None:
    pipeline = pipeline_of(7)
    rider = board(pipeline)
    answered(pipeline, reply_to(rider))
    again = board(pipeline)
    assert again.message_id == rider.message_id
    pipeline.abandon(rider, 0)
    assert list(pipeline.waiting.values()) == [again]


# Answers that end the session.


def test_a_message_id_that_was_never_given_is_charged_to_the_oldest() -> None:
    pipeline = pipeline_of()
    first, oldest, _ = board_all(pipeline, 3)
    answered(pipeline, reply_to(first))
    ending = bad(pipeline, reply_with_id(NOBODYS_ID, "1.example.com"))
    assert (ending.fault, ending.culprit) == (WRONG_ID, oldest)


def test_what_is_no_answer_at_all_is_a_bad_one_of_the_oldest_even_if_nobody_has_its_id() -> None:
    pipeline = pipeline_of()
    oldest, _ = board_all(pipeline, 2)
    ending = bad(pipeline, frame(make_query("0.example.com", id_=NOBODYS_ID)))
    assert (ending.fault, ending.culprit) == (NOT_A_RESPONSE, oldest)


@pytest.mark.parametrize("charged", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "rtype", "fault"),
    [
        pytest.param("elsewhere.example.com", "A", WRONG_NAME, id="name"),
        pytest.param("{}.example.com", "AAAA", WRONG_TYPE, id="type"),
    ],
)
def test_an_answer_to_another_question_is_charged_to_the_one_it_was_for(
    name: str, rtype: str, fault: Fault, charged: int
) -> None:
    pipeline = pipeline_of()
    riders = board_all(pipeline, 3)
    rider = riders[charged]
    wrong = make_response(make_query(name.format(charged), rtype, id_=rider.message_id))
    ending = bad(pipeline, frame(wrong))
    assert (ending.fault, ending.culprit) == (fault, rider)
    assert list(pipeline.waiting.values()) == riders


def test_the_answer_to_one_that_waits_is_none_to_another_that_does() -> None:
    pipeline = pipeline_of()
    one, other = board_all(pipeline, 2)
    swapped = make_response(make_query("0.example.com", id_=other.message_id), "192.0.2.1")
    ending = bad(pipeline, frame(swapped))
    assert (ending.fault, ending.culprit) == (WRONG_NAME, other)
    assert one in pipeline.waiting.values()


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        pytest.param(b"\0\0", EMPTY, id="zero length"),
        pytest.param(b"\0\1\x2a", TRUNCATED, id="one octet"),
    ],
)
def test_a_message_too_short_for_a_message_id_is_charged_to_the_oldest(
    octets: bytes, fault: Fault
) -> None:
    for offset in range(len(octets)):
        pipeline = pipeline_of()
        oldest, _ = board_all(pipeline, 2)
        assert answered(pipeline, octets[:offset]) == []
        ending = bad(pipeline, octets[offset:])
        assert (ending.fault, ending.culprit) == (fault, oldest)


def test_what_breaks_off_within_the_header_is_charged_to_the_one_it_was_for() -> None:
    pipeline = pipeline_of()
    _, younger = board_all(pipeline, 2)
    ending = bad(pipeline, frame(reply_to(younger)[2:9]))
    assert (ending.fault, ending.culprit) == (TRUNCATED, younger)


def test_a_query_sent_back_is_charged_to_the_one_that_sent_it() -> None:
    pipeline = pipeline_of()
    _, younger = board_all(pipeline, 2)
    ending = bad(pipeline, frame(younger.message))
    assert (ending.fault, ending.culprit) == (NOT_A_RESPONSE, younger)


def test_what_came_before_a_bad_answer_counts_and_what_comes_behind_does_not() -> None:
    pipeline = pipeline_of()
    before, charged, behind = board_all(pipeline, 3)
    octets = reply_to(before) + frame(charged.message) + reply_to(behind)
    answers, ending = pipeline.feed(octets, 0)
    [(rider, response)] = answers
    assert (rider, response.wire) == (before, what_the_client_gets(before))
    assert ending is not None
    assert ending.culprit is charged
    assert list(pipeline.waiting.values()) == [charged, behind]


# Bytes that nobody waits for.


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(reply_with_id(NOBODYS_ID), id="an answer that nobody asked for"),
        pytest.param(b"\0", id="the beginning of one"),
        pytest.param(reply_with_id(NOBODYS_ID)[:20], id="half of one"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_bytes_that_nobody_waits_for_make_a_session_unfit_for_the_next_query(
    octets: bytes, strict: bool, at_once: bool
) -> None:
    pipeline = pipeline_of(strict=strict)
    rider = board(pipeline)
    if at_once:
        got = answered(pipeline, reply_to(rider) + octets)
    else:
        got = answered(pipeline, reply_to(rider)) + answered(pipeline, octets)
    assert [who for who, _ in got] == [rider], "its answer is good all the same"
    assert pipeline.surplus


@pytest.mark.parametrize("strict", [True, False])
def test_only_one_exchange_at_a_time_makes_an_answer_that_comes_again_a_surplus(
    strict: bool,
) -> None:
    pipeline = pipeline_of(strict=strict)
    rider = board(pipeline)
    answered(pipeline, reply_to(rider) * 2)
    assert pipeline.surplus == strict
    assert pipeline.late == (0 if strict else 1)


def test_half_a_late_answer_is_no_surplus() -> None:
    pipeline = pipeline_of()
    gone, rider = board_all(pipeline, 2)
    pipeline.abandon(gone, 0)
    late = reply_to(gone)
    answered(pipeline, reply_to(rider) + late[:9])
    assert not pipeline.surplus
    after = board(pipeline)
    assert answered(pipeline, late[9:] + reply_to(after)) == [(after, what_the_client_gets(after))]
    assert pipeline.late == 1


# Times.


def test_an_answer_is_timed_from_the_departure_of_its_query() -> None:
    pipeline = pipeline_of()
    rider = board(pipeline, now=10 * MS)
    rider.send_ns = 2 * MS
    reply = reply_to(rider)
    answered(pipeline, reply[:5], now=50 * MS)
    assert rider.first_byte_ns == 38 * MS, "it is known even if no more of it ever comes"
    answered(pipeline, reply[5:], now=57 * MS)
    assert (rider.first_byte_ns, rider.rest_ns) == (38 * MS, 7 * MS)


def test_of_answers_in_one_piece_only_the_first_had_begun_before() -> None:
    pipeline = pipeline_of()
    one, other = board_all(pipeline, 2)
    octets = reply_to(one) + reply_to(other)
    answered(pipeline, octets[:30], now=20 * MS)
    answered(pipeline, octets[30:], now=30 * MS)
    assert (one.first_byte_ns, one.rest_ns) == (20 * MS, 10 * MS)
    assert (other.first_byte_ns, other.rest_ns) == (30 * MS, 0)


def test_what_had_begun_before_a_query_left_was_no_time_of_its_own() -> None:
    pipeline = pipeline_of()
    gone, rider = board_all(pipeline, 2)
    pipeline.abandon(gone, 0)
    late = reply_to(gone)
    answered(pipeline, reply_to(rider) + late[:1], now=10 * MS)
    after = board(pipeline, now=20 * MS)
    answered(pipeline, late[1:3], now=30 * MS)
    assert after.first_byte_ns == 0


def test_while_nobody_waits_a_session_is_neither_silent_nor_owes_an_answer() -> None:
    pipeline = pipeline_of()
    assert (pipeline.silent_for(SECOND), pipeline.unanswered_for(SECOND)) == (0, 0)
    rider = board(pipeline, now=SECOND)
    answered(pipeline, reply_to(rider), now=2 * SECOND)
    assert (pipeline.silent_for(9 * SECOND), pipeline.unanswered_for(9 * SECOND)) == (0, 0)


def test_a_session_is_silent_from_when_somebody_waits_on_it() -> None:
    pipeline = pipeline_of()
    answered(pipeline, reply_to(board(pipeline, now=0)), now=SECOND)
    board(pipeline, now=10 * SECOND)
    board(pipeline, now=11 * SECOND)
    assert pipeline.silent_for(12 * SECOND) == 2 * SECOND
    assert pipeline.unanswered_for(12 * SECOND) == 2 * SECOND


def test_any_byte_breaks_the_silence_and_only_an_answer_is_one() -> None:
    pipeline = pipeline_of()
    rider, gone, _ = board_all(pipeline, 3)
    pipeline.abandon(gone, 0)
    answered(pipeline, reply_to(gone), now=SECOND)
    answered(pipeline, reply_to(rider)[:5], now=2 * SECOND)
    assert pipeline.silent_for(3 * SECOND) == SECOND
    assert pipeline.unanswered_for(3 * SECOND) == 3 * SECOND
    answered(pipeline, reply_to(rider)[5:], now=4 * SECOND)
    assert pipeline.unanswered_for(5 * SECOND) == SECOND


def test_each_piece_of_an_answer_breaks_the_silence() -> None:
    pipeline = pipeline_of()
    rider = board(pipeline)
    reply = reply_to(rider)
    for second, octet in enumerate(reply[:-1], start=1):
        answered(pipeline, bytes([octet]), now=second * SECOND)
        assert pipeline.silent_for(second * SECOND + 1) == 1


def test_who_gives_up_does_not_break_the_silence_of_the_others() -> None:
    pipeline = pipeline_of()
    rider = board(pipeline, now=0)
    board(pipeline, now=SECOND)
    pipeline.abandon(rider, 2 * SECOND)
    assert pipeline.silent_for(3 * SECOND) == 3 * SECOND
