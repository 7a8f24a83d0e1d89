"""Host names of upstreams, looked up by the system in threads of our own."""

import errno
import socket as blocking_socket  # noqa: TID251 - getaddrinfo may block: it runs in a thread
from typing import Any

from gevent import socket
from gevent.threadpool import ThreadPool

# A lookup that is stuck holds its thread until the system gives up (5 to 30 s). Four let one dead
# name wait beside three others; more would only wait for the same name servers.
RESOLVER_THREADS = 4


class Resolver:
    """Turns names into IP literals, and leaves gevent's shared pool to those who need it."""

    def __init__(self) -> None:
        self._threads: Any = ThreadPool(RESOLVER_THREADS)

    def lookup(self, host: str, port: int) -> list[str]:
        """The addresses of ``host`` in the system's order of preference, at least one.

        A kill or a gevent.Timeout leaves the lookup to end by itself in its thread. Raises
        socket.gaierror, or OSError when this process has no descriptor left to look up with.
        """
        try:
            found = self._threads.apply(_getaddrinfo, (host, port))
        except RuntimeError as exc:
            raise OSError(errno.ENOMEM, "no thread can be started for a lookup") from exc
        if isinstance(found, socket.gaierror):
            _raise_if_out_of_descriptors()
        if isinstance(found, OSError):
            raise found
        return list(dict.fromkeys(_literal(address) for *_, address in found))

    def close(self) -> None:
        """Forget the threads; idle ones end, stuck ones end with their lookup. Never waits."""
        self._threads.maxsize = 0


def _getaddrinfo(host: str, port: int) -> Any:
    """What it raises is returned: gevent's pool reports a task that raises as an error of ours."""
    try:
        return blocking_socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as exc:
        return exc


def _literal(address: tuple[Any, ...]) -> str:
    return str(address[0])


def _raise_if_out_of_descriptors() -> None:
    """getaddrinfo reports EMFILE as "temporary failure"; a socket of ours tells the truth."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
