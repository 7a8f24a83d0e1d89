"""``nxdns check`` against real TLS upstreams: what it asks, and how it leaves."""

import re
from pathlib import Path

import dns.message
import dns.rdatatype
import gevent
import pytest
from OpenSSL import SSL

from tests.cli.check_peers import SCHEMES, Check, resolved, servfail, upstream
from tests.cli.ports import refusing_tcp
from tests.support.authority import NAME, Authority, Issued
from tests.support.http_peer import (
    HandshakeRefused,
    TcpPeer,
    head,
    read_request,
    refuse_handshake,
)
from tests.support.leaks import no_descriptor_left
from tests.support.lookups import let_lookups_fail
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def check(tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(tmp_path, authority, capsys)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_probe_is_one_connection_and_one_query_for_example_com(
    scheme: str, check: Check, certificate: Issued
) -> None:
    with upstream(scheme, certificate.openssl_context(), resolved) as one:
        status, [line] = check(one.body)
        assert status == 0
        shown = re.escape(one.shown)
        assert re.fullmatch(rf"ok  {shown} \d+ ms TLSv1\.3 name verified \(dot\.test\)", line)
        assert one.peer.accepts == 1
        [query] = one.probed.queries
        eventually(lambda: one.probed.ended == 1)
    [question] = dns.message.from_wire(query).question
    assert question.name.to_text() == "example.com."
    assert question.rdtype == dns.rdatatype.A


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_tls_version_is_the_one_agreed_on(
    scheme: str, check: Check, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    with upstream(scheme, context, resolved) as one:
        _, [line] = check(one.body)
    assert " ms TLSv1.2 name verified" in line


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_a_tls_name_the_verified_name_is_the_host(
    scheme: str, check: Check, certificate: Issued
) -> None:
    with upstream(scheme, certificate.openssl_context(), resolved) as one:
        status, [line] = check(f'url = "{one.url}"')
    assert status == 0
    assert line.endswith("name verified (127.0.0.1)")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_servfail_is_an_answer(scheme: str, check: Check, certificate: Issued) -> None:
    with upstream(scheme, certificate.openssl_context(), servfail) as one:
        status, [line] = check(one.body)
    assert status == 0
    assert line.startswith("ok  ")


def test_each_enabled_upstream_is_probed_once_and_a_disabled_one_never(
    check: Check, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        upstream("tls", context, resolved) as one,
        upstream("tls", context, resolved) as off,
        upstream("https", context, resolved) as two,
    ):
        status, lines = check(one.body, off.body + "\nenabled = false", two.body)
        assert status == 0
        assert [line.split()[1] for line in lines] == [one.shown, two.shown]
        assert [each.peer.accepts for each in (one, off, two)] == [1, 0, 1]
        assert [len(each.probed.queries) for each in (one, off, two)] == [1, 0, 1]


def test_one_failure_is_status_1_and_the_others_are_probed_all_the_same(
    check: Check, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        refusing_tcp() as port,
        upstream("tls", context, resolved) as good,
    ):
        status, lines = check(f'url = "tls://127.0.0.1:{port}"', good.body)
    assert status == 1
    assert lines[0] == f"FAIL tls://127.0.0.1:{port} ConnectFailed (cause ConnectionRefused)"
    assert lines[1].startswith(f"ok  {good.shown} ")
    assert len(lines) == 2


def test_a_host_that_nobody_knows_is_one_line_and_nothing_else(
    tmp_path: Path,
    authority: Authority,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_lookups_fail(monkeypatch)
    status, lines = Check(tmp_path, authority, capfd)('url = "https://doh.test"')
    assert status == 1
    assert lines == ["FAIL https://doh.test/dns-query ConnectFailed (cause NameNotResolved)"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_upstream_is_probed_when_the_session_with_the_one_before_has_ended(
    scheme: str, check: Check, certificate: Issued
) -> None:
    context = certificate.openssl_context()

    def once_the_first_is_left(query: bytes) -> bytes:
        eventually(lambda: first.probed.ended == 1)
        return resolved(query)

    with (
        upstream(scheme, context, resolved) as first,
        upstream("tls", context, once_the_first_is_left) as second,
    ):
        status, _ = check(first.body, second.body)
    assert status == 0


def _of_another_name(query: bytes) -> bytes:
    """A response to another question; the session is in order all the same."""
    asked = dns.message.from_wire(query)
    other = dns.message.make_query("other.test", "A", id=asked.id)
    return dns.message.make_response(other).to_wire()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_after_an_error_the_session_is_closed_and_the_upstream_not_asked_again(
    scheme: str, check: Check, certificate: Issued
) -> None:
    with upstream(scheme, certificate.openssl_context(), _of_another_name) as one:
        status, lines = check(one.body)
        assert status == 1
        assert lines == [f"FAIL {one.shown} ResponseMismatch (cause WrongName)"]
        eventually(lambda: one.probed.ended == 1)
        gevent.idle()
        assert one.peer.accepts == 1
        assert len(one.probed.queries) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_silent_upstream_fails_when_the_attempt_is_over_and_is_left(
    scheme: str, check: Check, certificate: Issued
) -> None:
    with upstream(scheme, certificate.openssl_context(), None) as one:
        status, lines = check(one.body, attempt_ms=150)
        assert status == 1
        assert lines == [f"FAIL {one.shown} Timeout (cause Timeout)"]
        eventually(lambda: one.probed.ended == 1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_upstream_that_hangs_up_fails_after_one_try(
    scheme: str, check: Check, certificate: Issued
) -> None:
    def hang_up(session: Session) -> None:
        if scheme == "tls":
            session.read_query()
        else:
            read_request(session)

    with TlsPeer(certificate.openssl_context(), hang_up) as peer:
        status, [line] = check(f'url = "{scheme}://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"')
        assert peer.accepts == 1
    cause = "EndOfStream" if scheme == "tls" else "HttpConnectionClosing"
    assert status == 1
    assert line.endswith(f" ReceiveFailed (cause {cause})")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_check_leaves_no_descriptor_open(scheme: str, check: Check, certificate: Issued) -> None:
    with upstream(scheme, certificate.openssl_context(), resolved) as one, refusing_tcp() as port:
        refused = f'url = "{scheme}://127.0.0.1:{port}"'
        check(one.body, refused)
        eventually(lambda: one.probed.ended == 1)
        with no_descriptor_left():
            check(one.body, refused)
            eventually(lambda: one.probed.ended == 2)


@pytest.mark.parametrize("status", ["505 HTTP Version Not Supported", "426 Upgrade Required"])
def test_a_server_that_wants_http_2_has_a_second_line_with_what_to_do(
    status: str, check: Check, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        read_request(session)
        session.send(head("Content-Length: 0", status=status))
        session.wait_for_end()

    with TlsPeer(certificate.openssl_context(), script) as peer:
        url = f"https://127.0.0.1:{peer.port}"
        exit_status, [line, hint] = check(f'url = "{url}"\ntls_name = "{NAME}"')
        assert peer.accepts == 1
    assert exit_status == 1
    assert line == f"FAIL {url}/dns-query HttpStatus (cause HttpVersionNotSupported)"
    assert hint.startswith(" ")
    assert "HTTP/2" in hint
    assert "tls://" in hint


def test_a_server_that_refuses_http_1_1_in_the_handshake_has_it_too(
    check: Check, certificate: Issued
) -> None:
    context = certificate.openssl_context()

    def only_http_2(_: SSL.Connection, offered: list[bytes]) -> bytes:
        assert b"h2" not in offered
        raise HandshakeRefused

    context.set_alpn_select_callback(only_http_2)
    with TcpPeer(lambda sock: refuse_handshake(sock, context)) as peer:
        url = f"https://127.0.0.1:{peer.port}"
        status, [line, hint] = check(f'url = "{url}"\ntls_name = "{NAME}"')
    assert status == 1
    assert line == f"FAIL {url}/dns-query TlsFailed (cause TlsAlert)"
    assert "HTTP/2" in hint


@pytest.mark.parametrize("good", [True, False], ids=["ok", "fail"])
def test_a_secret_path_is_never_printed(good: bool, check: Check, certificate: Issued) -> None:
    token = "s3cr3t-t0ken"
    with upstream("https", certificate.openssl_context(), resolved if good else servfail) as one:
        name = NAME if good else "other.test"
        status, [line] = check(f'url = "{one.url}/{token}"\ntls_name = "{name}"')
    assert status == (0 if good else 1)
    assert f" {one.url}/… " in line
    assert token not in line


def test_what_is_no_tls_at_all_is_told(check: Check) -> None:
    def plain(sock: object) -> None:
        sock.sendall(b"SSH-2.0-OpenSSH\r\n")  # type: ignore[attr-defined]
        sock.recv(1000)  # type: ignore[attr-defined]

    with TcpPeer(plain) as peer:
        status, lines = check(
            *(
                f'url = "{scheme}://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'
                for scheme in SCHEMES
            )
        )
    assert status == 1
    assert [line.partition(" TlsFailed ")[2] for line in lines] == ["(cause TlsProtocol)"] * 2
