"""Exchanges that share a DoT session: what leaves, and how each answer finds its owner."""

from collections.abc import Callable

import gevent
import pytest
from gevent import Timeout
from gevent.event import Event
from greenlet import GreenletExit
from OpenSSL import SSL

from nxdns.dns.framing import Unframer, frame
from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.messages import big_response, make_query, make_response
from tests.support.riders import (
    CLIENT_ID,
    Ride,
    answer,
    answers_to,
    leaf_of,
    name_of,
    outcomes_of,
    read_queries,
    ride,
    site_at,
)
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RIDERS = 5
_APPLICATION_DATA = 23  # RFC 8446 §5.1


def id_of(message: bytes) -> int:
    return int.from_bytes(message[:2], "big")


# What leaves.


def records_of(ciphertext: bytes) -> list[int]:
    """The content type of each TLS record, the last one whole."""
    types: list[int] = []
    while ciphertext:
        types.append(ciphertext[0])
        end = 5 + int.from_bytes(ciphertext[3:5], "big")
        assert len(ciphertext) >= end, "a record in pieces"
        ciphertext = ciphertext[end:]
    return types


@pytest.mark.parametrize(
    "warm", [pytest.param(False, id="behind-the-handshake"), pytest.param(True, id="warm")]
)
def test_queries_of_one_turn_leave_in_one_record(
    authority: Authority, certificate: Issued, warm: bool
) -> None:
    # In TLS 1.2 the server has the last word of the handshake: no query can come along with it.
    context = certificate.openssl_context()
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    records: list[list[int]] = []

    def script(session: Session) -> None:
        if warm:
            session.send_message(answer(session.read_query()))
        ciphertext = session.sock.recv(1 << 16)
        records.append(records_of(ciphertext))
        session.connection.bio_write(ciphertext)
        unframer = Unframer()
        unframer.feed(session.connection.recv(1 << 16))
        while (query := unframer.next_message()) is not None:
            session.send_message(answer(query))
        session.wait_for_end()

    with TlsPeer(context, script) as peer, leaf_of(site_at(peer.port, authority)) as leaf:
        if warm:
            leaf.exchange(make_query())
        rides = ride(leaf, RIDERS)
        assert outcomes_of(rides) == answers_to(rides)
        assert records == [[_APPLICATION_DATA]]


def test_a_session_gives_each_query_a_message_id_of_its_own_and_each_client_its_own_back(
    authority: Authority, certificate: Issued
) -> None:
    seen: list[bytes] = []

    def script(session: Session) -> None:
        seen.extend(read_queries(session, RIDERS + 1))
        for query in seen:
            session.send_message(answer(query))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        # Five clients that have chosen one ID, and ask different things, and one with another.
        rides = [*ride(leaf, RIDERS), *ride(leaf, 1, id_=0xFFFF, first=RIDERS)]
        assert outcomes_of(rides) == answers_to(rides)
        assert len({id_of(query) for query in seen}) == RIDERS + 1
        # Nothing else of a query is changed on its way.
        assert [query[2:] for query in seen] == [each.query[2:] for each in rides]
        assert peer.accepts == 1


def test_the_same_question_may_ride_twice(authority: Authority, certificate: Issued) -> None:
    def script(session: Session) -> None:
        for number, query in enumerate(reversed(read_queries(session, 2))):
            session.send_message(make_response(query, f"192.0.2.{number}"))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        query = make_query(id_=CLIENT_ID)
        rides = [Ride(leaf, query), Ride(leaf, query)]
        assert outcomes_of(rides) == [
            make_response(query, "192.0.2.1"),
            make_response(query, "192.0.2.0"),
        ]


# How answers come.


def _in_one_record(session: Session, stream: bytes) -> None:
    session.send(stream)


def _in_a_record_for_each_byte(session: Session, stream: bytes) -> None:
    session.send_raw(b"".join(session.encrypt(stream[n : n + 1]) for n in range(len(stream))))


def _in_records_that_split_every_frame(session: Session, stream: bytes) -> None:
    step = len(stream) // (3 * RIDERS)
    for start in range(0, len(stream), step):
        session.send(stream[start : start + step])
        gevent.idle()  # the client has read it


def _in_segments_that_split_every_record(session: Session, stream: bytes) -> None:
    step = len(stream) // RIDERS
    records = b"".join(session.encrypt(stream[n : n + step]) for n in range(0, len(stream), step))
    for start in range(0, len(records), 37):
        session.send_raw(records[start : start + 37])
        gevent.idle()  # the client has read it


