"""What is served under which path. A WSGI application; the server has checked the request."""

from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

from nxdns.snapshots import HttpSnapshot
from nxdns.web.api import Api
from nxdns.web.metrics import Metrics
from nxdns.web.source import Source

METHODS = "GET, HEAD"

SECURITY_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # A status of a minute ago is a lie; the page is small.
    ("Cache-Control", "no-store"),
)

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class _Response(NamedTuple):
    body: bytes
    content_type: str
    status: str = "200 OK"


_NOT_FOUND = _Response(b"There is nothing here.\n", _TEXT, "404 Not Found")


class Application:
    """Answers GET and HEAD."""

    def __init__(self, source: Source, troubles: Callable[[], HttpSnapshot]) -> None:
        self._api = Api(source, troubles)
        self._metrics = Metrics(source, troubles)
        self._routes: dict[str, Callable[[dict[str, Any]], _Response]] = {
            "/metrics": self._exposition,
            "/api/health": self._health,
            "/api/upstreams": lambda _: _Response(self._api.upstreams(), _JSON),
            "/api/diagnostics": lambda _: _Response(self._api.diagnostics(), _JSON),
            "/api/overview": lambda _: _Response(self._api.overview(), _JSON),
        }
        folder = resources.files("nxdns.web") / "page"
        for path, (name, content_type) in _PAGE.items():
            # Read once: the disk is no business of a request.
            file = _Response((folder / name).read_bytes(), content_type)
            self._routes[path] = lambda _, file=file: file  # type: ignore[misc]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        route = self._routes.get(environ["PATH_INFO"])
        response = _NOT_FOUND if route is None else route(environ)
        start_response(
            response.status,
            [
                *SECURITY_HEADERS,
                ("Content-Type", response.content_type),
                ("Content-Length", str(len(response.body))),
                # A connection that is kept for later is one less of the few there are.
                ("Connection", "close"),
            ],
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]

    def _health(self, _environ: dict[str, Any]) -> _Response:
        body, failing = self._api.health()
        return _Response(body, _JSON, "503 Service Unavailable" if failing else "200 OK")

    def _exposition(self, environ: dict[str, Any]) -> _Response:
        return _Response(*self._metrics.exposition(environ.get("HTTP_ACCEPT", "")))
