"""``nxdns serve``: run the forwarder in the foreground."""

import argparse
import logging
import os
import signal

import gevent
from gevent.event import Event

from nxdns import logs
from nxdns.app import App
from nxdns.cli import config_file
from nxdns.units import MS_PER_SECOND

_log = logging.getLogger(__name__)


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "serve",
        help="run the forwarder in the foreground",
        description="Run the forwarder in the foreground. SIGTERM and SIGINT let the queries in "
        "flight be answered and end it; a second one ends it at once.",
        epilog="example: nxdns serve --config /etc/nxdns/nxdns.toml",
    )
    config_file.add_option(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = config_file.load_from(options)
    logs.configure(config.log.level, config.log.format)
    app = App(config)
    ending = stop_on_signals()
    app.start()
    announce(app)
    ending.wait()
    if app.in_flight:
        limit_seconds = config.total_ms / MS_PER_SECOND
        _log.info(
            "stopping: %d in flight, at most %g s; again to stop at once",
            app.in_flight,
            limit_seconds,
        )
    app.stop()
    return 0


def announce(app: App) -> None:
    """What is served, on stdout: whoever started this waits for these lines."""
    named = (
        upstream.url if upstream.label == upstream.url else f"{upstream.label} {upstream.url}"
        for upstream in app.snapshot()
        if upstream.enabled
    )
    lines = [f"listening {listener.bound} udp+tcp" for listener in app.listeners]
    lines.append(f"upstreams {', '.join(named)}")
    try:
        for line in lines:
            print(line, flush=True)
    except OSError as exc:
        # A full disk behind stdout is no reason to leave a household without DNS.
        _log.warning("cannot write to standard output: %s", exc.strerror)


def stop_on_signals() -> Event:
    """An event that the first SIGTERM or SIGINT sets; the second ends the process at once."""
    ending = Event()

    def stop(number: int) -> None:
        if ending.is_set():
            os._exit(128 + number)
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop, number)
    return ending
