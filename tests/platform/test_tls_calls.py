"""OpenSSL is asked directly, by the names that the pyOpenSSL of today has for it."""

from typing import Any

import pytest
from OpenSSL import SSL

from nxdns.platform.tls_calls import DirectCalls, WrappedCalls, calls_of


def test_a_connection_over_memory_is_asked_directly() -> None:
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    assert isinstance(calls_of(connection), DirectCalls)


@pytest.mark.parametrize("missing", ["_ssl", "_into_ssl", "_from_ssl"])
def test_one_of_another_pyopenssl_is_asked_its_way(missing: str) -> None:
    class Other:
        _ssl = _into_ssl = _from_ssl = object()

    connection: Any = Other()
    setattr(connection, missing, None)
    assert isinstance(calls_of(connection), WrappedCalls)


@pytest.mark.parametrize("way", [DirectCalls, WrappedCalls])
def test_what_is_wrong_is_said_in_pyopenssls_words(way: Any) -> None:
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    connection.set_connect_state()
    calls = way(connection)
    with pytest.raises(SSL.WantReadError):
        calls.produced()
    with pytest.raises(SSL.WantReadError):
        calls.read()
    assert calls.produced()[0] == 22, "the beginning of a handshake"
    calls.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(SSL.Error) as raised:
        calls.read()
    assert "wrong version number" in str(raised.value)
    with pytest.raises(SSL.Error):
        calls.write(b"question")
