"""Exchanges that share a DoT session: what leaves, and how each answer finds its owner."""

from collections.abc import Callable

import gevent
import pytest
from gevent.event import Event
from OpenSSL import SSL

from nxdns.dns.framing import Unframer, frame
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
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
from tests.support.tls_peer import Session, TlsPeer
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
            exchanged(leaf, make_query())
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
        assert exchanged(leaf, third) == answer(third)
        assert leaf.last.tls_version == "TLSv1.3"
        assert leaf.last.dial_ns == 0, "it dialled nobody"
        assert outcomes_of(rides) == answers_to(rides)
        assert peer.accepts == 1
