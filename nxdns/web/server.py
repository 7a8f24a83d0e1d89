"""The web server."""

from typing import Any

from gevent.pywsgi import WSGIServer

from nxdns.web.source import Source


class WebServer:
    """Serves one address."""

    def __init__(
        self, host: str, port: int, source: Source, allowed_hosts: tuple[str, ...]
    ) -> None:
        """Bind. Raises OSError."""
        self._source = source
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
        start_response("404 Not Found", [])
        return []
