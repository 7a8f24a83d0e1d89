"""``nxdns version``."""

import importlib.metadata
import platform
import ssl
from importlib.machinery import ExtensionFileLoader

import pytest
from OpenSSL import SSL

import nxdns
from nxdns.cli import main
from nxdns.dns import packet


def test_the_versions_of_all_that_matters_are_a_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["version"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    own, python, gevent, dot_line, doh_line = captured.out.splitlines()
    compiled = isinstance(packet.__loader__, ExtensionFileLoader)
    assert own == f"nxdns {nxdns.__version__} ({'compiled' if compiled else 'interpreted'})"
    assert python == f"Python {platform.python_version()}"
    assert gevent == f"gevent {importlib.metadata.version('gevent')}"
    assert dot_line.startswith(f"OpenSSL {_dotted(SSL.OPENSSL_VERSION_NUMBER)} ")
    assert dot_line.endswith("(DoT)")
    assert doh_line.startswith(f"OpenSSL {_dotted(ssl.OPENSSL_VERSION_NUMBER)} ")
    assert doh_line.endswith("(DoH)")


def _dotted(number: int) -> str:
    """As OPENSSL_VERSION_NUMBER(3) packs it: 0xMNN00PP0."""
    return f"{number >> 28}.{number >> 20 & 0xFF}.{number >> 4 & 0xFF}"


def test_the_version_is_one_that_pip_accepts() -> None:
    parts = nxdns.__version__.split(".")
    assert len(parts) == 3
    assert all(part.isdigit() for part in parts)
