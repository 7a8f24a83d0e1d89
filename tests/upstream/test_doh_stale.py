"""Keep-alive connections that the server has given up: one silent redial, and no more than that."""

import logging
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.event import Event

from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.http_peer import (
    DNS_MESSAGE,
    TcpPeer,
    accept_tls,
    head,
    leaves_at,
    promptly,
    read_request,
    reply,
    small_send_buffers,
    well_behaved,
)
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration

QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY, "192.0.2.1")

ENDS = pytest.mark.parametrize(
    "end",
    [
        pytest.param(Session.close_notify, id="close_notify"),
        pytest.param(Session.truncate, id="fin"),
        pytest.param(Session.reset, id="rst"),
    ],
)
End = Callable[[Session], None]


def answer_once(session: Session) -> None:
    read_request(session)
    session.send(reply(RESPONSE))


@ENDS
def test_a_reused_connection_closed_without_an_answer_is_redialled_once_and_counted(
    authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture, end: End
) -> None:
    caplog.set_level(logging.DEBUG, "nxdns")

    def script(session: Session) -> None:
        answer_once(session)
        if session.number == 1:
            read_request(session)
            end(session)
        well_behaved()(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        leaf = leaves.first
        assert promptly(leaf, QUERY) == RESPONSE
        assert promptly(leaf, QUERY) == RESPONSE
        assert (leaf.last.reused, leaf.last.tls_version) == (False, "TLSv1.3")
        assert (peer.accepts, leaves.stats.recoveries) == (2, 1)
        assert promptly(leaf, QUERY) == RESPONSE
        assert leaf.last.reused
        assert (peer.accepts, leaves.stats.recoveries) == (2, 1)
    [record] = [record for record in caplog.records if record.name.startswith("nxdns")]
    assert record.levelno == logging.DEBUG
    assert "ReceiveFailed (cause HttpConnectionClosing)" in record.getMessage()


@ENDS
def test_the_retry_dials_though_another_idle_connection_is_there(
    authority: Authority, certificate: Issued, end: End
) -> None:
    both_asked = Event()
    asked_again: list[int] = []

    def script(session: Session) -> None:
        if session.number > 2:
            well_behaved()(session)
        read_request(session)
        if session.number == 2:
            both_asked.set()
        both_asked.wait()
        session.send(reply(RESPONSE))
        read_request(session)
        asked_again.append(session.number)
        end(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority, count=2) as leaves,
    ):
        asking = [gevent.spawn(promptly, leaf, QUERY) for leaf in leaves.all]
        gevent.joinall(asking, raise_error=True)
        assert peer.accepts == 2
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert len(asked_again) == 1
        assert (peer.accepts, leaves.stats.recoveries) == (3, 1)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param(
            b"", Fault(FaultKind.RECEIVE_FAILED, Cause.HTTP_CONNECTION_CLOSING), id="closed"
        ),
        pytest.param(b"HTTP", Fault(FaultKind.RECEIVE_FAILED, Cause.HTTP_PROTOCOL), id="cut-short"),
        pytest.param(
            reply(b"", status="503 Busy"),
            Fault(FaultKind.HTTP_STATUS, Cause.SERVER_ERROR),
            id="refused",
        ),
        pytest.param(
            reply(make_response(make_query(id_=1))),
            Fault(FaultKind.RESPONSE_MISMATCH, Cause.WRONG_ID),
            id="mismatched",
        ),
    ],
)
def test_the_outcome_of_the_retry_is_the_outcome_and_no_recovery_is_counted_for_a_failure(
    authority: Authority, certificate: Issued, data: bytes, fault: Fault
) -> None:
    def script(session: Session) -> None:
        if session.number == 1:
            answer_once(session)
        read_request(session)
        if session.number == 2 and data:
            session.send(data)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert promptly(leaves.first, QUERY) == fault
        assert (peer.accepts, leaves.stats.recoveries) == (2, 0)


