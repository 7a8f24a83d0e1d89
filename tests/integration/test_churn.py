"""Upstreams that close their sessions, and those that break them."""

from collections.abc import Callable
from pathlib import Path

import dns.message
import dns.rcode
import gevent
import pytest
from gevent.pool import Pool

from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.http_peer import read_request, reply
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Script, Session, TlsPeer

pytestmark = pytest.mark.integration

_CLIENTS = 8


def _upstream(peer: TlsPeer, scheme: str = "tls") -> str:
    return f'url = "{scheme}://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'


def _answer_one(session: Session) -> None:
    session.send_message(make_response(session.read_query(), "192.0.2.1"))


def _answer_one_over_http(session: Session) -> None:
    """The close that follows is announced, or not, or crosses with the next request."""
    announced = ["Connection: close"] if session.number % 3 == 0 else []
    response = make_response(read_request(session).body, "192.0.2.1")
    session.send(reply(response, *announced))
    if session.number % 3 == 1:
        read_request(session)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("scheme", "script", "queries"),
    [
        pytest.param("tls", _answer_one, 1000, id="dot"),
        pytest.param("https", _answer_one_over_http, 500, id="doh"),
    ],
)
def test_an_upstream_that_closes_after_each_answer_serves_them_all_without_a_failure(
    scheme: str,
    script: Script,
    queries: int,
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
) -> None:
    rcodes: list[int] = []
    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), script) as peer,
        running(tmp_path, authority.ca_file, [_upstream(peer, scheme)]) as app,
    ):

        def client() -> None:
            answer = ask_udp(address_of(app), make_query())
            rcodes.append(dns.message.from_wire(answer).rcode())

        clients = Pool(_CLIENTS)
        for _ in range(queries):
            clients.spawn(client)
        clients.join(raise_error=True)
        snapshot = app.snapshot()[0]

    assert rcodes == [dns.rcode.NOERROR] * queries
    assert snapshot.failures_total == 0
    assert snapshot.successes_total == queries
    # Each query got a session of its own: after a close seen in time, or by one redial.
    assert peer.accepts == queries
    # Where the close crossed with a request, it was a redial.
    assert snapshot.reuse_recoveries_total > 0 or scheme == "tls"


def test_one_prefix_byte_and_a_close_on_a_reused_session_is_one_servfail_and_no_second_dial(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    def break_the_second(session: Session) -> None:
        session.send_message(make_response(session.read_query(), "192.0.2.1"))
        session.read_query()
        session.send(b"\0")

    with (
        TlsPeer(certificate.openssl_context(), break_the_second) as peer,
        running(tmp_path, authority.ca_file, [_upstream(peer)]) as app,
    ):
        first = dns.message.from_wire(ask_udp(address_of(app), make_query()))
        second = dns.message.from_wire(ask_udp(address_of(app), make_query()))
        snapshot = app.snapshot()[0]

    assert first.rcode() == dns.rcode.NOERROR
    assert second.rcode() == dns.rcode.SERVFAIL
    assert snapshot.failures_total == 1
    assert snapshot.last_error == "ReceiveFailed (cause EndOfStream)"
    assert snapshot.reuse_recoveries_total == 0
    assert peer.accepts == 1


def _with_id_off_by_one(response: bytes) -> bytes:
    return (int.from_bytes(response[:2], "big") ^ 1).to_bytes(2, "big") + response[2:]


_BAD_RESPONSES: dict[str, Callable[[bytes], bytes]] = {
    "wrong-id": lambda query: _with_id_off_by_one(make_response(query, "192.0.2.66")),
    "wrong-name": lambda query: (
        query[:2] + make_response(make_query("other.example"), "192.0.2.66")[2:]
    ),
    "wrong-type": lambda query: query[:2] + make_response(make_query(rtype="AAAA"))[2:],
    "qdcount-2": lambda query: query[:4] + b"\x00\x02\x00\x00\x00\x00\x00\x00" + query[12:] * 2,
    "qr-clear": lambda query: query,
    "garbage": lambda query: query[:2] + b"\xff" * 40,
    "trailing-bytes": lambda query: make_response(query, "192.0.2.66") + b"\0",
}


@pytest.mark.parametrize("fault", _BAD_RESPONSES)
def test_a_bad_response_never_reaches_a_client(
    fault: str, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    def answer_badly(session: Session) -> None:
        query = session.read_query()
        response = bytearray(_BAD_RESPONSES[fault](query))
        if fault == "qdcount-2":
            response[2] |= 0x80
        session.send_message(bytes(response))
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), answer_badly) as peer,
        running(tmp_path, authority.ca_file, [_upstream(peer)]) as app,
    ):
        query = make_query()
        reply = ask_udp(address_of(app), query)
        snapshot = app.snapshot()[0]

    assert reply[:2] == query[:2]
    message = dns.message.from_wire(reply)
    assert message.rcode() == dns.rcode.SERVFAIL
    assert not message.answer
    assert snapshot.failures_total == 1


def test_a_late_answer_never_reaches_the_client_that_asks_next(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    def answer_late(session: Session) -> None:
        late = make_response(session.read_query(), "192.0.2.66")
        if session.number == 1:
            session.wait_for_end()  # the attempt has expired, and its session with it
            return
        session.send_message(late)

    with (
        TlsPeer(certificate.openssl_context(), answer_late) as peer,
        running(
            tmp_path,
            authority.ca_file,
            [_upstream(peer)],
            "[budgets]\nattempt_ms = 100\ntotal_ms = 1000\n",
        ) as app,
    ):
        first = dns.message.from_wire(ask_udp(address_of(app), make_query("one.example")))
        second = dns.message.from_wire(ask_udp(address_of(app), make_query("two.example")))
        gevent.idle()

    assert first.rcode() == dns.rcode.SERVFAIL
    assert second.rcode() == dns.rcode.NOERROR
    assert peer.accepts == 2
