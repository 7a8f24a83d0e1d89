"""Servers that a DoH leaf cannot connect to, or cannot agree with about TLS."""

import logging
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent import socket
from OpenSSL import SSL

from nxdns.upstream.doh_client import WANTS_HTTP2
from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.http_peer import (
    HandshakeRefused,
    Leaves,
    TcpPeer,
    leaves_at,
    promptly,
    read_request,
    refuse_handshake,
)
from tests.support.messages import make_query
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration


def tls_failed(cause: Cause) -> Fault:
    return Fault(FaultKind.TLS_FAILED, cause)


def test_a_port_that_nobody_listens_on_refuses_the_connection(authority: Authority) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and never listens, so that nobody else can
        with leaves_at(bound.getsockname()[1], authority) as leaves:
            fault = Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED)
            assert promptly(leaves.first, make_query()) == fault
            assert not leaves.first.last.reused


@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="ssh"),
        pytest.param(b"\0" * 64, id="zeros"),
        pytest.param(b"\xff" * 64, id="ones"),
    ],
)
def test_a_server_without_tls_is_no_tls(authority: Authority, greeting: bytes) -> None:
    def script(sock: Any) -> None:
        sock.recv(1 << 14)
        sock.sendall(greeting)
        sock.recv(1 << 14)

    with TcpPeer(script) as peer, leaves_at(peer.port, authority) as leaves:
        assert promptly(leaves.first, make_query()) == tls_failed(Cause.TLS_PROTOCOL)
        assert promptly(leaves.first, make_query()) == tls_failed(Cause.TLS_PROTOCOL)
        assert peer.accepts == 2


@pytest.mark.parametrize(
    "newest", [SSL.TLS1_1_VERSION, SSL.TLS1_VERSION], ids=["tls-1.1", "tls-1.0"]
)
def test_a_server_that_speaks_nothing_newer_than_tls_1_1_is_refused(
    authority: Authority, certificate: Issued, newest: int
) -> None:
    context = certificate.openssl_context()
    context.set_cipher_list(b"ALL:@SECLEVEL=0")
    context.set_max_proto_version(newest)
    with (
        TcpPeer(lambda sock: refuse_handshake(sock, context)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, make_query()) == tls_failed(Cause.TLS_PROTOCOL)


@pytest.mark.parametrize("version", [b"\x03\x01", b"\x03\x02"], ids=["tls-1.0", "tls-1.1"])
def test_a_server_that_picks_an_old_version_nobody_offered_is_refused(
    authority: Authority, version: bytes
) -> None:
    # ServerHello: version, random, no session, TLS_RSA_WITH_AES_128_CBC_SHA, no compression
    hello = version + bytes(32) + b"\0" + b"\x00\x2f" + b"\0"
    handshake = b"\x02" + len(hello).to_bytes(3, "big") + hello
    record = b"\x16" + version + len(handshake).to_bytes(2, "big") + handshake

    def script(sock: Any) -> None:
        sock.recv(1 << 14)
        sock.sendall(record)
        sock.recv(1 << 14)

    with TcpPeer(script) as peer, leaves_at(peer.port, authority) as leaves:
        assert promptly(leaves.first, make_query()) == tls_failed(Cause.TLS_PROTOCOL)


def test_a_server_with_no_cipher_in_common_sends_its_alert(
    authority: Authority, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(b"AES128-SHA:@SECLEVEL=0")  # RSA key exchange with an ECDSA key
    with (
        TcpPeer(lambda sock: refuse_handshake(sock, context)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert promptly(leaves.first, make_query()) == tls_failed(Cause.TLS_ALERT)


def reset(sock: Any) -> None:
    Session(sock, SSL.Connection(SSL.Context(SSL.TLS_SERVER_METHOD), None), 1).reset()


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        pytest.param(lambda sock: sock.close(), Cause.TLS_CONNECTION_TRUNCATED, id="fin"),
        pytest.param(reset, Cause.CONNECTION_RESET_BY_PEER, id="rst"),
    ],
)
def test_a_server_that_hangs_up_in_the_handshake_is_not_tried_again(
    authority: Authority, end: Callable[[Any], None], cause: Cause
) -> None:
    def script(sock: Any) -> None:
        sock.recv(1 << 14)
        end(sock)

    with TcpPeer(script) as peer, leaves_at(peer.port, authority) as leaves:
        assert promptly(leaves.first, make_query()) == tls_failed(cause)
        assert peer.accepts == 1


def refuse_http_1_1(context: SSL.Context) -> None:
    """OpenSSL's no_application_protocol alert (RFC 7301 §3.2) for whatever is offered."""

    def select(_connection: SSL.Connection, _offered: list[bytes]) -> bytes:
        raise HandshakeRefused

    context.set_alpn_select_callback(select)


@pytest.mark.parametrize("newest", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION], ids=["1.2", "1.3"])
def test_a_server_that_refuses_http_1_1_in_alpn_gives_one_warning_and_a_hint_each_time(
    authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture, newest: int
) -> None:
    caplog.set_level(logging.INFO, "nxdns")
    context = certificate.openssl_context()
    context.set_max_proto_version(newest)
    refuse_http_1_1(context)
    with (
        TcpPeer(lambda sock: refuse_handshake(sock, context)) as peer,
        leaves_at(peer.port, authority, count=2) as leaves,
        leaves_at(peer.port, authority, path="/s3cret") as other_site,
    ):

        def ask(leaves: Leaves) -> None:
            for leaf in (*leaves.all, *leaves.all):
                assert promptly(leaf, make_query()) == tls_failed(Cause.TLS_ALERT)
                assert leaf.last.hint == WANTS_HTTP2

        ask(leaves)
        ask(other_site)
        warnings = [record for record in caplog.records if record.name.startswith("nxdns")]
        assert [(record.levelno, record.getMessage()) for record in warnings] == [
            (logging.WARNING, f"https://127.0.0.1:{peer.port}/dns-query: {WANTS_HTTP2}"),
            (logging.WARNING, f"https://127.0.0.1:{peer.port}/…: {WANTS_HTTP2}"),
        ]


def test_another_alert_gives_no_hint(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nxdns")

    def script(sock: Any) -> None:
        sock.recv(1 << 14)
        sock.sendall(b"\x15\x03\x03\x00\x02\x02\x50")  # fatal internal_error
        gevent.sleep(0)

    with TcpPeer(script) as peer, leaves_at(peer.port, authority) as leaves:
        assert promptly(leaves.first, make_query()) == tls_failed(Cause.TLS_ALERT)
        assert leaves.first.last.hint == ""
    assert not [record for record in caplog.records if record.name.startswith("nxdns")]


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        pytest.param(b"\x17\x03\x03\x00\x20" + bytes(32), Cause.TLS_PROTOCOL, id="forged-record"),
        pytest.param(b"plain text, all of a sudden", Cause.TLS_PROTOCOL, id="plain-text"),
    ],
)
def test_what_breaks_an_open_session_is_found_while_receiving(
    authority: Authority, certificate: Issued, record: bytes, cause: Cause
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send_raw(record)
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        fault = Fault(FaultKind.RECEIVE_FAILED, cause)
        assert promptly(leaves.first, make_query()) == fault
        assert promptly(leaves.first, make_query()) == fault
        assert peer.accepts == 2
