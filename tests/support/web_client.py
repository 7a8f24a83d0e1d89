"""HTTP byte by byte: what a browser would never send is sent, too."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gevent import Timeout, socket

from nxdns.web.server import WebServer
from nxdns.web.source import Source
from tests.support.overviews import ScriptedSource

_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    fields: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        assert self.fields["content-type"] == "application/json"
        return json.loads(self.body)


@contextmanager
def serving(
    source: Source | None = None, allowed_hosts: tuple[str, ...] = (), **bounds: float
) -> Iterator[WebServer]:
    """A web server on a loopback port."""
    server = WebServer("127.0.0.1", 0, source or ScriptedSource(), allowed_hosts, **bounds)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def port_of(server: WebServer) -> int:
    return int(server.url.rpartition(":")[2].strip("/"))


@contextmanager
def connected(server: WebServer) -> Iterator[Any]:
    """A connection that says nothing yet."""
    sock: Any
    with (
        Timeout(_PATIENCE_SECONDS),
        socket.create_connection(("127.0.0.1", port_of(server))) as sock,
    ):
        yield sock


def read_all(sock: Any) -> bytes:
    """Everything until the server closes; b"" too when it resets the connection."""
    data = bytearray()
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return bytes(data)


def send(server: WebServer, request: bytes) -> Answer:
    """Send ``request`` as it is, and read the response."""
    with connected(server) as sock:
        sock.sendall(request)
        return parse(read_all(sock))


def parse(data: bytes) -> Answer:
    head, end, body = data.partition(b"\r\n\r\n")
    assert end, f"there was no response: {data!r}"
    status_line, *lines = head.decode("latin-1").split("\r\n")
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        assert name.lower() not in fields, f"{name} was sent twice"
        fields[name.lower()] = value
    return Answer(int(status_line.split()[1]), fields, body)


def get(server: WebServer, path: str, *, method: str = "GET", host: str = "127.0.0.1") -> Answer:
    """Ask as curl does."""
    return send(server, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
