"""What the end of a session means for each that rides on it."""

import pytest

from nxdns.dns.framing import frame
from nxdns.upstream.errors import Cause, Fault, FaultKind
from nxdns.upstream.pipeline import Pipeline
from nxdns.upstream.retry import LIFECYCLE
from nxdns.upstream.rider import Ending, Rider, Verdicts
from tests.support.fake_leaves import MS
from tests.support.pipelines import board, board_all, pipeline_of, reply_to, reply_with_id

CLOSED = Fault(FaultKind.RECEIVE_FAILED, Cause.END_OF_STREAM)
ALERT = Fault(FaultKind.RECEIVE_FAILED, Cause.TLS_ALERT)
EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


def died(pipeline: Pipeline, fault: Fault = CLOSED) -> Verdicts:
    """The peer has ended it."""
    verdicts = pipeline.verdicts(Ending(fault, by_peer=True))
    assert pipeline.waiting == {}, "whoever has its verdict waits no longer"
    assert verdicts.fault == fault
    return verdicts


def broken_off(pipeline: Pipeline, octets: bytes) -> Verdicts:
    """We have ended it for these octets."""
    _, ending = pipeline.feed(octets, 0)
    assert ending is not None
    verdicts = pipeline.verdicts(ending)
    assert pipeline.waiting == {}
    assert verdicts.fault == ending.fault
    return verdicts


def reused() -> Pipeline:
    """A session that has answered somebody."""
    pipeline = pipeline_of()
    pipeline.feed(reply_to(board(pipeline)), 0)
    assert pipeline.answered == 1
    return pipeline


def again(*riders: Rider, pipeline: Pipeline | None = None) -> Pipeline:
    """They ride on, on the next session."""
    pipeline = pipeline or pipeline_of()
    for rider in riders:
        pipeline.board(rider, 0)
    return pipeline


@pytest.mark.parametrize("fault", [CLOSED, ALERT, EXPIRED])
def test_a_fresh_session_that_dies_is_final_for_all(fault: Fault) -> None:
    pipeline = pipeline_of()
    riders = board_all(pipeline, 3)
    verdicts = died(pipeline, fault)
    assert (verdicts.final, verdicts.riding_on, verdicts.serial) == (riders, [], False)


@pytest.mark.parametrize("kind", [FaultKind.SEND_FAILED, FaultKind.RECEIVE_FAILED])
@pytest.mark.parametrize("cause", sorted(LIFECYCLE))
def test_a_session_that_has_answered_and_is_closed_lets_all_ride_on(
    kind: FaultKind, cause: Cause
) -> None:
    pipeline = reused()
    riders = board_all(pipeline, 3)
    fault = Fault(kind, cause)
    verdicts = died(pipeline, fault)
    assert (verdicts.final, verdicts.riding_on, verdicts.serial) == ([], riders, False)
    assert [rider.thrown_off_by for rider in riders] == [fault] * 3


@pytest.mark.parametrize("cause", sorted(set(Cause) - LIFECYCLE))
def test_any_other_end_of_a_session_that_has_answered_is_final_for_all(cause: Cause) -> None:
    pipeline = reused()
    riders = board_all(pipeline, 3)
    verdicts = died(pipeline, Fault(FaultKind.RECEIVE_FAILED, cause))
    assert (verdicts.final, verdicts.riding_on, verdicts.serial) == (riders, [], False)


def test_one_answer_to_anybody_lets_those_who_rode_along_ride_on() -> None:
    pipeline = pipeline_of()
    one, other, third = board_all(pipeline, 3)
    pipeline.feed(reply_to(other), 0)
    assert died(pipeline).riding_on == [one, third]


def test_a_response_that_had_begun_is_final_for_its_rider_and_for_no_other() -> None:
    reply = reply_to(board_all(reused(), 3)[1])
    for length in range(4, len(reply)):
        pipeline = reused()
        one, begun, third = board_all(pipeline, 3)
        assert pipeline.feed(reply[:length], 0) == ([], None)
        verdicts = died(pipeline)
        assert (verdicts.final, verdicts.riding_on) == ([begun], [one, third]), length


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_response_whose_message_id_had_not_come_is_taken_for_the_oldests(length: int) -> None:
    pipeline = reused()
    oldest, _, third = riders = board_all(pipeline, 3)
    pipeline.feed(reply_to(third)[:length], 0)
    verdicts = died(pipeline)
    assert (verdicts.final, verdicts.riding_on) == ([oldest], riders[1:])


@pytest.mark.parametrize("length", [4, 5, 20])
def test_the_beginning_of_an_answer_that_nobody_asked_for_is_taken_for_the_oldests(
    length: int,
) -> None:
    pipeline = reused()
    oldest, other = board_all(pipeline, 2)
    pipeline.feed(reply_with_id(0x0BAD)[:length], 0)
    verdicts = died(pipeline)
    assert (verdicts.final, verdicts.riding_on) == ([oldest], [other])


