"""nxdns as a child process, started, watched and ended as its owner would."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from gevent import Timeout, subprocess

from nxdns.platform.address import ListenAddress, parse_listen_address
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
LAUNCHER = [str(ROOT / "bin" / "nxdns")]
MODULE = ["-m", "nxdns"]

# A loaded machine may take seconds to start an interpreter; what hangs fails here, not in CI.
_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Finished:
    """What a process that has ended leaves behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        return self.stderr.splitlines()


class Child:
    """A process that runs. Its output is read all the time, so that it never waits for us."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._readers = [
            gevent.spawn(_read, process.stdout, self._out),
            gevent.spawn(_read, process.stderr, self._err),
        ]

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return b"".join(self._out).decode()

    @property
    def stderr(self) -> str:
        return b"".join(self._err).decode()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for_line(self, start: str) -> str:
        """The first line on stdout that begins with ``start``; fails when the child ends first."""

        def found() -> list[str]:
            whole = self.stdout.splitlines(keepends=True)
            return [line for line in whole if line.startswith(start) and line.endswith("\n")]

        eventually(lambda: found() or not self.running, seconds=_PATIENCE_SECONDS)
        assert found(), f"it ended without {start!r}: {self.stdout}{self.stderr}"
        return found()[0].rstrip("\n")

    def listening(self) -> ListenAddress:
        """Where its first listener is."""
        return parse_listen_address(self.wait_for_line("listening ").split()[1])

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self) -> Finished:
        """Wait until it has ended by itself."""
        with Timeout(_PATIENCE_SECONDS, AssertionError("it does not end")):
            self._process.wait()
            gevent.joinall(self._readers, raise_error=True)
        return Finished(self._process.returncode, self.stdout, self.stderr)

    def stop_reading(self) -> None:
        """Close our end of its stdout, as ``head`` does of what comes before it in a pipe."""
        self._readers[0].kill()
        self._process.stdout.close()

    def terminate(self) -> Finished:
        """End it as a service manager does."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """Let nothing of it outlive the test."""
        if self.running:
            self._process.kill()
        self._process.wait()
        gevent.joinall(self._readers)
        self._process.stdout.close()
        self._process.stderr.close()


def _read(pipe: Any, lines: list[bytes]) -> None:
    for line in pipe:
        lines.append(line)  # noqa: PERF402 - not extend: others look at the list meanwhile


@contextmanager
def child(
    *arguments: object,
    program: list[str] = LAUNCHER,
    environment: Mapping[str, str] | None = None,
    descriptors: int | None = None,
    inside: Sequence[str] = (),
) -> Iterator[Child]:
    """``nxdns ARGUMENTS``, running until the block ends at the latest.

    What it leaves open at its end is on its stderr: Python is asked to say so. ``descriptors``
    is how many it may have open at once, ``inside`` a command that runs it elsewhere.
    """
    limit = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"] if descriptors else []
    process = subprocess.Popen(
        [
            *inside,
            *limit,
            sys.executable,
            "-W",
            "always::ResourceWarning",
            *program,
            *map(str, arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**_environment(), **(environment or {})},
    )
    running = Child(process)
    try:
        yield running
    finally:
        running.close()


def run(
    *arguments: object,
    program: list[str] = LAUNCHER,
    environment: Mapping[str, str] | None = None,
    descriptors: int | None = None,
) -> Finished:
    """``nxdns ARGUMENTS`` to its end; see ``child``."""
    with child(
        *arguments, program=program, environment=environment, descriptors=descriptors
    ) as running:
        return running.wait()


def _environment() -> dict[str, str]:
    """Ours, with the package of this checkout, without what changes Python's output."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**ours, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def config_file(folder: Path, *upstreams: str, ca_file: str | None = None, extra: str = "") -> Path:
    """A configuration that listens on a free loopback port, without a web server.

    Each of ``upstreams`` is the body of an [[upstreams]] table, ``extra`` whole tables; a
    ``[server]`` among them takes the place of that port, and a ``[web]`` may have a web server.
    """
    server = "" if "[server]" in extra else '[server]\nlisten = ["127.0.0.1:0"]\n'
    tables = "".join(f"[[upstreams]]\n{body}\n" for body in upstreams)
    trust = f'[tls]\nca_file = "{ca_file}"\n' if ca_file else ""
    web = "" if "[web]" in extra else '[web]\nlisten = ""\n'
    file = folder / "nxdns.toml"
    file.write_text(f"{server}{tables}{trust}{extra}{web}", encoding="utf-8")
    return file
