"""HTTP/1.1 byte by byte over the sessions of a TlsPeer, and DoH leaves that speak to it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import gevent
import pytest
from gevent import select, socket
from gevent.pool import Group
from OpenSSL import SSL

from nxdns.platform.resolver import Resolver
from nxdns.upstream.doh_client import DohClient, DohSite
from nxdns.upstream.transport import Endpoint, Fault, SessionStats
from tests.support.authority import NAME, Authority
from tests.support.exchanging import exchanged
from tests.support.messages import make_response
from tests.support.tls_peer import Script, Session

DNS_MESSAGE = "Content-Type: application/dns-message"


@dataclass(frozen=True)
class Request:
    """One request as the server read it. Header names are in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


def read_request(session: Session) -> Request:
    """The next request of the client. Raises as Session.recv does when there is none.

    No header may occur twice, and nothing may follow the body: the client never pipelines.
    """
    data = b""
    while b"\r\n\r\n" not in data:
        data += session.recv()
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.decode("ascii").split("\r\n")
    headers: dict[str, str] = {}
    for field in fields:
        name, _, value = field.partition(":")
        assert name.lower() not in headers, f"{name} occurs twice"
        headers[name.lower()] = value.strip()
    length = int(headers["content-length"])
    while len(body) < length:
        body += session.recv()
    assert len(body) == length, "bytes follow the body"
    return Request(line, headers, body)


def head(*fields: str, status: str = "200 OK") -> bytes:
    """A response's head, with no field but those given."""
    return "\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode("latin-1")


def reply(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    """A whole response, of RFC 8484's content type and with its length."""
    return head(DNS_MESSAGE, f"Content-Length: {len(body)}", *fields, status=status) + body


CHUNKED = "Transfer-Encoding: chunked"


def chunked(*chunks: bytes) -> bytes:
    """``chunks`` as a chunked body, the last chunk included."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def answering(respond: Callable[[bytes], bytes]) -> Script:
    """A script that answers every request with the bytes ``respond(query)``, head and all."""

    def script(session: Session) -> None:
        while True:
            session.send(respond(read_request(session).body))

    return script


def well_behaved() -> Script:
    """A script that answers every query as a resolver does."""
    return answering(lambda query: reply(make_response(query, "192.0.2.1")))


class NoLookups:
    """A Resolver for endpoints that need none."""

    def lookup(self, host: str, port: int) -> list[str]:
        raise AssertionError(f"{host}:{port} was looked up")

    def close(self) -> None:
        pass


class FixedLookup:
    """A Resolver that finds ``found`` under every name, or raises it; it notes what it is asked."""

    def __init__(self, found: Sequence[str] | Exception) -> None:
        self._found = found
        self.asked: list[tuple[str, int]] = []

    def lookup(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        if isinstance(self._found, Exception):
            raise self._found
        return list(self._found)

    def close(self) -> None:
        pass


class Leaves:
    """The leaves of one site, and what they have counted."""

    def __init__(self, site: DohSite, count: int) -> None:
        self.site = site
        self.stats = site.stats
        self.all = [DohClient(site) for _ in range(count)]

    @property
    def first(self) -> DohClient:
        return self.all[0]


@contextmanager
def leaves_at(
    port: int,
    authority: Authority,
    *,
    host: str = "127.0.0.1",
    path: str = "",
    tls_name: str | None = NAME,
    resolver: NoLookups | FixedLookup | Resolver | None = None,
    attempt_seconds: float = 5.0,
    count: int = 1,
) -> Iterator[Leaves]:
    """``count`` leaves of ``https://host:port/path``, whose site is closed in the end."""
    site = DohSite(
        Endpoint.parse(f"https://{host}:{port}{path}"),
        tls_name,
        authority.doh_context(),
        resolver or NoLookups(),  # type: ignore[arg-type]  # what a Resolver does, without threads
        SessionStats(),
        attempt_seconds=attempt_seconds,
        leaves=count,
    )
    try:
        yield Leaves(site, count)
    finally:
        site.close()


def promptly(leaf: DohClient, query: bytes) -> bytes | Fault:
    """One exchange that must end by itself, though the server may keep its connection open."""
    # Its own type, which is no Exception: the leaf would take an AssertionError for a bug.
    with gevent.Timeout(5.0):
        return exchanged(leaf, query)


def redirect_port(monkeypatch: pytest.MonkeyPatch, port: int, to: int) -> None:
    """Let connects to ``port``, which no test may bind, reach the peer at the port ``to``."""
    real = socket.socket.connect

    def connect(self: Any, address: Any) -> Any:
        return real(self, (address[0], to, *address[2:]) if address[1] == port else address)

    monkeypatch.setattr(socket.socket, "connect", connect)


def small_send_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client that sends more than a few thousand bytes wait until its server reads them."""
    real = socket.socket.connect

    def connect(self: Any, address: Any) -> Any:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


@contextmanager
def blackhole(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port that answers no connect: its backlog is full, and Linux drops what comes then."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        address = listener.getsockname()
        while True:
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            if client.connect_ex(address) != 0 and not wait_writable(client):
                break
        yield address[1]


def wait_writable(sock: Any) -> bool:
    """Whether its connect is done: on loopback it is so at once, or not before a second is over."""
    return bool(select.select([], [sock], [], 0.02)[1])


class TcpPeer:
    """Accepts on loopback and runs ``script`` on each socket; what TLS there is, is the script's.

    A socket whose script returns is closed. What a script raises is kept, and raised by the
    peer's end.
    """

    def __init__(
        self,
        script: Callable[[Any], None],
        *,
        host: str = "127.0.0.1",
        receive_buffer: int | None = None,
    ) -> None:
        """``receive_buffer``, in bytes, bounds what the kernel takes in for a script."""
        self._script = script
        self.accepts = 0
        self._errors: list[BaseException] = []
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.bind((host, 0))
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self._group = Group()
        self._group.spawn(self._accept)

    def __enter__(self) -> "TcpPeer":
        return self

    def __exit__(self, *exc: object) -> None:
        self._group.kill()
        self._listener.close()
        if self._errors and exc[0] is None:
            raise self._errors[0]

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            self.accepts += 1
            self._group.spawn(self._serve, sock)

    def _serve(self, sock: Any) -> None:
        try:
            self._script(sock)
        except gevent.GreenletExit:
            raise
        except (SSL.Error, EOFError, OSError):
            pass  # the client has gone; the test sees what came of it
        except BaseException as error:  # noqa: BLE001 - raised again when the peer ends
            self._errors.append(error)
        finally:
            sock.close()


def accept_tls(sock: Any, context: SSL.Context) -> Session:
    """A session on ``sock``, its handshake still to be done."""
    connection = SSL.Connection(context, None)
    connection.set_accept_state()
    return Session(sock, connection, 1)


def refuse_handshake(sock: Any, context: SSL.Context) -> None:
    """Read the ClientHello of a client that ``context`` cannot serve, and send its alert."""
    connection = SSL.Connection(context, None)
    connection.set_accept_state()
    connection.bio_write(sock.recv(1 << 14))
    try:
        connection.do_handshake()
    except (SSL.Error, HandshakeRefused):
        sock.sendall(connection.bio_read(1 << 14))
    else:
        raise AssertionError("the handshake was not refused")


class HandshakeRefused(Exception):
    """Raised in a callback of pyOpenSSL's, it makes OpenSSL end the handshake with an alert."""