@ENDS
def test_a_fresh_connection_closed_without_an_answer_is_final(
    authority: Authority, certificate: Issued, end: End
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        end(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        fault = Fault(FaultKind.RECEIVE_FAILED, Cause.HTTP_CONNECTION_CLOSING)
        assert promptly(leaves.first, QUERY) == fault
        assert (peer.accepts, leaves.stats.recoveries) == (1, 0)


@ENDS
@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"H", id="one-byte"),
        pytest.param(b"HTTP/1.1 2", id="half-a-status-line"),
        pytest.param(head(DNS_MESSAGE, "Content-Length: 33"), id="a-head"),
        pytest.param(reply(RESPONSE)[:-1], id="all-but-one-byte"),
    ],
)
def test_a_reused_connection_closed_behind_the_first_byte_of_its_response_is_final(
    authority: Authority, certificate: Issued, begun: bytes, end: End
) -> None:
    def script(session: Session) -> None:
        answer_once(session)
        if session.number == 1:
            read_request(session)
            session.send(begun)
            end(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        fault = Fault(FaultKind.RECEIVE_FAILED, Cause.HTTP_PROTOCOL)
        assert promptly(leaves.first, QUERY) == fault
        assert (peer.accepts, leaves.stats.recoveries) == (1, 0)
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert (peer.accepts, leaves.stats.recoveries) == (2, 0)


@ENDS
@pytest.mark.parametrize(
    "farewell", [b"", head(status="408 Request Timeout")], ids=["", "with-408"]
)
def test_a_connection_found_closed_before_use_is_replaced_and_not_counted(
    authority: Authority, certificate: Issued, end: End, farewell: bytes
) -> None:
    ended = Event()

    def script(session: Session) -> None:
        answer_once(session)
        if session.number == 1:
            if farewell:
                session.send(farewell)
            end(session)
            ended.set()
        well_behaved()(session)

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        ended.wait()
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert not leaves.first.last.reused
        assert (peer.accepts, leaves.stats.recoveries) == (2, 0)


@pytest.mark.parametrize(
    ("version", "fields", "kept"),
    [
        pytest.param("HTTP/1.1", [], True, id="1.1"),
        pytest.param("HTTP/1.1", ["Connection: keep-alive"], True, id="1.1-keep-alive"),
        pytest.param("HTTP/1.1", ["Connection: close"], False, id="1.1-close"),
        pytest.param("HTTP/1.1", ["connection: Close"], False, id="1.1-close-in-other-case"),
        pytest.param("HTTP/1.0", [], False, id="1.0"),
        pytest.param("HTTP/1.0", ["Connection: keep-alive"], True, id="1.0-keep-alive"),
    ],
)
def test_a_connection_is_kept_if_the_server_says_so(
    authority: Authority, certificate: Issued, version: str, fields: list[str], *, kept: bool
) -> None:
    answer = reply(RESPONSE, *fields).replace(b"HTTP/1.1", version.encode())
    ended: list[int] = []

    def script(session: Session) -> None:
        while True:
            read_request(session)
            session.send(answer)
            if not kept:
                session.wait_for_end()  # it is the client who closes
                ended.append(session.number)
                return

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert peer.accepts == (1 if kept else 2)
        assert leaves.first.last.reused is kept
        assert kept or 1 in ended


@pytest.mark.parametrize("reused", [True, False], ids=["reused", "fresh"])
def test_a_reset_while_the_query_is_being_sent_is_retried_on_a_reused_connection_only(
    authority: Authority,
    certificate: Issued,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    reused: bool,
) -> None:
    caplog.set_level(logging.DEBUG, "nxdns")
    small_send_buffers(monkeypatch)
    context = certificate.openssl_context()
    query = big_response(QUERY, 65535)  # as good a query as any: its question is QUERY's

    def script(sock: Any) -> None:
        first = peer.accepts == 1
        session = accept_tls(sock, context)
        session.handshake()
        if reused or not first:
            answer_once(session)
        if first:
            session.recv()
            session.reset()

    with (
        TcpPeer(script, receive_buffer=4096) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        if reused:
            assert promptly(leaves.first, QUERY) == RESPONSE
            assert promptly(leaves.first, query) == RESPONSE
            assert (peer.accepts, leaves.stats.recoveries) == (2, 1)
            assert "redialled: SendFailed" in caplog.text
        else:
            fault = Fault(FaultKind.SEND_FAILED, Cause.TLS_CONNECTION_TRUNCATED)
            assert promptly(leaves.first, query) == fault
            assert (peer.accepts, leaves.stats.recoveries) == (1, 0)