def _with_a_prefix_in_two_halves(session: Session, stream: bytes) -> None:
    end_of_first = 2 + int.from_bytes(stream[:2], "big")
    session.send(stream[: end_of_first + 1])
    gevent.idle()  # the client has read it
    session.send(stream[end_of_first + 1 :])


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(_in_one_record, id="one-record"),
        pytest.param(_in_a_record_for_each_byte, id="one-byte-records"),
        pytest.param(_in_records_that_split_every_frame, id="records-split-frames"),
        pytest.param(_in_segments_that_split_every_record, id="segments-split-records"),
        pytest.param(_with_a_prefix_in_two_halves, id="split-prefix"),
    ],
)
@pytest.mark.parametrize(
    "order",
    [
        pytest.param((0, 1, 2, 3, 4), id="in-order"),
        pytest.param((4, 3, 2, 1, 0), id="backwards"),
        pytest.param((2, 0, 4, 1, 3), id="mixed"),
    ],
)
def test_answers_reach_their_owners_however_they_come(
    authority: Authority,
    certificate: Issued,
    send: Callable[[Session, bytes], None],
    order: tuple[int, ...],
) -> None:
    def script(session: Session) -> None:
        # Twice: whatever is left of the first round must not be taken for a part of the second.
        for _ in range(2):
            queries = read_queries(session, RIDERS)
            send(session, b"".join(frame(answer(queries[n])) for n in order))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        for _ in range(2):
            rides = ride(leaf, RIDERS)
            assert outcomes_of(rides) == answers_to(rides)
        assert peer.accepts == 1


def test_answers_of_the_largest_size_reach_their_owners(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        queries = read_queries(session, 3)
        session.send(b"".join(frame(big_response(query, 65535)) for query in reversed(queries)))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, 3)
        assert outcomes_of(rides) == [big_response(each.query, 65535) for each in rides]


def test_an_answer_is_handed_on_while_the_others_wait(
    authority: Authority, certificate: Issued
) -> None:
    gate = Event()

    def script(session: Session) -> None:
        first, *others = read_queries(session, RIDERS)
        session.send_message(answer(others.pop()))
        gate.wait()
        for query in (first, *others):
            session.send_message(answer(query))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, RIDERS)
        assert rides[-1].outcome() == answer(rides[-1].query)
        assert not any(each.over for each in rides[:-1])
        gate.set()
        assert outcomes_of(rides) == answers_to(rides)


def test_who_boards_an_open_session_on_which_others_wait_dials_nobody(
    authority: Authority, certificate: Issued
) -> None:
    second_asked = Event()

    def script(session: Session) -> None:
        first = session.read_query()
        second_asked.wait()
        for query in (first, session.read_query(), session.read_query()):
            session.send_message(answer(query))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, 1)
        eventually(lambda: leaf.is_open)
        second = Ride(leaf, make_query(name_of(1), id_=CLIENT_ID))
        second_asked.set()
        rides.append(second)
        third = make_query(name_of(2))
        assert leaf.exchange(third) == answer(third)
        assert leaf.last.tls_version == "TLSv1.3"
        assert leaf.last.dial_ns == 0, "it dialled nobody"
        assert outcomes_of(rides) == answers_to(rides)
        assert peer.accepts == 1


# Answers that come too late.


@pytest.mark.parametrize("interruption", [GreenletExit, Timeout])
def test_a_late_answer_is_counted_and_ignored_while_others_wait(
    authority: Authority, certificate: Issued, interruption: Callable[[], BaseException]
) -> None:
    asked, given_up = Event(), Event()

    def script(session: Session) -> None:
        queries = read_queries(session, 3)
        asked.set()
        given_up.wait()
        for query in queries:
            session.send_message(answer(query))
        answer_all(answer)(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 3)
            asked.wait()
            rides[0].interrupt(interruption())
            given_up.set()
            assert outcomes_of(rides[1:]) == answers_to(rides[1:])
            assert site.stats.late_answers == 1
            again = ride(leaf, 3)
            assert outcomes_of(again) == answers_to(again)
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_an_answer_that_comes_twice_is_late_the_second_time(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        first, second = read_queries(session, 2)
        session.send(frame(answer(first)) * 3 + frame(answer(second)))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, 2)
            assert outcomes_of(rides) == answers_to(rides)
            assert (peer.accepts, site.stats.late_answers) == (1, 2)


