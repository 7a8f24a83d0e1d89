"""What a DoH leaf makes of a response's head: its status, its content type, its encoding."""

import gzip
import logging

import pytest

from nxdns.upstream.doh_client import WANTS_HTTP2
from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.http_peer import (
    DNS_MESSAGE,
    answering,
    head,
    leaves_at,
    read_request,
    reply,
    well_behaved,
)
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration


def http_status(cause: Cause) -> Fault:
    return Fault(FaultKind.HTTP_STATUS, cause)


def http_content_type(cause: Cause) -> Fault:
    return Fault(FaultKind.HTTP_CONTENT_TYPE, cause)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        pytest.param("101 Switching Protocols", Cause.UNEXPECTED_STATUS, id="switching"),
        pytest.param("201 Created", Cause.UNEXPECTED_STATUS, id="created"),
        pytest.param("203 Non-Authoritative Information", Cause.UNEXPECTED_STATUS, id="proxied"),
        pytest.param("204 No Content", Cause.UNEXPECTED_STATUS, id="no-content"),
        pytest.param("206 Partial Content", Cause.UNEXPECTED_STATUS, id="partial"),
        pytest.param("301 Moved Permanently", Cause.REDIRECT, id="moved"),
        pytest.param("304 Not Modified", Cause.REDIRECT, id="not-modified"),
        pytest.param("308 Permanent Redirect", Cause.REDIRECT, id="permanent-redirect"),
        pytest.param("400 Bad Request", Cause.CLIENT_ERROR, id="bad-request"),
        pytest.param("404 Not Found", Cause.CLIENT_ERROR, id="not-found"),
        pytest.param("415 Unsupported Media Type", Cause.CLIENT_ERROR, id="unsupported-type"),
        pytest.param("426 Upgrade Required", Cause.HTTP_VERSION_NOT_SUPPORTED, id="upgrade"),
        pytest.param("429 Too Many Requests", Cause.CLIENT_ERROR, id="too-many"),
        pytest.param("500 Internal Server Error", Cause.SERVER_ERROR, id="server-error"),
        pytest.param("502 Bad Gateway", Cause.SERVER_ERROR, id="bad-gateway"),
        pytest.param("503 Service Unavailable", Cause.SERVER_ERROR, id="unavailable"),
        pytest.param("505 HTTP Version Not Supported", Cause.HTTP_VERSION_NOT_SUPPORTED, id="505"),
        pytest.param("599 ", Cause.SERVER_ERROR, id="no-reason"),
        pytest.param("999 Beyond", Cause.UNEXPECTED_STATUS, id="beyond-599"),
    ],
)
def test_a_status_other_than_200_is_a_fault_even_with_a_good_body(
    authority: Authority, certificate: Issued, status: str, cause: Cause
) -> None:
    script = answering(lambda query: reply(make_response(query), status=status))
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, make_query()) == http_status(cause)
        # Its connection may hold the rest of that response, so it carries no other query.
        assert exchanged(leaves.first, make_query()) == http_status(cause)
        assert peer.accepts == 2


