"""Programs that a bench runs beside the forwarder, each in a process of its own.

``python -m tests.bench.peers`` and one of these; prints its port::

    echo
    upstream CERT KEY LATENCY_MS     DNS over TLS, the queries of a session side by side
    serial CERT KEY LATENCY_MS       the same, one query of a session after another
    doh CERT KEY LATENCY_MS          DNS over HTTPS, POST
"""

import sys
from contextlib import suppress
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.server import DatagramServer, StreamServer
from OpenSSL import SSL

from nxdns.platform import tls_server
from nxdns.platform.tls_server import LoopbackUpstream, accept_session, server_context

_ECHO_POOL = 64
_HEAD_END = b"\r\n\r\n"


class Echo(DatagramServer):  # type: ignore[misc]  # gevent ships no types
    """The bare floor: gevent's own server and pool, one greenlet a datagram."""

    def handle(self, data: bytes, address: Any) -> None:
        self.sendto(data, address)


class DohUpstream(StreamServer):  # type: ignore[misc]  # gevent ships no types
    """Answers any name over HTTP/1.1, each query after the same latency."""

    def __init__(self, context: SSL.Context, latency_seconds: float) -> None:
        self._context = context
        self._latency_seconds = latency_seconds
        super().__init__(("127.0.0.1", 0))

    def handle(self, sock: Any, _client: Any) -> None:
        try:
            stream = accept_session(sock, self._context)
        except (OSError, EOFError, SSL.Error):
            return
        data = b""
        try:
            while True:
                while _HEAD_END not in data:
                    data += stream.recv()
                head, _, data = data.partition(_HEAD_END)
                length = _content_length(head)
                while len(data) < length:
                    data += stream.recv()
                query, data = data[:length], data[length:]
                gevent.sleep(self._latency_seconds)
                answer = tls_server._answer(query)
                stream.send(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/dns-message\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(answer), answer)
                )
        except (OSError, EOFError, SSL.Error):
            pass  # the client has ended the session
        finally:
            stream.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError("a POST says how long it is")


def main(arguments: list[str]) -> None:
    server: Any
    match arguments:
        case ["echo"]:
            server = Echo("127.0.0.1:0", spawn=Pool(_ECHO_POOL))
        case ["upstream" | "serial" | "doh" as kind, chain_file, key_file, latency_ms]:
            if kind == "serial":
                # The next query of a session is read when the one before is answered.
                tls_server._REPLIES = 1
            of_kind = DohUpstream if kind == "doh" else LoopbackUpstream
            server = of_kind(server_context(chain_file, key_file), float(latency_ms) / 1000)
        case _:
            raise SystemExit(__doc__)
    server.start()
    print(server.address[1], flush=True)
    gevent.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # whoever has started this one ends, too
        main(sys.argv[1:])
