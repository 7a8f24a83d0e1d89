"""Programs that a bench runs beside the forwarder, each in a process of its own.

``python -m tests.bench.peers echo`` or ``upstream CERT KEY LATENCY_MS``; prints its port.
"""

import sys
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.server import DatagramServer

from nxdns.platform.tls_server import LoopbackUpstream, server_context

_ECHO_POOL = 64


class Echo(DatagramServer):  # type: ignore[misc]  # gevent ships no types
    """The bare floor: gevent's own server and pool, one greenlet a datagram."""

    def handle(self, data: bytes, address: Any) -> None:
        self.sendto(data, address)


def main(arguments: list[str]) -> None:
    server: Any
    match arguments:
        case ["echo"]:
            server = Echo("127.0.0.1:0", spawn=Pool(_ECHO_POOL))
        case ["upstream", chain_file, key_file, latency_ms]:
            server = LoopbackUpstream(
                server_context(chain_file, key_file), float(latency_ms) / 1000
            )
        case _:
            raise SystemExit(__doc__)
    server.start()
    print(server.address[1], flush=True)
    gevent.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
