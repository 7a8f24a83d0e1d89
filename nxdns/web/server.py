"""The web server: gevent's, behind bounds that hold whatever a client does.

gevent's reads a head, and sends a response, for as long as a client likes, holds clients that it
has no place for, and reports a timeout as a bug. So a head is read and checked here, within its
bounds, before gevent's parser sees it; a response is made and sent within its own; a connection
carries one request; and one too many is closed at once, and counted.
"""

import errno
import io
import logging
from contextlib import suppress
from typing import Any

import gevent
from gevent import Timeout, socket
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from nxdns.logs.bugs import log_bug_once
from nxdns.logs.rarely import Rarely
from nxdns.snapshots import HttpSnapshot
from nxdns.web import head
from nxdns.web.application import METHODS, SECURITY_HEADERS, Application
from nxdns.web.source import Source
from nxdns.web.troubles import Reason, Troubles

_log = logging.getLogger(__name__)

# A few browsers with their six connections each, and Prometheus.
MAX_CONNECTIONS = 32
HEAD_SECONDS = 10.0
RESPONSE_SECONDS = 15.0

# So that the kernel does not throw a refusal away, together with what the client went on to send.
_LINGER_SECONDS = 1.0
_BACKLOG = 128
_READ_BYTES = 8192
_KILL_SECONDS = 1.0
# What accept reports when there is nothing to accept with; to try again at once would spin.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_PAUSE_SECONDS = 0.1

_REFUSALS = {
    Reason.BAD_HOST: (
        "400 Bad Request",
        "This name is not one of this server's. Use its address, or add the name to allowed_hosts "
        "under [web] in the configuration of nxdns.",
    ),
    Reason.BAD_HEAD: ("400 Bad Request", "This is not a request that is answered here."),
    Reason.HEAD_TOO_LARGE: (
        "431 Request Header Fields Too Large",
        f"The head of a request may have {head.MAX_HEAD_BYTES} bytes.",
    ),
    Reason.HEAD_TIMEOUT: ("408 Request Timeout", "The request took too long."),
    Reason.BAD_METHOD: ("405 Method Not Allowed", f"Only {METHODS} are answered here."),
    Reason.BODY: ("413 Content Too Large", "A request may not have a body."),
    Reason.INTERNAL: ("500 Internal Server Error", "The log of nxdns tells what went wrong."),
}


