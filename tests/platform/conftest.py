"""Fixtures of the platform's tests."""

from collections.abc import Iterator

import pytest
from gevent import socket
from OpenSSL import SSL

from nxdns.platform.tls_calls import WrappedCalls, calls_of
from nxdns.platform.tls_stream import TlsStream
from tests.support.authority import NAME, Authority, Issued
from tests.support.tls_pair import Pair


@pytest.fixture(
    params=[
        pytest.param((SSL.TLS1_2_VERSION, calls_of), id="1.2"),
        pytest.param((SSL.TLS1_3_VERSION, calls_of), id="1.3"),
        # As with a pyOpenSSL that calls its own things by other names.
        pytest.param((SSL.TLS1_3_VERSION, WrappedCalls), id="1.3-wrapped"),
    ]
)
def pair(
    request: pytest.FixtureRequest, authority: Authority, certificate: Issued
) -> Iterator[Pair]:
    """Connected, but not yet behind the handshake."""
    version, calls = request.param
    server_context = certificate.openssl_context()
    server_context.set_max_proto_version(version)
    # A context of pyOpenSSL's own defaults, but that it verifies as ours do.
    client_context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    client_context.load_verify_locations(authority.ca_file)
    client_context.set_verify(SSL.VERIFY_PEER)
    client = SSL.Connection(client_context, None)
    client.set_tlsext_host_name(NAME.encode())
    client.set_connect_state()
    server = SSL.Connection(server_context, None)
    server.set_accept_state()
    with socket.socket() as listener, socket.socket() as client_sock:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client_sock.connect(listener.getsockname())
        server_sock, _ = listener.accept()
        for sock in (client_sock, server_sock):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with server_sock:
            yield Pair(
                client_sock,
                server_sock,
                TlsStream(client_sock, client, calls(client)),
                TlsStream(server_sock, server, calls(server)),
            )