def test_a_late_answer_may_end_when_somebody_else_waits_already(
    authority: Authority, certificate: Issued
) -> None:
    asked, given_up = Event(), Event()

    def script(session: Session) -> None:
        gone, stays = read_queries(session, 2)
        asked.set()
        given_up.wait()
        late = frame(answer(gone))
        session.send(frame(answer(stays)) + late[:20])
        another = session.read_query()
        session.send(late[20:] + frame(answer(another)))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            gone, stays = ride(leaf, 2)
            asked.wait()
            gone.interrupt(GreenletExit())
            given_up.set()
            assert stays.outcome() == answer(stays.query)
            another = make_query(name_of(2), id_=CLIENT_ID)
            assert leaf.exchange(another) == answer(another)
            assert leaf.last.reused
            assert (peer.accepts, site.stats.late_answers) == (1, 1)


def test_what_comes_when_nobody_waits_is_left_behind_with_its_session(
    authority: Authority, certificate: Issued
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        queries = read_queries(session, 2)
        unasked = make_response(make_query("another.example.com", id_=1))
        session.send(b"".join(map(frame, [*map(answer, queries), unasked])))
        session.wait_for_end()
        ended.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            for _ in range(2):
                rides = ride(leaf, 2)
                assert outcomes_of(rides) == answers_to(rides)
            assert ended.wait(10)
            assert (peer.accepts, site.stats.recoveries) == (2, 0)


# Bad answers.


def _another_name(query: bytes) -> bytes:
    return make_response(make_query("another.example.com", id_=id_of(query)))


def _another_type(query: bytes) -> bytes:
    return make_response(make_query(name_of(1), "AAAA", id_=id_of(query)))


def _itself(query: bytes) -> bytes:
    return query


def _garbage(query: bytes) -> bytes:
    return query[:2] + b"\xff" * 20


def _header_cut_short(query: bytes) -> bytes:
    return query[:2] + b"\x80"


WRONG_ID = Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID)


def _bad(kind: FaultKind, cause: Cause) -> Fault:
    return Fault(kind, cause)


@pytest.mark.parametrize(
    ("bad_answer", "fault"),
    [
        pytest.param(
            _another_name, _bad(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME), id="wrong-name"
        ),
        pytest.param(
            _another_type, _bad(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_TYPE), id="wrong-type"
        ),
        pytest.param(_itself, _bad(FaultKind.BAD_RESPONSE, Cause.NOT_A_RESPONSE), id="no-response"),
        pytest.param(_garbage, _bad(FaultKind.BAD_RESPONSE, Cause.MALFORMED), id="garbage"),
        pytest.param(
            _header_cut_short, _bad(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="cut-short"
        ),
    ],
)
def test_a_bad_answer_hits_whom_it_was_for_and_the_innocent_share_one_fresh_dial(
    authority: Authority,
    certificate: Issued,
    bad_answer: Callable[[bytes], bytes],
    fault: Fault,
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        queries = read_queries(session, RIDERS)
        # In one record with the good answer before it, and with one behind it that is too late.
        messages = (answer(queries[3]), bad_answer(queries[1]), answer(queries[2]))
        session.send(b"".join(map(frame, messages)))
        session.wait_for_end()
        ended.set()
        return None

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            rides = ride(leaf, RIDERS)
            expected = answers_to(rides)
            expected[1] = fault
            assert outcomes_of(rides) == expected
            assert ended.wait(10), "the session was not ended"
            assert (peer.accepts, site.stats.dials) == (2, 2)


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        pytest.param(make_response(make_query(id_=1)), WRONG_ID, id="unknown-id"),
        pytest.param(b"", _bad(FaultKind.BAD_RESPONSE, Cause.EMPTY_MESSAGE), id="zero-length"),
        pytest.param(b"\0", _bad(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="one-byte"),
        pytest.param(
            b"\0\0\xff\xff", _bad(FaultKind.BAD_RESPONSE, Cause.TRUNCATED), id="unknown-and-cut"
        ),
    ],
)
def test_what_answers_nobody_hits_who_has_waited_longest(
    authority: Authority, certificate: Issued, message: bytes, fault: Fault
) -> None:
    def script(session: Session) -> None:
        if session.number > 1:
            return answer_all(answer)(session)
        first, *_ = read_queries(session, RIDERS)
        session.send_message(answer(first))
        session.send(frame(message) if message else b"\0\0")
        session.wait_for_end()
        return None

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, RIDERS)
        expected = answers_to(rides)
        expected[1] = fault
        assert outcomes_of(rides) == expected
        assert peer.accepts == 2


def test_the_innocent_ride_on_only_once(authority: Authority, certificate: Issued) -> None:
    def script(session: Session) -> None:
        session.send_message(_another_name(session.read_query()))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaf_of(site_at(peer.port, authority)) as leaf,
    ):
        rides = ride(leaf, RIDERS)
        # One pays for the first session and one for the second; there is no third.
        assert outcomes_of(rides) == [_bad(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_NAME)] * RIDERS
        assert peer.accepts == 2
