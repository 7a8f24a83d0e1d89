"""Whose certificates a DoH leaf accepts, and what it makes of the others."""

from pathlib import Path

import pytest
from gevent import ssl

from nxdns.upstream.doh_connection import client_context
from nxdns.upstream.transport import Cause, Fault, FaultKind
from tests.support.authority import NAME, Authority, Issued
from tests.support.http_peer import FixedLookup, leaves_at, promptly, well_behaved
from tests.support.messages import make_query
from tests.support.tls_peer import TlsPeer

pytestmark = pytest.mark.integration


def assert_refused(
    authority: Authority,
    issued: Issued,
    cause: Cause,
    *,
    tls_name: str | None = NAME,
    host: str = "127.0.0.1",
) -> None:
    """No request leaves for a server with that certificate, nor by a second try."""
    resolver = FixedLookup(["127.0.0.1"])
    with (
        TlsPeer(issued.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority, host=host, tls_name=tls_name, resolver=resolver) as leaves,
    ):
        for accepts in (1, 2):
            assert promptly(leaves.first, make_query()) == Fault(FaultKind.TLS_FAILED, cause)
            assert peer.accepts == accepts
            assert leaves.first.last.tls_version == ""
        assert peer.handshakes == 0
        assert leaves.stats.recoveries == 0


def assert_accepted(authority: Authority, issued: Issued, tls_name: str | None) -> None:
    with (
        TlsPeer(issued.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority, tls_name=tls_name) as leaves,
    ):
        assert isinstance(promptly(leaves.first, make_query()), bytes)


def test_an_authority_that_is_not_ours_is_untrusted(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path).issue(NAME, "127.0.0.1")
    assert_refused(authority, stranger, Cause.CERTIFICATE_UNTRUSTED)


def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    assert_refused(authority, authority.expired(), Cause.CERTIFICATE_EXPIRED)


def test_a_certificate_of_the_future_is_refused(authority: Authority) -> None:
    assert_refused(authority, authority.not_yet_valid(), Cause.CERTIFICATE_NOT_YET_VALID)


@pytest.mark.parametrize(
    ("identities", "common_name", "tls_name"),
    [
        pytest.param(["evil.test"], None, NAME, id="other-name"),
        pytest.param([f"sub.{NAME}"], None, NAME, id="name-below"),
        pytest.param(["test"], None, NAME, id="name-above"),
        pytest.param(["127.0.0.1"], None, NAME, id="address-for-a-name"),
        pytest.param([], NAME, NAME, id="common-name-alone"),
        pytest.param(["other.test"], NAME, NAME, id="common-name-beside-another"),
        pytest.param([], "127.0.0.1", None, id="address-as-common-name"),
        pytest.param(["127.0.0.2"], None, None, id="other-address"),
        pytest.param([NAME], None, None, id="name-for-an-address"),
        pytest.param(["::1"], None, None, id="other-family"),
        pytest.param(["*.example.test"], None, "example.test", id="wildcard-for-its-parent"),
        pytest.param(["*.example.test"], None, "a.b.example.test", id="wildcard-for-two-labels"),
        pytest.param(["127.0.0.1", NAME], None, "::1", id="tls-name-is-an-address"),
    ],
)
def test_a_certificate_for_somebody_else_is_a_name_mismatch(
    authority: Authority, identities: list[str], common_name: str | None, tls_name: str | None
) -> None:
    issued = authority.issue(*identities, common_name=common_name)
    assert_refused(authority, issued, Cause.CERTIFICATE_NAME_MISMATCH, tls_name=tls_name)


def test_the_name_of_a_host_that_is_looked_up_is_verified_and_not_its_address(
    authority: Authority,
) -> None:
    issued = authority.issue("127.0.0.1")
    cause = Cause.CERTIFICATE_NAME_MISMATCH
    assert_refused(authority, issued, cause, host="doh.test", tls_name=None)


@pytest.mark.parametrize(
    ("identities", "tls_name"),
    [
        pytest.param([NAME], NAME, id="name"),
        pytest.param([NAME], NAME.upper(), id="name-in-other-case"),
        pytest.param([NAME], f"{NAME}.", id="name-with-its-dot"),
        pytest.param(["other.test", NAME], NAME, id="one-of-two"),
        pytest.param(["*.example.test"], "a.example.test", id="wildcard"),
        pytest.param(["127.0.0.1"], None, id="address"),
        pytest.param(["192.0.2.1"], "192.0.2.1", id="address-as-tls-name"),
        pytest.param(["2001:db8::1"], "2001:db8::1", id="ipv6-as-tls-name"),
    ],
)
def test_a_certificate_for_the_verified_name_is_accepted_whatever_is_dialled(
    authority: Authority, identities: list[str], tls_name: str | None
) -> None:
    assert_accepted(authority, authority.issue(*identities), tls_name)


def test_two_sites_that_differ_in_their_name_do_not_share_a_verified_connection(
    authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority) as good,
        leaves_at(peer.port, authority, tls_name="evil.test") as evil,
    ):
        assert isinstance(promptly(good.first, make_query()), bytes)
        fault = Fault(FaultKind.TLS_FAILED, Cause.CERTIFICATE_NAME_MISMATCH)
        assert promptly(evil.first, make_query()) == fault


def test_a_file_without_a_certificate_is_no_trust_anchor(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(ssl.SSLError):
        client_context(str(empty))
    with pytest.raises(OSError, match="No such file"):
        client_context(str(tmp_path / "missing.pem"))