@pytest.mark.parametrize("had_its_answer", [True, False])
def test_the_beginning_of_a_late_answer_is_nobodys(had_its_answer: bool) -> None:
    pipeline = reused()
    gone, *riders = board_all(pipeline, 3)
    if had_its_answer:
        pipeline.feed(reply_to(gone), 0)
    else:
        pipeline.abandon(gone, 0)
    pipeline.feed(reply_to(gone)[:20], 0)
    verdicts = died(pipeline)
    assert (verdicts.final, verdicts.riding_on) == ([], riders)


def test_what_had_begun_before_a_rider_boarded_is_none_of_its_response() -> None:
    pipeline = pipeline_of()
    gone, rider = board_all(pipeline, 2)
    pipeline.abandon(gone, 0)
    pipeline.feed(reply_to(rider) + reply_to(gone)[:3], 10 * MS)
    after = board(pipeline, now=20 * MS)
    verdicts = died(pipeline)
    assert (verdicts.final, verdicts.riding_on) == ([], [after])


def test_a_whole_answer_before_the_end_leaves_nothing_begun() -> None:
    pipeline = pipeline_of()
    one, other = board_all(pipeline, 2)
    octets = reply_to(one)
    pipeline.feed(octets[:9], 0)
    pipeline.feed(octets[9:], 0)
    assert died(pipeline).riding_on == [other]


def test_a_session_that_died_with_nobody_on_it_is_nobodys_fault() -> None:
    verdicts = died(reused())
    assert (verdicts.final, verdicts.riding_on, verdicts.serial) == ([], [], False)


# Sessions that we end for a bad answer.


def test_a_bad_answer_is_final_for_the_one_it_was_for_and_the_others_ride_on() -> None:
    pipeline = pipeline_of()
    one, charged, third = board_all(pipeline, 3)
    verdicts = broken_off(pipeline, frame(charged.message))
    assert (verdicts.final, verdicts.riding_on, verdicts.serial) == ([charged], [one, third], False)


def test_the_innocent_ride_on_from_a_bad_answer_once() -> None:
    innocent, charged = board_all(first := pipeline_of(), 2)
    assert broken_off(first, frame(charged.message)).riding_on == [innocent]
    second = again(innocent)
    fresh, wicked = board_all(second, 2)
    verdicts = broken_off(second, frame(wicked.message))
    assert verdicts.riding_on == [fresh]
    assert verdicts.final == [innocent, wicked]


def test_a_bad_answer_behind_good_ones_is_no_sign_of_a_server_that_closes() -> None:
    innocent, charged = board_all(first := reused(), 2)
    died_under = died(first)
    assert died_under.riding_on == [innocent, charged]
    second = again(innocent, charged, pipeline=reused())
    verdicts = broken_off(second, frame(charged.message))
    assert (verdicts.riding_on, verdicts.serial) == ([innocent], False)


def test_who_was_spared_from_a_bad_answer_still_rides_on_from_a_stale_session() -> None:
    innocent, charged = board_all(first := pipeline_of(), 2)
    broken_off(first, frame(charged.message))
    verdicts = died(again(innocent, pipeline=reused()))
    assert (verdicts.riding_on, verdicts.serial) == ([innocent], False)


def test_a_bad_answer_when_nobody_waits_is_nobodys_fault() -> None:
    pipeline = reused()
    verdicts = broken_off(pipeline, b"\0\0")
    assert (verdicts.final, verdicts.riding_on) == ([], [])


# Servers that close behind their answers.


def test_a_rider_thrown_off_from_behind_an_answer_again_shows_a_server_that_closes() -> None:
    rider = board(first := reused())
    assert not died(first).serial
    second = again(rider)
    other = board(second)
    second.feed(reply_to(other), 0)
    verdicts = died(second)
    assert (verdicts.riding_on, verdicts.serial) == ([rider], True)


def test_riders_thrown_off_for_the_first_time_show_nothing() -> None:
    for _ in range(3):
        pipeline = reused()
        board_all(pipeline, 5)
        assert not died(pipeline).serial


def test_a_session_that_answers_nobody_is_final_for_the_one_thrown_off_before() -> None:
    rider = board(first := reused())
    died(first)
    verdicts = died(again(rider))
    assert (verdicts.final, verdicts.riding_on, verdicts.serial) == ([rider], [], False)


@pytest.mark.parametrize("answers", [1, 3])
def test_a_server_that_closes_behind_its_answers_serves_them_all(answers: int) -> None:
    pipeline = pipeline_of()
    left = board_all(pipeline, 30)
    sessions = 0
    while left:
        for rider in left[:answers]:
            assert [who for who, _ in pipeline.feed(reply_to(rider), 0)[0]] == [rider]
        left = left[answers:]
        verdicts = died(pipeline)
        assert (verdicts.final, verdicts.riding_on) == ([], left)
        assert verdicts.serial == (sessions > 0 and bool(left))
        pipeline = again(*left)
        sessions += 1
    assert sessions == 30 // answers
