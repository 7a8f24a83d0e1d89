"""``nxdns check`` refuses every certificate that does not prove the name, and says why."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.check_peers import SCHEMES, Check, resolved, upstream
from tests.support.authority import NAME, Authority, Issued

pytestmark = pytest.mark.integration


def _untrusted(authority: Authority, folder: Path) -> Issued:
    return Authority(folder).issue(NAME, "127.0.0.1")


def _of_another_name(authority: Authority, folder: Path) -> Issued:
    return authority.issue("other.test", f"sub.{NAME}")


def _of_its_common_name_alone(authority: Authority, folder: Path) -> Issued:
    # An address and no name among the SANs: with one, OpenSSL would not look at the common name.
    return authority.issue("127.0.0.2", common_name=NAME)


def _of_an_address_alone(authority: Authority, folder: Path) -> Issued:
    return authority.issue("127.0.0.1")


def _of_another_address(authority: Authority, folder: Path) -> Issued:
    return authority.issue("127.0.0.2", NAME)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("issue", "tls_name", "cause"),
    [
        pytest.param(_untrusted, NAME, "CertificateUntrusted", id="untrusted"),
        pytest.param(lambda a, _: a.expired(), NAME, "CertificateExpired", id="expired"),
        pytest.param(
            lambda a, _: a.not_yet_valid(), NAME, "CertificateNotYetValid", id="not-yet-valid"
        ),
        pytest.param(_of_another_name, NAME, "CertificateNameMismatch", id="wrong-name"),
        pytest.param(_of_its_common_name_alone, NAME, "CertificateNameMismatch", id="cn-only"),
        pytest.param(_of_an_address_alone, NAME, "CertificateNameMismatch", id="address-only"),
        pytest.param(_of_another_address, None, "CertificateNameMismatch", id="wrong-address"),
        pytest.param(
            lambda a, _: a.issue(NAME), None, "CertificateNameMismatch", id="name-but-no-address"
        ),
    ],
)
def test_a_bad_certificate_fails_with_its_cause_and_no_query_is_sent(
    scheme: str,
    issue: Callable[[Authority, Path], Issued],
    tls_name: str | None,
    cause: str,
    authority: Authority,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    context = issue(authority, tmp_path).openssl_context()
    with upstream(scheme, context, resolved) as one:
        name = f'\ntls_name = "{tls_name}"' if tls_name else ""
        status, lines = Check(tmp_path, authority, capsys)(f'url = "{one.url}"{name}')
        assert lines == [f"FAIL {one.shown} TlsFailed (cause {cause})"]
        assert status == 1
        assert one.peer.accepts == 1
        assert one.probed.queries == []
