"""urllib3's connection on gevent sockets, with every failure stamped with its phase.

Nothing is monkey-patched: the sockets and the TLS context are gevent's own, so each wait of
http.client is a wait of gevent's. (``gevent.ssl.create_default_context`` would build the standard
library's context and block the hub.)
"""

from time import monotonic, monotonic_ns
from typing import Any, cast

from gevent import Timeout, ssl
from urllib3 import BaseHTTPResponse
from urllib3.connection import HTTPSConnection

from nxdns.platform.resolver import Resolver
from nxdns.platform.sockets import dial
from nxdns.upstream.blame import map_local
from nxdns.upstream.doh_response import MAX_RESPONSE_BYTES, MalformedResponse, StrictResponse
from nxdns.upstream.exchange import DIAL, FIRST_BYTE, REST, SEND, TLS
from nxdns.upstream.transport import Endpoint, ExchangeInfo, FaultKind, SessionStats

ALPN_HTTP1 = "http/1.1"  # RFC 7301; all that urllib3 speaks
#: Fields that urllib3 would otherwise work out by itself.
_NOT_ADDED = {"Host": "", "Accept-Encoding": "", "Content-Length": "", "User-Agent": ""}
_SHORTEST_PART_SECONDS = 0.05  # below it a connect would only be begun, never awaited


class CountingSocket(ssl.SSLSocket):  # type: ignore[misc]  # gevent ships no types
    """A TLS socket that knows how many bytes of plaintext have come since it was last asked."""

    received = 0

    def read(self, nbytes: int = 2014, buffer: Any = None) -> Any:
        data = super().read(nbytes, buffer)
        self.received += len(data) if buffer is None else data
        if self.received > MAX_RESPONSE_BYTES:
            raise MalformedResponse("it does not end")
        return data


