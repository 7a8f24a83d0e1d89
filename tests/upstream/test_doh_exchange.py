"""What a DoH leaf sends (RFC 8484), and to whom."""

from typing import Any

import pytest
from gevent import socket
from OpenSSL import SSL

from nxdns.dns.framing import MAX_MESSAGE
from nxdns.upstream.doh_client import DohSite
from nxdns.upstream.transport import Endpoint, LocalKind, LocalResource, SessionStats
from tests.support.authority import NAME, Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.http_peer import (
    FixedLookup,
    NoLookups,
    Request,
    TcpPeer,
    accept_tls,
    leaves_at,
    read_request,
    redirect_port,
    reply,
    well_behaved,
)
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Script, Session, TlsPeer

pytestmark = pytest.mark.integration


def recording(seen: list[Request]) -> Script:
    """A script that answers every query, and keeps what it read."""

    def script(session: Session) -> None:
        while True:
            request = read_request(session)
            seen.append(request)
            session.send(reply(make_response(request.body)))

    return script


def redirect_link_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connects to fe80::1 on the interface lo, which has no such address, reach ::1."""
    real = socket.socket.connect

    def connect(self: Any, address: Any) -> Any:
        if address[0] == "fe80::1":
            assert address[3] == socket.if_nametoindex("lo")
            address = ("::1", *address[1:])
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


def test_a_query_is_posted_padded_with_the_headers_of_rfc_8484(
    authority: Authority, certificate: Issued
) -> None:
    query = make_query(id_=0xBEEF, payload=1232, dnssec_ok=True)
    seen: list[Request] = []
    with (
        TlsPeer(certificate.openssl_context(), recording(seen)) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert exchanged(leaves.first, query) == make_response(query)
    [request] = seen
    assert request.line == "POST /dns-query HTTP/1.1"
    padding = bytes([0, 12, 0, 128 - len(query) - 4]) + bytes(128 - len(query) - 4)
    assert request.body == query[:-2] + bytes([0, len(padding)]) + padding
    wanted = {
        "content-type": "application/dns-message",
        "accept": "application/dns-message",
        "accept-encoding": "identity",
        "content-length": "128",
    }
    assert request.headers.items() >= wanted.items()
    assert "transfer-encoding" not in request.headers


@pytest.mark.parametrize(
    ("path", "target"),
    [
        pytest.param("", "/dns-query", id="default"),
        pytest.param("/s3cret-t0ken/dns", "/s3cret-t0ken/dns", id="secret"),
        pytest.param("/", "/", id="root"),
        pytest.param("/a/../b/", "/a/../b/", id="dots"),
        pytest.param("/a%2Fb~c", "/a%2Fb~c", id="escaped"),
        pytest.param("//token/dns-query", "//token/dns-query", id="two-slashes"),
    ],
)
def test_the_target_of_the_request_is_the_path_of_the_endpoint(
    authority: Authority, certificate: Issued, path: str, target: str
) -> None:
    seen: list[Request] = []
    with (
        TlsPeer(certificate.openssl_context(), recording(seen)) as peer,
        leaves_at(peer.port, authority, path=path) as leaves,
    ):
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
    assert [request.target for request in seen] == [target]


@pytest.mark.parametrize(
    ("host", "tls_name", "wanted"),
    [
        pytest.param("127.0.0.1", NAME, NAME, id="literal-with-tls-name"),
        pytest.param("127.0.0.1", None, "127.0.0.1", id="literal-alone"),
        pytest.param(NAME, None, NAME, id="name"),
        pytest.param(f"{NAME}.", None, NAME, id="name-without-its-dot"),
        pytest.param("127.0.0.1", f"{NAME}.", NAME, id="tls-name-without-its-dot"),
    ],
)
def test_the_host_header_names_the_server_and_a_port_other_than_443(
    authority: Authority, certificate: Issued, host: str, tls_name: str | None, wanted: str
) -> None:
    seen: list[Request] = []
    resolver = FixedLookup(["127.0.0.1"])
    with (
        TlsPeer(certificate.openssl_context(), recording(seen)) as peer,
        leaves_at(peer.port, authority, host=host, tls_name=tls_name, resolver=resolver) as leaves,
    ):
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
    assert [request.headers["host"] for request in seen] == [f"{wanted}:{peer.port}"]


def test_the_host_header_leaves_port_443_out(
    authority: Authority, certificate: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Request] = []
    with (
        TlsPeer(certificate.openssl_context(), recording(seen)) as peer,
        leaves_at(443, authority) as leaves,
    ):
        redirect_port(monkeypatch, 443, peer.port)
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
    assert [request.headers["host"] for request in seen] == [NAME]


@pytest.mark.parametrize(
    ("host", "tls_name", "wanted", "sni"),
    [
        pytest.param("[::1]", None, "[::1]", None, id="host"),
        pytest.param("[::1]", "::1", "[::1]", None, id="tls-name"),
        pytest.param("[::1]", NAME, NAME, NAME, id="literal-with-tls-name"),
        pytest.param("[::1%lo]", None, "[::1]", None, id="host-with-a-scope"),
        pytest.param("[::1%1]", None, "[::1]", None, id="host-with-a-number-for-its-scope"),
        pytest.param("[fe80::1%lo]", None, "[fe80::1]", None, id="link-local"),
        pytest.param("[fe80::1%lo]", f"{NAME}.", NAME, NAME, id="link-local-with-tls-name"),
    ],
)
def test_an_ipv6_literal_is_dialled_and_named_without_its_scope(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    tls_name: str | None,
    wanted: str,
    sni: str | None,
) -> None:
    seen: list[Request] = []
    names: list[bytes | None] = []
    context = authority.issue("::1", "fe80::1", NAME).openssl_context()
    context.set_tlsext_servername_callback(lambda server: names.append(server.get_servername()))

    def script(sock: object) -> None:
        session = accept_tls(sock, context)
        session.handshake()
        recording(seen)(session)

    with (
        TcpPeer(script, host="::1") as peer,
        leaves_at(peer.port, authority, host=host, tls_name=tls_name) as leaves,
    ):
        redirect_link_local(monkeypatch)
        query = make_query()
        assert exchanged(leaves.first, query) == make_response(query)
    assert [request.headers["host"] for request in seen] == [f"{wanted}:{peer.port}"]
    assert names == [sni and sni.encode()]


@pytest.mark.parametrize(
    ("host", "tls_name", "wanted"),
    [
        pytest.param("127.0.0.1", NAME, NAME.encode(), id="tls-name"),
        pytest.param("127.0.0.1", None, None, id="no-literal-in-sni"),
        pytest.param(NAME, None, NAME.encode(), id="name"),
        pytest.param("lookup.test", NAME, NAME.encode(), id="tls-name-before-name"),
        pytest.param(f"{NAME}.", None, NAME.encode(), id="no-dot-at-the-end"),
    ],
)
def test_the_name_in_sni_is_the_name_that_is_verified(
    authority: Authority,
    certificate: Issued,
    host: str,
    tls_name: str | None,
    wanted: bytes | None,
) -> None:
    names: list[bytes | None] = []
    context = certificate.openssl_context()
    context.set_tlsext_servername_callback(lambda server: names.append(server.get_servername()))
    resolver = FixedLookup(["127.0.0.1"])
    with (
        TlsPeer(context, well_behaved()) as peer,
        leaves_at(peer.port, authority, host=host, tls_name=tls_name, resolver=resolver) as leaves,
    ):
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
    assert set(names) == {wanted}


def test_http_1_1_is_offered_in_alpn(authority: Authority, certificate: Issued) -> None:
    offers: list[list[bytes]] = []

    def select(_connection: SSL.Connection, offered: list[bytes]) -> bytes:
        offers.append(offered)
        return offered[0]

    context = certificate.openssl_context()
    context.set_alpn_select_callback(select)
    with (
        TlsPeer(context, well_behaved()) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
    assert offers == [[b"http/1.1"]]


def test_tls_1_2_is_new_enough(authority: Authority, certificate: Issued) -> None:
    context = certificate.openssl_context()
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    with (
        TlsPeer(context, well_behaved()) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
        assert leaves.first.last.tls_version == "TLSv1.2"


@pytest.mark.parametrize("size", [pytest.param(0, id="empty"), pytest.param(65536, id="too-long")])
def test_a_query_that_is_no_message_is_refused_before_anything_is_dialled(
    authority: Authority, certificate: Issued, size: int
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        with pytest.raises(LocalResource) as raised:
            exchanged(leaves.first, b"q" * size)
        assert raised.value.kind is LocalKind.BUFFER_TOO_SMALL
        assert isinstance(exchanged(leaves.first, make_query()), bytes)
        assert peer.accepts == 1


def test_a_query_of_65535_bytes_is_sent_whole(authority: Authority, certificate: Issued) -> None:
    seen: list[Request] = []
    query = make_query().ljust(MAX_MESSAGE, b"\0")

    def script(session: Session) -> None:
        seen.append(read_request(session))
        session.send(reply(make_response(make_query())))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        exchanged(leaves.first, query)
    assert [request.body for request in seen] == [query]


def test_a_request_is_one_tls_record(authority: Authority, certificate: Issued) -> None:
    records: list[bytes] = []

    def script(session: Session) -> None:
        while True:
            records.append(session.recv())
            session.send(reply(make_response(records[-1].partition(b"\r\n\r\n")[2])))

    with (
        TlsPeer(certificate.openssl_context(), script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        outcomes = [exchanged(leaves.first, make_query(id_=number)) for number in range(3)]
    assert all(isinstance(outcome, bytes) for outcome in outcomes)
    assert len(records) == 3


@pytest.mark.parametrize("name", ["doh.test\r\nX-Injected: 1", "doh.test\n", "d\u00f6h.test"])
def test_a_name_that_no_field_can_hold_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(ValueError), leaves_at(443, authority, tls_name=name):  # noqa: PT011
        pass


def test_a_site_of_another_scheme_is_refused(authority: Authority) -> None:
    endpoint = Endpoint.parse("tls://127.0.0.1")
    with pytest.raises(ValueError, match="DoH leaf"):
        DohSite(
            endpoint,
            None,
            authority.doh_context(),
            NoLookups(),  # type: ignore[arg-type]  # what a Resolver does, without threads
            SessionStats(),
            attempt_seconds=1.0,
            leaves=1,
        )
