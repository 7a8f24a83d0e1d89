"""Which certificates a DoT leaf accepts, and that no query reaches a server it has refused."""

import ipaddress
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from gevent.event import Event
from OpenSSL import SSL

from nxdns.platform.tls_client import client_context
from nxdns.upstream.transport import Cause, Endpoint, Fault, FaultKind
from tests.support.authority import NAME, Authority
from tests.support.dot_leaves import dot_client
from tests.support.exchanging import exchanged
from tests.support.messages import make_query, make_response
from tests.support.self_signed import UNDECODABLE, self_signed, server_of
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("at_every_depth")]

QUERY = make_query(id_=4711)
ANSWER = make_response(QUERY, "192.0.2.1")


class Eavesdropper:
    """A server's side of a session that notes every byte it is sent."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended = Event()

    def script(self, session: Session) -> None:
        try:
            while True:
                self.heard += session.recv()
        finally:
            self.ended.set()


def assert_refused(
    server: SSL.Context, client: SSL.Context, tls_name: str | None, cause: str
) -> None:
    ear = Eavesdropper()
    with TlsPeer(server, ear.script) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        with closing(dot_client(endpoint, tls_name, client)) as leaf:
            assert exchanged(leaf, QUERY) == Fault(FaultKind.TLS_FAILED, cause)
            # The client has given up before the server has heard of it: wait for that.
            eventually(lambda: ear.ended.is_set() or peer.handshake_errors)
        assert ear.heard == b""
        assert peer.accepts == 1


def assert_accepted(server: SSL.Context, client: SSL.Context, tls_name: str | None) -> None:
    with TlsPeer(server, answer_all(lambda query: make_response(query, "192.0.2.1"))) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        with closing(dot_client(endpoint, tls_name, client)) as leaf:
            assert exchanged(leaf, QUERY) == ANSWER


# The name: subjectAltName only; the dialled literal is the name when there is no other.


@pytest.mark.parametrize(
    ("identities", "tls_name"),
    [
        pytest.param([NAME], NAME, id="the-name"),
        pytest.param([NAME], "DOT.Test", id="the-name-in-another-case"),
        pytest.param([NAME], f"{NAME}.", id="the-name-with-its-final-dot"),
        pytest.param(["first.test", NAME, "third.test"], NAME, id="one-of-several"),
        pytest.param([f"*.{NAME}"], f"a.{NAME}", id="wildcard"),
        pytest.param(["127.0.0.1"], None, id="ip"),
        pytest.param([NAME, "127.0.0.1"], "127.0.0.1", id="ip-beside-a-name"),
        pytest.param(["2001:db8::1"], "2001:DB8:0::1", id="ipv6-written-another-way"),
    ],
)
def test_a_trusted_certificate_for_the_name_is_accepted(
    authority: Authority, identities: list[str], tls_name: str | None
) -> None:
    issued = authority.issue(*identities)
    assert_accepted(issued.openssl_context(), authority.dot_context(), tls_name)


@pytest.mark.parametrize(
    "version",
    [pytest.param(SSL.TLS1_2_VERSION, id="1.2"), pytest.param(SSL.TLS1_3_VERSION, id="1.3")],
)
@pytest.mark.parametrize(
    ("identities", "common_name", "tls_name"),
    [
        pytest.param([NAME], None, "evil.test", id="another-name"),
        pytest.param([NAME], None, f"a.{NAME}", id="a-name-below"),
        pytest.param([f"*.{NAME}"], None, f"a.b.{NAME}", id="wildcard-is-one-label"),
        pytest.param([f"*.{NAME}"], None, NAME, id="wildcard-is-not-none"),
        pytest.param(["other.test"], NAME, NAME, id="name-in-the-common-name-only"),
        pytest.param(["127.0.0.1"], None, NAME, id="ip-where-a-name-is-wanted"),
        pytest.param(["127.0.0.2"], None, None, id="another-ip"),
        pytest.param([NAME], None, None, id="name-where-an-ip-is-wanted"),
        pytest.param([NAME], "127.0.0.1", None, id="ip-in-the-common-name-only"),
    ],
)
def test_a_trusted_certificate_for_something_else_is_refused(
    authority: Authority,
    identities: list[str],
    common_name: str | None,
    tls_name: str | None,
    version: int,
) -> None:
    server = authority.issue(*identities, common_name=common_name).openssl_context()
    server.set_min_proto_version(version)
    server.set_max_proto_version(version)
    cause = Cause.CERTIFICATE_NAME_MISMATCH
    assert_refused(server, authority.dot_context(), tls_name, cause)


@pytest.mark.parametrize(
    ("alternatives", "common_name", "tls_name"),
    [
        pytest.param([], NAME, NAME, id="no-subjectaltname-at-all"),
        pytest.param([], "127.0.0.1", None, id="no-subjectaltname-at-all-for-an-ip"),
        pytest.param([x509.DNSName("127.0.0.1")], "-", None, id="ip-as-a-dnsname"),
        pytest.param(
            [x509.UniformResourceIdentifier(f"https://{NAME}/")], "-", NAME, id="name-in-a-uri"
        ),
    ],
)
def test_an_odd_certificate_that_is_trusted_is_refused_by_its_name(
    tmp_path: Path, alternatives: list[x509.GeneralName], common_name: str, tls_name: str | None
) -> None:
    pem = self_signed(tmp_path, *alternatives, common_name=common_name)
    cause = Cause.CERTIFICATE_NAME_MISMATCH
    assert_refused(server_of(pem), client_context(pem), tls_name, cause)


@pytest.mark.parametrize("tls_name", [pytest.param(NAME, id="name"), pytest.param(None, id="ip")])
@pytest.mark.parametrize("names", UNDECODABLE.values(), ids=UNDECODABLE)
def test_a_name_that_cannot_be_decoded_is_no_proof_of_the_names_beside_it(
    tmp_path: Path, names: bytes, tls_name: str | None
) -> None:
    pem = self_signed(tmp_path, raw_names=names)
    cause = Cause.CERTIFICATE_NAME_MISMATCH
    assert_refused(server_of(pem), client_context(pem), tls_name, cause)


# The chain.


def _expired(authority: Authority, _: Path) -> SSL.Context:
    return authority.expired().openssl_context()


def _not_yet_valid(authority: Authority, _: Path) -> SSL.Context:
    return authority.not_yet_valid().openssl_context()


def _of_another_authority(_: Authority, folder: Path) -> SSL.Context:
    pem = folder / "other.pem"
    leaf = trustme.CA().issue_cert(NAME, "127.0.0.1")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(pem))
    return server_of(str(pem))


def _self_signed(_: Authority, folder: Path) -> SSL.Context:
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return server_of(self_signed(folder, x509.DNSName(NAME), loopback))


@pytest.mark.parametrize("tls_name", [pytest.param(NAME, id="name"), pytest.param(None, id="ip")])
@pytest.mark.parametrize(
    ("server_from", "cause"),
    [
        pytest.param(_of_another_authority, Cause.CERTIFICATE_UNTRUSTED, id="unknown-authority"),
        pytest.param(_self_signed, Cause.CERTIFICATE_UNTRUSTED, id="self-signed"),
        pytest.param(_expired, Cause.CERTIFICATE_EXPIRED, id="expired"),
        pytest.param(_not_yet_valid, Cause.CERTIFICATE_NOT_YET_VALID, id="not-yet-valid"),
    ],
)
def test_a_certificate_that_cannot_be_trusted_is_refused(
    authority: Authority,
    tmp_path: Path,
    server_from: Callable[[Authority, Path], SSL.Context],
    cause: Cause,
    tls_name: str | None,
) -> None:
    assert_refused(server_from(authority, tmp_path), authority.dot_context(), tls_name, cause)


def test_a_self_signed_certificate_that_the_owner_trusts_is_accepted(tmp_path: Path) -> None:
    pem = self_signed(tmp_path, x509.DNSName(NAME))
    assert_accepted(server_of(pem), client_context(pem), NAME)


def test_a_certificate_for_clients_is_refused_by_the_name_of_what_openssl_holds_against_it(
    tmp_path: Path,
) -> None:
    pem = self_signed(tmp_path, x509.DNSName(NAME), usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    assert_refused(server_of(pem), client_context(pem), NAME, "CertificateInvalidPurpose")


def test_a_server_refused_once_is_asked_for_its_certificate_again(authority: Authority) -> None:
    with TlsPeer(authority.issue("other.test").openssl_context(), Session.wait_for_end) as peer:
        endpoint = Endpoint.parse(f"tls://127.0.0.1:{peer.port}")
        leaf = dot_client(endpoint, NAME, authority.dot_context())
        refused = Fault(FaultKind.TLS_FAILED, Cause.CERTIFICATE_NAME_MISMATCH)
        with closing(leaf):
            assert exchanged(leaf, QUERY) == refused
            assert exchanged(leaf, QUERY) == refused
            assert not leaf.last.reused
        assert peer.accepts == 2


# What the client hello says.


@pytest.mark.parametrize(
    ("tls_name", "sni"),
    [
        pytest.param(NAME, NAME.encode(), id="name"),
        pytest.param(f"{NAME}.", NAME.encode(), id="without-the-final-dot"),
        pytest.param(None, None, id="not-for-a-literal"),
    ],
)
def test_sni_is_sent_for_a_name_only(
    authority: Authority, tls_name: str | None, sni: bytes | None
) -> None:
    seen: list[bytes | None] = []
    server = authority.issue(NAME, "127.0.0.1").openssl_context()
    server.set_tlsext_servername_callback(lambda session: seen.append(session.get_servername()))
    assert_accepted(server, authority.dot_context(), tls_name)
    assert seen == [sni]


@pytest.mark.parametrize(
    "choose",
    [
        pytest.param(lambda _, offered: offered[0], id="chosen"),
        pytest.param(lambda _, __: SSL.NO_OVERLAPPING_PROTOCOLS, id="ignored"),
    ],
)
def test_alpn_dot_is_offered_and_its_absence_tolerated(
    authority: Authority, choose: Callable[[SSL.Connection, list[bytes]], Any]
) -> None:
    offers: list[list[bytes]] = []

    def select(connection: SSL.Connection, offered: list[bytes]) -> Any:
        offers.append(offered)
        return choose(connection, offered)

    server = authority.issue(NAME).openssl_context()
    server.set_alpn_select_callback(select)
    assert_accepted(server, authority.dot_context(), NAME)
    assert offers == [[b"dot"]]