def client_context(ca_file: str | None) -> Any:
    """Trust anchors and rules, as :func:`nxdns.platform.tls_client.client_context` has them.

    TLS 1.2 or newer; the name must be in the subjectAltName, the common name never counts.
    Raises ssl.SSLError or OSError when ``ca_file`` holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.load_default_certs()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols([ALPN_HTTP1])
    context.sslsocket_class = CountingSocket
    return context


def head_of(target: str, fields: dict[str, str]) -> bytes:
    """All of a POST's head but the value of its last field, which is the body's length.

    Raises ValueError for what is not printable ASCII: a line break in a field would begin another.
    """
    lines = (f"POST {target} HTTP/1.1", *map(": ".join, fields.items()), "Content-Length: ")
    if not all(line.isprintable() for line in lines):
        raise ValueError("a line of the head is not printable")
    return "\r\n".join(lines).encode("ascii")


class PhaseFailed(Exception):
    """A phase of an HTTP exchange failed; the reason is its ``__cause__``."""

    def __init__(self, kind: FaultKind) -> None:
        super().__init__(kind.value)
        self.kind = kind


class Posting:
    """One POST under way: what the connection that carries it must know, and what it reports."""

    __slots__ = ("connection", "deadline_seconds", "fresh", "info", "response", "sock")

    def __init__(self, info: ExchangeInfo, deadline_seconds: float, *, fresh: bool) -> None:
        self.info = info
        #: When the attempt ends, on the monotonic clock.
        self.deadline_seconds = deadline_seconds
        #: Whether it must dial, whatever the pool has open.
        self.fresh = fresh
        self.connection: DohConnection | None = None
        self.sock: CountingSocket | None = None
        self.response: BaseHTTPResponse | None = None

    @property
    def received(self) -> int:
        """Bytes of the response that have arrived."""
        return 0 if self.sock is None else self.sock.received

    def discard(self) -> None:
        """Close the connection, which no other exchange will see. Never waits."""
        if self.response is not None:
            self.response.close()  # its file holds the socket open, too
        if self.connection is not None:
            self.connection.close()


class DohConnection(HTTPSConnection):
    """Dials the endpoint's own host, whatever the Host header says."""

    response_class = StrictResponse
    posting: Posting
    tls_version = ""
    opened_at = 0

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        verify_name: str,
        context: Any,
        resolver: Resolver,
        stats: SessionStats,
        head: bytes,
    ) -> None:
        # The host is what urllib3 would look up. The attempt's gevent.Timeout bounds every wait.
        super().__init__("upstream.invalid", timeout=None)
        self._endpoint = endpoint
        self._verify_name = verify_name
        self._context = context
        self._resolver = resolver
        self._stats = stats
        self._head = head

    def connect(self) -> None:
        """Dial, complete the handshake and verify; no half-built connection survives.

        A name's addresses are tried in their order, each with an equal part of the time. Raises
        PhaseFailed of the last one.
        """
        self.posting.info.begin(reused=False, tls_version="")
        self._stats.dials += 1
        began = monotonic_ns()
        if self._endpoint.is_literal:
            self._connect_to(self._endpoint.host, None, began)
            return
        addresses = self._lookup()
        while addresses:
            part_seconds = (self.posting.deadline_seconds - monotonic()) / len(addresses)
            try:
                self._connect_to(addresses.pop(0), max(part_seconds, _SHORTEST_PART_SECONDS), began)
            except PhaseFailed as failed:
                # Whoever has no descriptor for one address has none for the next.
                if not addresses or map_local(cast(Exception, failed.__cause__)) is not None:
                    raise
            else:
                return

    def _lookup(self) -> list[str]:
        try:
            return self._resolver.lookup(self._endpoint.host, self._endpoint.port)
        except Exception as exc:
            raise PhaseFailed(FaultKind.CONNECT_FAILED) from exc

    def _connect_to(self, address: str, part_seconds: float | None, began: int) -> None:
        """Within ``part_seconds``; the attempt's own deadline is the bound where that is None.

        The dial has been under way since ``began``, lookup and other addresses included.
        """
        info = self.posting.info
        info.dial_ns = 0
        info.phase = DIAL
        phase = FaultKind.CONNECT_FAILED
        timer = Timeout.start_new(part_seconds)
        try:
            sock = dial(address, self._endpoint.port)
            connected = monotonic_ns()
            info.dial_ns = connected - began
            info.phase = TLS
            phase = FaultKind.TLS_FAILED
            self.sock = self._handshake(sock)
        except Timeout as expired:
            if expired is not timer:
                raise
            raise PhaseFailed(phase) from TimeoutError()
        except Exception as exc:
            raise PhaseFailed(phase) from exc
        finally:
            timer.close()
        self.opened_at = info.opened_at = monotonic_ns()
        info.tls_ns = self.opened_at - connected
        info.tls_version = self.tls_version = self.sock.version() or ""
        self.is_verified = True
        self._stats.open += 1

    def _handshake(self, sock: Any) -> Any:
        try:
            tls = self._context.wrap_socket(
                sock, server_hostname=self._verify_name, do_handshake_on_connect=False
            )
        except BaseException:
            sock.close()
            raise
        try:
            tls.do_handshake()
        except BaseException:
            tls.close()
            raise
        return tls

    def close(self) -> None:
        """Close, if it is open. Never waits."""
        if self.sock is not None:
            self._stats.open -= 1
        super().close()

    def putheader(self, header: Any, *values: Any) -> None:
        """Nothing: the fields are in the head, which was made once and not for every request."""

    def send(self, data: Any) -> None:
        """Nothing: :meth:`post` sends head and body, so that they leave as one TLS record."""

    def post(self, posting: Posting, body: bytes) -> BaseHTTPResponse:
        """Send ``body``, having dialled if need be; the response with its body still to be read.

        Raises PhaseFailed.
        """
        info = posting.info
        self.posting = posting
        if self.is_connected:
            info.begin(reused=True, tls_version=self.tls_version)
            info.opened_at = self.opened_at
        else:
            self.close()  # the peer may have hung up
            self.connect()
        posting.sock = sock = cast(CountingSocket, self.sock)
        sock.received = 0
        info.phase = SEND
        started = monotonic_ns()
        try:
            # For the connection's state; see putheader and send for what becomes of its bytes.
            self.request(
                "POST", "/", headers=_NOT_ADDED, preload_content=False, decode_content=False
            )
            super().send(b"%s%d\r\n\r\n%s" % (self._head, len(body), body))
        except Exception as exc:
            raise PhaseFailed(FaultKind.SEND_FAILED) from exc
        sent = monotonic_ns()
        info.send_ns = sent - started
        info.phase = FIRST_BYTE
        try:
            posting.response = response = self.getresponse()
        except Exception as exc:
            raise PhaseFailed(FaultKind.RECEIVE_FAILED) from exc
        info.first_byte_ns = monotonic_ns() - sent
        info.phase = REST
        return response


class DohPool:
    """The connections of one endpoint that no exchange uses, the most recently used one last.

    urllib3's pool can more (proxies, redirects, retries), which costs a tenth of a whole query.
    """

    def __init__(self, size: int, **connection: Any) -> None:
        """``connection`` is what a :class:`DohConnection` is made of."""
        self._size = size
        self._connection = connection
        self._idle: list[DohConnection] = []
        self._is_open = True

    def post(self, posting: Posting, body: bytes) -> BaseHTTPResponse:
        """See :meth:`DohConnection.post`."""
        if posting.fresh or not self._idle:
            connection = DohConnection(**self._connection)
        else:
            connection = self._idle.pop()
        posting.connection = connection
        return connection.post(posting, body)

    def put_back(self, posting: Posting) -> None:
        """Keep the connection of an exchange that has ended cleanly. Never waits."""
        connection = cast(DohConnection, posting.connection)
        if connection.is_closed:
            return  # the server has asked for it
        if self._is_open and len(self._idle) < self._size:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close idle connections now, those in use when their exchange ends. Never waits."""
        self._is_open = False
        while self._idle:
            self._idle.pop().close()
