"""The web server."""

from typing import Any

from gevent.pywsgi import WSGIServer

from nxdns.snapshots import HttpSnapshot
from nxdns.web.metrics import Metrics
from nxdns.web.source import Source


class WebServer:
    """Serves one address."""

    def __init__(
        self, host: str, port: int, source: Source, allowed_hosts: tuple[str, ...]
    ) -> None:
        """Bind. Raises OSError."""
        self._source = source
        self._metrics = Metrics(source, lambda: HttpSnapshot(0, {}))
        self._allowed_hosts = allowed_hosts
        self._server = WSGIServer((host, port), self._answer, log=None)
        self._server.init_socket()

    @property
    def url(self) -> str:
        """Of the page, with the port that the kernel chose for 0."""
        host, port = self._server.address[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self) -> None:
        """Close."""
        self._server.stop(timeout=0)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            body, content_type = self._metrics.exposition(environ.get("HTTP_ACCEPT", ""))
            start_response("200 OK", [("Content-Type", content_type)])
            return [body]
        start_response("404 Not Found", [])
        return []