def test_the_status_is_judged_before_the_content_type(
    authority: Authority, certificate: Issued
) -> None:
    def error_page(_query: bytes) -> bytes:
        return head("Content-Type: text/html", "Content-Length: 0", status="503 Busy")

    with (
        TlsPeer(certificate.openssl_context(), answering(error_page)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, make_query()) == http_status(Cause.SERVER_ERROR)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 R", "308 R"])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["other-server", "same-server"])
def test_a_redirect_is_not_followed(
    authority: Authority, certificate: Issued, status: str, *, elsewhere: bool
) -> None:
    asked: list[str] = []
    context = certificate.openssl_context()
    with TlsPeer(context, well_behaved()) as target:

        def script(session: Session) -> None:
            while True:
                asked.append(read_request(session).target)
                port = target.port if elsewhere else peer.port
                location = f"Location: https://127.0.0.1:{port}/elsewhere"
                session.send(head(location, "Content-Length: 0", status=status))

        with (
            TlsPeer(context, script) as peer,
            leaves_at(peer.port, authority) as leaves,
        ):
            assert exchanged(leaves.first, make_query()) == http_status(Cause.REDIRECT)
            assert asked == ["/dns-query"]
            assert peer.accepts == 1
        assert target.accepts == 0


@pytest.mark.parametrize("interim", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_an_interim_response_is_passed_over(
    authority: Authority, certificate: Issued, interim: str
) -> None:
    def respond(query: bytes) -> bytes:
        return 2 * head("X-Note: wait", status=interim) + reply(make_response(query))

    query = make_query()
    with (
        TlsPeer(certificate.openssl_context(), answering(respond)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, query) == make_response(query)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        pytest.param(["Content-Type: application/dns-message"], None, id="exact"),
        pytest.param(["Content-Type: Application/DNS-Message"], None, id="mixed-case"),
        pytest.param(["content-type: application/dns-message"], None, id="field-in-lower-case"),
        pytest.param(["Content-Type:application/dns-message"], None, id="no-space"),
        pytest.param(["Content-Type:  application/dns-message \t"], None, id="spaces-around"),
        pytest.param(
            ["Content-Type: application/dns-message; charset=utf-8"], None, id="parameter"
        ),
        pytest.param(["Content-Type: application/dns-message ;a=b;c"], None, id="parameters"),
        pytest.param(["Content-Type: application/dns-message;"], None, id="semicolon"),
        pytest.param([], Cause.MISSING_TYPE, id="missing"),
        pytest.param(["Content-Type:"], Cause.WRONG_TYPE, id="empty"),
        pytest.param(["Content-Type: text/html"], Cause.WRONG_TYPE, id="html"),
        pytest.param(["Content-Type: application/dns-json"], Cause.WRONG_TYPE, id="json"),
        pytest.param(["Content-Type: application/dns-message2"], Cause.WRONG_TYPE, id="longer"),
        pytest.param(["Content-Type: application/dns"], Cause.WRONG_TYPE, id="shorter"),
        pytest.param(["Content-Type: dns-message"], Cause.WRONG_TYPE, id="subtype-alone"),
        pytest.param(
            ["Content-Type: text/plain; application/dns-message"],
            Cause.WRONG_TYPE,
            id="in-parameter",
        ),
        pytest.param(
            ["Content-Type: application/dns-message, text/html"], Cause.WRONG_TYPE, id="two-in-one"
        ),
        pytest.param(
            [DNS_MESSAGE, "Content-Type: text/html"], Cause.WRONG_TYPE, id="two-that-differ"
        ),
        pytest.param(["X-Content-Type: application/dns-message"], Cause.MISSING_TYPE, id="other"),
    ],
)
def test_the_content_type_is_compared_without_case_and_parameters(
    authority: Authority, certificate: Issued, fields: list[str], cause: Cause | None
) -> None:
    def respond(query: bytes) -> bytes:
        body = make_response(query)
        return head(*fields, f"Content-Length: {len(body)}") + body

    query = make_query()
    wanted = make_response(query) if cause is None else http_content_type(cause)
    with (
        TlsPeer(certificate.openssl_context(), answering(respond)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, query) == wanted


@pytest.mark.parametrize(
    "encoding", ["gzip", "GZIP", "deflate", "br", "x-unknown", "gzip, identity"]
)
def test_an_encoded_body_is_refused_as_nobody_asked_for_it(
    authority: Authority, certificate: Issued, encoding: str
) -> None:
    def respond(query: bytes) -> bytes:
        return reply(gzip.compress(make_response(query)), f"Content-Encoding: {encoding}")

    with (
        TlsPeer(certificate.openssl_context(), answering(respond)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, make_query()) == http_content_type(Cause.ENCODED_BODY)


@pytest.mark.parametrize("encoding", ["identity", "Identity", " identity "])
def test_the_identity_encoding_is_none(
    authority: Authority, certificate: Issued, encoding: str
) -> None:
    query = make_query()
    script = answering(lambda query: reply(make_response(query), f"Content-Encoding: {encoding}"))
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, query) == make_response(query)


@pytest.mark.parametrize("status", ["505 HTTP Version Not Supported", "426 Upgrade Required"])
def test_a_server_that_wants_http_2_gives_one_warning_for_its_site_and_a_hint_each_time(
    authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    caplog.set_level(logging.INFO, "nxdns")
    script = answering(lambda _query: head("Content-Length: 0", status=status))
    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority, count=2) as leaves,
    ):
        for leaf in (*leaves.all, *leaves.all):
            assert exchanged(leaf, make_query()) == http_status(Cause.HTTP_VERSION_NOT_SUPPORTED)
            assert leaf.last.hint == WANTS_HTTP2
        [warning] = [record for record in caplog.records if record.name.startswith("nxdns")]
        assert warning.levelno == logging.WARNING
        assert warning.getMessage() == f"https://127.0.0.1:{peer.port}/dns-query: {WANTS_HTTP2}"


def test_other_faults_give_neither_warning_nor_hint_and_a_success_takes_a_hint_back(
    authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nxdns")
    statuses = ["404 Not Found", "503 Service Unavailable", "505 HTTP Version Not Supported"]
    fallen = iter(statuses)

    def respond(query: bytes) -> bytes:
        status = next(fallen, None)
        return reply(make_response(query)) if status is None else reply(b"", status=status)

    hints: list[str] = []
    with (
        TlsPeer(certificate.openssl_context(), answering(respond)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        for _ in range(len(statuses) + 1):
            exchanged(leaves.first, make_query())
            hints.append(leaves.first.last.hint)
    assert hints == ["", "", WANTS_HTTP2, ""]
    assert [record.levelno for record in caplog.records if record.name.startswith("nxdns")] == [
        logging.WARNING
    ]
