"""The whole forwarder in this process, and plain DNS clients to ask it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gevent import Timeout, socket

from nxdns.app import App
from nxdns.config import load
from nxdns.dns.framing import Unframer, frame
from nxdns.platform.address import ListenAddress

_PATIENCE_SECONDS = 20.0  # far beyond any budget: a client that never hears fails its test


@contextmanager
def running(
    folder: Path,
    ca_file: str,
    upstreams: Sequence[str],
    extra: str = "",
    allow: Sequence[str] | None = None,
) -> Iterator[App]:
    """An App on a loopback port; each of ``upstreams`` is the body of an [[upstreams]] table."""
    allowed = "" if allow is None else f"allow = {json.dumps(list(allow))}\n"
    tables = "".join(f"[[upstreams]]\n{body}\n" for body in upstreams)
    file = folder / "nxdns.toml"
    file.write_text(
        f'[server]\nlisten = ["127.0.0.1:0"]\n{allowed}{tables}\n[tls]\nca_file = "{ca_file}"\n'
        f'[web]\nlisten = ""\n{extra}'
    )
    app = App(load(file))
    app.start()
    try:
        yield app
    finally:
        app.stop()


def address_of(app: App) -> ListenAddress:
    """Where its one listener is."""
    return app.listeners[0].bound


def ask_udp(address: ListenAddress, query: bytes) -> bytes:
    """One datagram there, one back."""
    family = socket.AF_INET6 if address.is_ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock, Timeout(_PATIENCE_SECONDS):
        sock.connect((address.host, address.port))
        sock.send(query)
        reply: bytes = sock.recv(65535)
        return reply


def ask_tcp(address: ListenAddress, query: bytes) -> bytes:
    """One message over a connection of its own."""
    sock: Any
    with socket.create_connection((address.host, address.port)) as sock, Timeout(_PATIENCE_SECONDS):
        sock.sendall(frame(query))
        unframer = Unframer()
        while (reply := unframer.next_message()) is None:
            data = sock.recv(65535)
            assert data, "the connection ended before its answer"
            unframer.feed(data)
        return reply