class _Refused(Exception):
    """The client gets a refusal, or nothing."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class WebServer:
    """Serves one address."""

    def __init__(
        self,
        host: str,
        port: int,
        source: Source,
        allowed_hosts: tuple[str, ...],
        *,
        head_seconds: float = HEAD_SECONDS,
        response_seconds: float = RESPONSE_SECONDS,
    ) -> None:
        """Bind. Raises OSError."""
        self._troubles = Troubles()
        self._server = _Server(
            _listen(host, port),
            Application(source, self._troubles.snapshot),
            self._troubles,
            frozenset(name.lower().removesuffix(".") for name in allowed_hosts),
            head_seconds=head_seconds,
            response_seconds=response_seconds,
        )

    @property
    def url(self) -> str:
        """Of the page, with the port that the kernel chose for 0."""
        host, port = self._server.address[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @property
    def troubles(self) -> HttpSnapshot:
        """What went wrong with clients so far."""
        return self._troubles.snapshot()

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self) -> None:
        """Close, and end what is under way."""
        self._server.stop(timeout=0)


class _Server(WSGIServer):  # type: ignore[misc]  # gevent ships no types
    def __init__(
        self,
        listener: Any,
        application: Application,
        troubles: Troubles,
        allowed_hosts: frozenset[str],
        *,
        head_seconds: float,
        response_seconds: float,
    ) -> None:
        self.troubles = troubles
        self.allowed_hosts = allowed_hosts
        self.head_seconds = head_seconds
        self.response_seconds = response_seconds
        self.rarely = Rarely(_log)
        self._connections = Pool(MAX_CONNECTIONS)
        super().__init__(
            listener,
            application,
            log=None,
            error_log=None,  # nothing is written to it: see _Handler
            handler_class=_Handler,
            # gevent would look this machine's name up, which may be asking ourselves.
            environ={"SERVER_NAME": "nxdns"},
        )

    def do_read(self) -> tuple[Any, ...] | None:
        """One connection for do_handle, or None. Runs in the event loop."""
        try:
            connection: tuple[Any, ...] | None = super().do_read()
        except OSError as exc:
            if exc.errno in self.fatal_errors:
                raise
            self.troubles.count(Reason.ACCEPT)
            name = errno.errorcode.get(exc.errno or 0, "unknown")
            self.rarely.warning(f"accept {name}", "web: accept failed: %s", exc)
            if exc.errno in _EXHAUSTED:
                self.stop_accepting()
                gevent.spawn_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)
            return None
        return connection

    def _resume_accepting(self) -> None:
        if self.started and not self.closed:
            self.start_accepting()

    def do_handle(self, sock: Any, client: Any) -> None:
        """Serve the connection, or close it. Runs in the event loop."""
        if self._connections.full():
            self.troubles.rejected_at_capacity += 1
            sock.close()
            self.rarely.warning(
                "capacity", "web: connections are closed: all %d are taken", MAX_CONNECTIONS
            )
            return
        self._connections.spawn(self.handle, sock, client)

    def stop(self, timeout: float | None = None) -> None:
        self.close()
        self._connections.kill(timeout=_KILL_SECONDS)
        self.rarely.close()


class _Handler(WSGIHandler):  # type: ignore[misc]  # gevent ships no types
    """One connection: one request, one response, and the end."""

    server: _Server

    def __init__(self, sock: Any, client: Any, server: _Server) -> None:
        super().__init__(sock, client, server, rfile=io.BytesIO())

    def handle(self) -> None:
        sock = self.socket
        try:
            # Head and body of a response are two sends: the second would wait for an ACK.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._answer()
        except _Refused as refused:
            self.server.troubles.count(refused.reason)
            self._tell(refused.reason)
        except OSError:
            self.server.troubles.count(Reason.CONNECTION)
        finally:
            sock.close()

    def _answer(self) -> None:
        data = self._read_head()
        if not data:
            return  # a browser's spare connection
        try:
            asked = head.parse(data)
        except head.BadHead:
            raise _Refused(Reason.BAD_HEAD) from None
        self.command = asked.method
        if not head.is_allowed_host(asked.host, self.server.allowed_hosts):
            raise _Refused(Reason.BAD_HOST)
        if asked.method not in METHODS.split(", "):
            raise _Refused(Reason.BAD_METHOD)
        if asked.has_body:
            raise _Refused(Reason.BODY)
        # gevent's parser has it all now, and can neither wait nor read further.
        self.rfile = io.BytesIO(data)
        self.handle_one_request()

    def _read_head(self) -> bytes:
        """The head, or b"" when the client leaves without a word. Raises _Refused, OSError."""
        data = bytearray()
        timer = Timeout.start_new(self.server.head_seconds)
        try:
            while (end := data.find(head.END)) < 0:
                if len(data) >= head.MAX_HEAD_BYTES:
                    raise _Refused(Reason.HEAD_TOO_LARGE)
                piece = self.socket.recv(_READ_BYTES)
                if not piece:
                    if data:
                        raise _Refused(Reason.BAD_HEAD)
                    return b""
                data += piece
        except Timeout as expired:
            if expired is not timer:
                raise
            raise _Refused(Reason.HEAD_TIMEOUT) from None
        finally:
            timer.close()
        if end + len(head.END) > head.MAX_HEAD_BYTES:
            raise _Refused(Reason.HEAD_TOO_LARGE)
        return bytes(data[: end + len(head.END)])

    def handle_one_response(self) -> None:
        """Make the response and send it, within its time; gevent's would report that as a bug."""
        self.close_connection = True
        timer = Timeout.start_new(self.server.response_seconds)
        try:
            self.run_application()
        except Timeout as expired:
            if expired is not timer:
                raise
            # Whatever has been sent of it, its length tells the client that it is not whole.
            self.server.troubles.count(Reason.RESPONSE_TIMEOUT)
        except OSError:
            self.server.troubles.count(Reason.CONNECTION)
        except Exception as exc:  # noqa: BLE001 - logged, and the client is told
            log_bug_once(_log, exc)
            if self.headers_sent:
                self.server.troubles.count(Reason.INTERNAL)
            else:
                raise _Refused(Reason.INTERNAL) from None
        finally:
            timer.close()

    def _handle_client_error(self, ex: BaseException) -> tuple[str, bytes]:
        """gevent's parser has found what ours has not; its own handler may print a traceback."""
        raise _Refused(Reason.BAD_HEAD) from ex

    def _tell(self, reason: Reason) -> None:
        """Send a refusal, and wait a moment for the client to have read it."""
        if reason is Reason.BAD_HOST:
            self.server.rarely.warning(
                "host", "web: a request under a name that is not in allowed_hosts was refused"
            )
        status, text = _REFUSALS[reason]
        fields = [
            *SECURITY_HEADERS,
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(text) + 1)),
            ("Connection", "close"),
        ]
        if reason is Reason.BAD_METHOD:
            fields.append(("Allow", METHODS))
        body = "" if self.command == "HEAD" else f"{text}\n"
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields), "", body]
        with Timeout(_LINGER_SECONDS, False), suppress(OSError):  # it may have left
            self.socket.sendall("\r\n".join(lines).encode("ascii"))
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(_READ_BYTES):
                pass


def _listen(host: str, port: int) -> Any:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the connections of the process before it to be forgotten.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(0)
    except BaseException:
        sock.close()
        raise
    return sock
