"""Two TLS streams that talk to each other over loopback."""

from dataclasses import dataclass
from typing import Any

import gevent
from OpenSSL import SSL

from nxdns.platform.tls_stream import TlsStream


@dataclass
class Pair:
    """Two ends of one TCP connection, and the TLS streams on them."""

    client_sock: Any
    server_sock: Any
    client: TlsStream
    server: TlsStream

    def handshake(self) -> "Pair":
        shaking = gevent.spawn(self.server.handshake)
        self.client.handshake()
        shaking.get()
        return self


def ciphertext_of(connection: SSL.Connection) -> bytes:
    """All that ``connection`` has to send."""
    ciphertext = b""
    try:
        while True:
            ciphertext += connection.bio_read(1 << 16)
    except SSL.WantReadError:
        return ciphertext
