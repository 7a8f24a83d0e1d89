"""``nxdns serve``: run the forwarder in the foreground."""

import argparse
import logging
import os
import signal
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import gevent
from gevent.event import Event

from nxdns import logs
from nxdns.app import App
from nxdns.cli import config_file
from nxdns.config import load
from nxdns.platform.address import ListenAddress
from nxdns.platform.collector import settle
from nxdns.platform.sd_notify import notify, reloading
from nxdns.units import MS_PER_SECOND
from nxdns.web.server import WebServer

_log = logging.getLogger(__name__)


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "serve",
        help="run the forwarder in the foreground",
        description="Run the forwarder in the foreground. SIGTERM and SIGINT let the queries in "
        "flight be answered and end it; a second one ends it at once. SIGHUP reads the file again.",
        epilog="example: nxdns serve --config /etc/nxdns/nxdns.toml",
    )
    config_file.add_option(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # Before all else: without a handler, a SIGHUP that comes too early would end the process.
    wanted = _reload_on_signal()
    path = config_file.path_of(options)
    config = load(path)
    logs.configure(config.log.level, config.log.format)
    app = App(config)
    ending = stop_on_signals()
    app.on_listeners = partial(_listeners_changed, app)
    app.on_web = _web_came
    app.start()
    settle()
    announce(app)
    notify("READY=1", f"STATUS={_status(app)}")
    reloader = gevent.spawn(_reload_whenever, wanted, app, path)
    ending.wait()
    # A reload would tell systemd that it is ready again.
    reloader.kill()
    if app.in_flight:
        limit_seconds = app.config.total_ms / MS_PER_SECOND
        _log.info(
            "stopping: %d in flight, at most %g s; again to stop at once",
            app.in_flight,
            limit_seconds,
        )
    notify("STOPPING=1", "STATUS=stopping")
    app.stop()
    return 0


def _reload_on_signal() -> Event:
    """An event that SIGHUP sets."""
    wanted = Event()
    gevent.signal_handler(signal.SIGHUP, wanted.set)
    return wanted


def _reload_whenever(wanted: Event, app: App, path: Path) -> None:
    """Read the file again each time that ``wanted`` is set."""
    while True:
        wanted.wait()
        wanted.clear()
        notify(*reloading())
        # In a greenlet of its own: the hub logs what escapes it, and the next SIGHUP is obeyed.
        gevent.spawn(app.reload, lambda: load(path)).join()
        notify("READY=1", f"STATUS={_status(app)}")


def _status(app: App) -> str:
    """One line for ``systemctl status``."""
    addresses = ", ".join(str(listener.bound) for listener in app.listeners)
    upstreams = ", ".join(each.label for each in app.snapshot() if each.enabled)
    missing = ", ".join(str(each.address) for each in app.listening.awaited)
    waiting = f"; waiting for {missing}" if missing else ""
    failed = "" if app.reloads.snapshot().last_ok else "; the last reload failed"
    return f"serving {addresses}{waiting}; upstreams {upstreams}{failed}"


def announce(app: App) -> None:
    """What is served, on stdout: whoever started this waits for these lines."""
    named = (
        upstream.url if upstream.label == upstream.url else f"{upstream.label} {upstream.url}"
        for upstream in app.snapshot()
        if upstream.enabled
    )
    lines = [f"listening {listener.bound} udp+tcp" for listener in app.listeners]
    if app.web is not None:
        lines.append(_line_of(app.web))
    lines.append(f"upstreams {', '.join(named)}")
    _say(lines)


def _listeners_changed(
    app: App, opened: Sequence[ListenAddress], closed: Sequence[ListenAddress]
) -> None:
    """What was announced goes on to be true."""
    _say(
        [
            *(f"listening {address} udp+tcp" for address in opened),
            *(f"no longer listening {address}" for address in closed),
        ]
    )
    notify(f"STATUS={_status(app)}")


def _line_of(web: WebServer) -> str:
    return f"web {web.url}"


def _web_came(web: WebServer) -> None:
    _say([_line_of(web)])


def _say(lines: Iterable[str]) -> None:
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
