"""Where TLS records and TCP segments begin and end means nothing to a DoT leaf."""

from collections.abc import Callable, Iterator
from contextlib import closing

import gevent
import pytest
from OpenSSL import SSL

from nxdns.dns.framing import frame
from nxdns.upstream.transport import SessionStats
from tests.support.authority import Authority, Issued
from tests.support.dot_leaves import dot_leaf
from tests.support.exchanging import exchanged
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")


def records(session: Session, *plaintexts: bytes) -> bytes:
    """One TLS record for each of ``plaintexts``, or more where one is too large for that."""
    for plaintext in plaintexts:
        session.connection.sendall(plaintext)
    ciphertext = b""
    try:
        while True:
            ciphertext += session.connection.bio_read(1 << 16)
    except SSL.WantReadError:
        return ciphertext


def send_segments(session: Session, *segments: bytes) -> None:
    """Each segment is read by the client before the next one is sent."""
    for segment in segments:
        session.send_raw(segment)
        gevent.idle()  # everything that can be read has been when the loop has nothing left to do


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize(
    "version",
    [pytest.param(SSL.TLS1_2_VERSION, id="1.2"), pytest.param(SSL.TLS1_3_VERSION, id="1.3")],
)
def test_a_record_may_be_split_between_two_segments_at_every_byte(
    authority: Authority, certificate: Issued, version: int
) -> None:
    splits: set[int] = set()

    def script(session: Session) -> None:
        while True:
            session.read_query()
            record = records(session, frame(ANSWER))
            at = len(splits) + 1
            splits.add(at)
            send_segments(session, record[:at], record[at:])
            lengths.add(len(record))

    lengths: set[int] = set()
    context = certificate.openssl_context()
    context.set_max_proto_version(version)
    with (
        TlsPeer(context, script) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        while not lengths or len(splits) < max(lengths) - 1:
            assert exchanged(leaf, QUERY) == ANSWER
        assert peer.accepts == 1
    assert len(splits) > len(ANSWER)


@pytest.mark.parametrize(
    ("plaintexts", "segment_size"),
    [
        pytest.param([frame(ANSWER)], 1, id="one-byte-to-a-segment"),
        pytest.param(list(pieces(frame(ANSWER), 1)), 1 << 16, id="one-byte-to-a-record"),
        pytest.param(list(pieces(frame(ANSWER), 1)), 7, id="records-and-segments-out-of-step"),
        pytest.param(
            [frame(ANSWER)[:2], ANSWER], 1 << 16, id="prefix-and-message-in-two-coalesced-records"
        ),
        pytest.param(
            [frame(ANSWER)[:1], frame(ANSWER)[1:]], 1 << 16, id="prefix-split-between-two-records"
        ),
    ],
)
def test_a_response_may_come_in_any_records_and_segments(
    authority: Authority, certificate: Issued, plaintexts: list[bytes], segment_size: int
) -> None:
    def script(session: Session) -> None:
        while True:
            session.read_query()
            send_segments(session, *pieces(records(session, *plaintexts), segment_size))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == ANSWER
        assert exchanged(leaf, QUERY) == ANSWER
        assert peer.accepts == 1


SIZES = [
    pytest.param(16382, id="one-full-record"),
    pytest.param(16383, id="one-byte-more-than-a-record"),
    pytest.param(40000, id="three-records"),
    pytest.param(65535, id="the-largest-message"),
]


@pytest.mark.parametrize(
    "segment_size",
    [pytest.param(1 << 17, id="at-once"), pytest.param(1460, id="in-segments")],
)
@pytest.mark.parametrize("size", SIZES)
def test_a_large_response_arrives_whole(
    authority: Authority, certificate: Issued, size: int, segment_size: int
) -> None:
    response = big_response(QUERY, size)

    def script(session: Session) -> None:
        while True:
            session.read_query()
            send_segments(session, *pieces(records(session, frame(response)), segment_size))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == response
        assert exchanged(leaf, QUERY) == response
        assert peer.accepts == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_large_query_arrives_whole(authority: Authority, certificate: Issued, size: int) -> None:
    query = bytearray(big_response(QUERY, size))
    query[2] &= 0x7F  # QR
    heard: list[bytes] = []

    def answer(received: bytes) -> bytes:
        heard.append(received)
        return ANSWER

    with (
        gevent.Timeout(10),  # a query cut short would be waited for until the test is over
        TlsPeer(certificate.openssl_context(), answer_all(answer)) as peer,
        closing(dot_leaf(authority, peer.port)) as leaf,
    ):
        assert exchanged(leaf, bytes(query)) == ANSWER
        assert exchanged(leaf, bytes(query)) == ANSWER
        assert peer.accepts == 1
    assert heard == [query, query]


# Plaintext beyond the frame.


def _in_one_record(session: Session) -> bytes:
    return records(session, frame(ANSWER) + b"\0")


def _in_a_second_record(session: Session) -> bytes:
    return records(session, frame(ANSWER), b"\0")


def _in_a_record_behind_a_full_one(session: Session) -> bytes:
    return records(session, frame(big_response(QUERY, 16382)), b"\0")


def _no_record(session: Session) -> bytes:
    return records(session, frame(ANSWER)) + b"this is no record of TLS"


@pytest.mark.parametrize(
    ("bytes_of", "response"),
    [
        pytest.param(_in_one_record, ANSWER, id="a-byte-in-the-same-record"),
        pytest.param(_in_a_second_record, ANSWER, id="a-byte-in-another-record"),
        pytest.param(
            _in_a_record_behind_a_full_one,
            big_response(QUERY, 16382),
            id="a-byte-behind-a-full-record",
        ),
        pytest.param(_no_record, ANSWER, id="bytes-under-tls"),
    ],
)
def test_bytes_beyond_the_response_end_the_session_behind_it(
    authority: Authority,
    certificate: Issued,
    bytes_of: Callable[[Session], bytes],
    response: bytes,
) -> None:
    ends: list[int] = []

    def script(session: Session) -> None:
        session.read_query()
        if session.number == 1:
            session.send_raw(bytes_of(session))
        else:
            session.send_message(ANSWER)
        session.wait_for_end()
        ends.append(session.number)

    stats = SessionStats()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        closing(dot_leaf(authority, peer.port, stats)) as leaf,
    ):
        assert exchanged(leaf, QUERY) == response
        gevent.idle()
        assert ends == [1]  # at once, and not when the next query comes
        assert exchanged(leaf, QUERY) == ANSWER
        assert (peer.accepts, stats.recoveries) == (2, 0)
