"""The command line: ``nxdns <verb>``.

Errors go to stderr, a line each. Exit status 2 for the command line and the configuration, 1 for
what went wrong at run time.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from nxdns import __version__
from nxdns.cli import burst, check, demo, episodes, serve, version
from nxdns.config import ConfigError
from nxdns.logs.bugs import log_hub_errors
from nxdns.upstreams import StartError

_VERBS = (serve, check, burst, demo, episodes, version)


class _Parser(argparse.ArgumentParser):
    """Errors are one line, as everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="nxdns",
        description="A DNS forwarder for a household: DNS over TLS and HTTPS upstreams, "
        "quick, safe and visible.",
        epilog="example: nxdns serve --config /etc/nxdns/nxdns.toml",
    )
    top.add_argument("--version", action="version", version=f"nxdns {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for module in _VERBS:
        module.add_to(verbs)
    return top


def main(arguments: Sequence[str]) -> int:
    """Run one verb; its exit status. Raises SystemExit for a command line that does not parse."""
    options = parser().parse_args(arguments)
    log_hub_errors()
    try:
        status: int = options.run(options)
    except ConfigError as exc:
        for problem in exc.problems:
            complain(problem)
        return 2
    except StartError as exc:
        complain(str(exc))
        return 1
    except KeyboardInterrupt:
        return 130  # what a shell makes of SIGINT: 128 + 2
    return status


def complain(line: str) -> None:
    """One line on stderr."""
    print(f"nxdns: {line}", file=sys.stderr)


def run() -> NoReturn:
    """The entry point of the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a redacted path's "…" shall not end what it was to show.
        sys.stdout.reconfigure(errors="replace")
    try:
        status = main(sys.argv[1:])
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        status = 1
    except OSError as exc:
        complain(f"cannot write to standard output: {exc.strerror}")
        _discard_output()
        status = 1
    sys.exit(status)


def _discard_output() -> None:
    """Python would try to flush what it still holds once more, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
