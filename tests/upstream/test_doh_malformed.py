"""Servers that do not speak HTTP/1.1: every one of them is told apart from a bug of ours."""

import gc
from collections.abc import Callable

import gevent
import pytest
from gevent.event import Event

from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.http_peer import (
    CHUNKED,
    DNS_MESSAGE,
    head,
    leaves_at,
    promptly,
    read_request,
    reply,
)
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration

QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY, "192.0.2.1")
LENGTH = f"Content-Length: {len(RESPONSE)}"

MALFORMED = Fault(FaultKind.RECEIVE_FAILED, Cause.HTTP_PROTOCOL)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"what is this?\r\n\r\n", id="other-words"),
        pytest.param(b"\r\n", id="empty-line"),
        pytest.param(b"\x00\x00\x06\x04\x00\n\x00\x00", id="http-2-frame"),
        pytest.param(b"HTTP/1.1\r\n\r\n", id="no-status"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", id="text-for-status"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="short-status"),
        pytest.param(b"HTTP/1.1 2000 OK\r\n\r\n", id="long-status"),
        pytest.param(b"HTTP/1.1 -200 OK\r\n\r\n", id="negative-status"),
        pytest.param(b"HTTP/2 200\r\n\r\n", id="http-2-in-words"),
        pytest.param(b"HTTP/1.1 200 " + b"x" * 70_000, id="endless-status-line"),
        pytest.param(head(DNS_MESSAGE)[:-2] + b"X: " + b"x" * 70_000, id="endless-field"),
        pytest.param(head(DNS_MESSAGE, *["X-Pad: y"] * 101)[:-2], id="endless-fields"),
        pytest.param(head(DNS_MESSAGE, LENGTH, "Content-Length: 5") + RESPONSE, id="two-lengths"),
        pytest.param(head(DNS_MESSAGE, "Content-Length: 5, 6") + RESPONSE, id="a-list-of-lengths"),
        pytest.param(head(DNS_MESSAGE, "Content-Length: abc") + RESPONSE, id="text-for-length"),
        pytest.param(head(DNS_MESSAGE, "Content-Length: -1") + RESPONSE, id="negative-length"),
        pytest.param(head(DNS_MESSAGE, "no field at all", LENGTH) + RESPONSE, id="no-colon"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"xyz\r\n" + RESPONSE, id="text-for-chunk-size"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"\r\n" + RESPONSE, id="empty-chunk-size"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"-5\r\n" + RESPONSE, id="negative-chunk-size"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"-1\r\n" + RESPONSE, id="chunk-size-minus-one"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"1" * 70_000, id="endless-chunk-size"),
    ],
)
def test_what_is_not_http_is_the_servers_fault_as_soon_as_it_shows(
    authority: Authority, certificate: Issued, data: bytes
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(data)
        session.wait_for_end()  # it is the client who gives up

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == MALFORMED
        assert promptly(leaves.first, QUERY) == MALFORMED
        assert peer.accepts == 2


@pytest.mark.parametrize("end", [Session.close_notify, Session.truncate, Session.reset])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"HTT", id="in-the-version"),
        pytest.param(b"HTTP/1.1 2", id="in-the-status"),
        pytest.param(b"HTTP/1.1 200 OK", id="after-the-status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent", id="in-a-field"),
        pytest.param(head(DNS_MESSAGE, LENGTH)[:-2], id="after-the-fields"),
        pytest.param(head("X: y", status="100 Continue"), id="after-an-interim-response"),
    ],
)
def test_a_head_cut_short_is_judged_by_nothing_that_it_says(
    authority: Authority, certificate: Issued, data: bytes, end: Callable[[Session], None]
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(data)
        end(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == MALFORMED
        assert peer.accepts == 1


@pytest.mark.parametrize("size", [b"-1", b"ffffffffff"], ids=["minus-one", "terabyte"])
def test_a_chunk_size_beyond_reason_makes_the_leaf_read_no_more_than_a_message(
    authority: Authority, certificate: Issued, size: bytes
) -> None:
    """A chunk is never trusted with our memory: the server can send less than 16 MiB."""
    sent = 0

    def script(session: Session) -> None:
        nonlocal sent
        read_request(session)
        session.send(head(DNS_MESSAGE, CHUNKED) + size + b"\r\n")
        while sent < 1 << 24:
            session.send(b"\0" * (1 << 16))
            sent += 1 << 16
            gevent.sleep(0)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert isinstance(promptly(leaves.first, QUERY), Fault)
    assert sent < 1 << 24


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        pytest.param(b"", head("X: y", status="100 Continue"), id="interim-responses"),
        pytest.param(
            head(DNS_MESSAGE, CHUNKED), b"1;" + b"x" * 60_000 + b"\r\na\r\n", id="chunk-extensions"
        ),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"0\r\n", b"X: y\r\n" * 1000, id="trailers"),
    ],
)
def test_a_response_without_end_is_given_up(
    authority: Authority, certificate: Issued, begin: bytes, more: bytes
) -> None:
    """What comes as fast as it is read never lets a clock strike: only a count can end it."""

    def script(session: Session) -> None:
        read_request(session)
        session.send(begin + more)
        while True:
            session.send(more)
            gevent.sleep(0)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert isinstance(promptly(leaves.first, QUERY), Fault)


def test_the_connection_of_a_refused_head_is_closed_at_once_and_not_when_garbage_is_collected(
    authority: Authority, certificate: Issued
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        read_request(session)
        session.send(head(DNS_MESSAGE, "Content-Length: 5, 6") + RESPONSE)
        session.wait_for_end()
        ended.set()

    gc.disable()
    try:
        with (
            TlsPeer(certificate.openssl_context(), script) as peer,
            leaves_at(peer.port, authority) as leaves,
        ):
            assert promptly(leaves.first, QUERY) == MALFORMED
            assert ended.wait(5)
    finally:
        gc.enable()


def test_bytes_behind_a_response_are_never_part_of_the_next_one(
    authority: Authority, certificate: Issued
) -> None:
    """Whatever comes of the second query, it is not what was sent before it was asked."""

    def script(session: Session) -> None:
        read_request(session)
        session.send(reply(RESPONSE) + reply(make_response(QUERY, "203.0.113.66")))
        query = read_request(session).body
        session.send(reply(make_response(query, "192.0.2.2")))

    query = make_query()
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        outcome = promptly(leaves.first, query)
        assert isinstance(outcome, Fault) or outcome == make_response(query, "192.0.2.2")
