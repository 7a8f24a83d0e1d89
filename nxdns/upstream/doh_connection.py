"""urllib3's pool and connection on gevent sockets, with every failure stamped with its phase.

Nothing is monkey-patched: the sockets and the TLS context are gevent's own, so each wait of
http.client is a wait of gevent's. (``gevent.ssl.create_default_context`` would build the standard
library's context and block the hub.)
"""

from time import monotonic, monotonic_ns
from typing import Any, cast

from gevent import Timeout, ssl
from urllib3 import BaseHTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPSConnection

from nxdns.platform.resolver import Resolver
from nxdns.platform.sockets import dial
from nxdns.upstream.blame import map_local
from nxdns.upstream.doh_response import MAX_RESPONSE_BYTES, MalformedResponse, StrictResponse
from nxdns.upstream.exchange import DIAL, FIRST_BYTE, REST, SEND, TLS
from nxdns.upstream.transport import Endpoint, ExchangeInfo, FaultKind, SessionStats

ALPN_HTTP1 = "http/1.1"  # RFC 7301; all that urllib3 speaks
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
        """Close the connection; back in the pool it is an empty place. Never waits."""
        if self.response is not None:
            self.response.close()  # its file holds the socket open, too
        if self.connection is not None:
            self.connection.close()


class DohConnection(HTTPSConnection):
    """Dials the endpoint's own host, whatever the URL or the Host header say."""

    response_class = StrictResponse
    posting: Posting
    tls_version = ""
    opened_at = 0

    def __init__(
        self,
        *args: Any,
        endpoint: Endpoint,
        verify_name: str,
        context: Any,
        resolver: Resolver,
        stats: SessionStats,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._endpoint = endpoint
        self._verify_name = verify_name
        self._context = context
        self._resolver = resolver
        self._stats = stats

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

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send; urllib3 would pass over a broken pipe here and look for a response."""
        self.posting.sock = sock = cast(CountingSocket, self.sock)
        sock.received = 0
        self.posting.info.phase = SEND
        started = monotonic_ns()
        try:
            super().request(*args, **kwargs)
        except Exception as exc:
            raise PhaseFailed(FaultKind.SEND_FAILED) from exc
        self.posting.info.send_ns = monotonic_ns() - started
        self.posting.info.phase = FIRST_BYTE

    def getresponse(self) -> Any:
        """The head of the response."""
        started = monotonic_ns()
        try:
            response = super().getresponse()
        except Exception as exc:
            raise PhaseFailed(FaultKind.RECEIVE_FAILED) from exc
        self.posting.info.first_byte_ns = monotonic_ns() - started
        self.posting.info.phase = REST
        return response


class DohPool(HTTPSConnectionPool):
    """The connections of one endpoint, the most recently used one first."""

    ConnectionCls = DohConnection
    _next: Posting | None = None

    def post(self, posting: Posting, path: str, headers: dict[str, str], body: bytes) -> Any:
        """Send ``body``; the response with its body still to be read.

        Raises PhaseFailed, or what urllib3 raises for a head that it cannot read.
        """
        # urlopen asks for its connection before it first waits, so nobody can come in between.
        self._next = posting
        posting.response = self.urlopen(
            "POST",
            path,
            body=body,
            headers=headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            preload_content=False,
            decode_content=False,
        )
        return posting.response

    def _get_conn(self, timeout: float | None = None) -> Any:
        connection = cast(DohConnection, super()._get_conn(timeout))
        posting = cast(Posting, self._next)
        self._next = None
        if posting.fresh:
            connection.close()  # urllib3 dials anew with a connection that it finds closed
        posting.info.begin(reused=True, tls_version=connection.tls_version)
        posting.info.opened_at = connection.opened_at
        posting.connection = connection
        connection.posting = posting
        return connection
