"""``nxdns demo``: all of it on this machine, with no network."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import gevent
from gevent import Timeout, socket

from nxdns import logs
from nxdns.app import App
from nxdns.cli import burst
from nxdns.cli.arguments import whole_number
from nxdns.cli.demo_authority import issue
from nxdns.cli.serve import announce, stop_on_signals
from nxdns.config import load
from nxdns.platform.tls_server import LoopbackUpstream, server_context

_NAME = "dot.demo.test"
_NAMES_AT_ONCE = 30  # what a phone asks for when it wakes up
_BURSTS = ("cold", "warm")
_LONGEST_LATENCY_MS = 1000
_SCRAPE_SECONDS = 5.0

# Whether queries had to wait, and whether sessions churn.
_SERIES = (
    "nxdns_upstream_in_flight",
    "nxdns_upstream_slots",
    "nxdns_upstream_queued_total",
    "nxdns_upstream_queued_seconds_total",
    "nxdns_upstream_reuse_recoveries_total",
)

_CONFIG = """
[server]
listen = ["127.0.0.1:0"]
[[upstreams]]
name = "demo"
url = "tls://127.0.0.1:{port}"
tls_name = "{name}"
[tls]
ca_file = "{ca_file}"
[web]
listen = "127.0.0.1:0"
"""


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "demo",
        help="run upstream, forwarder and a burst on this machine alone",
        description="Start a DNS-over-TLS upstream on loopback with a throwaway certificate "
        "authority, the forwarder in front of it, ask for 30 names at once, twice, and show what "
        "/metrics says of it.",
        epilog="example: nxdns demo --latency 92 --keep",
    )
    verb.add_argument(
        "--latency",
        type=whole_number(0, _LONGEST_LATENCY_MS),
        default=92,
        metavar="MS",
        help="of the upstream's answers, default 92",
    )
    verb.add_argument("--keep", action="store_true", help="leave it running, for dig and a browser")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    logs.configure("warning", "text")
    # Unwinds, so that no key is left behind.
    unwind = gevent.signal_handler(signal.SIGTERM, sys.exit, 128 + signal.SIGTERM)
    with (
        tempfile.TemporaryDirectory(prefix="nxdns-demo-") as folder,
        _running(Path(folder), options.latency) as (upstream, app),
    ):
        print(f"an upstream on loopback that takes {options.latency} ms for each answer")
        announce(app)
        bound = app.listeners[0].bound
        all_ok = True
        for name in _BURSTS:
            handshakes = upstream.handshakes
            print(f"\n{_NAMES_AT_ONCE} names at once, {name}:")
            result = burst.ask(bound, _NAMES_AT_ONCE)
            burst.show(result)
            print(f"TLS handshakes: {upstream.handshakes - handshakes}")
            all_ok = all_ok and result.ok
        if app.web is not None:
            print(f"\nfrom {app.web.url}metrics:")
            for line in scrape(app.web.url):
                print(line)
        if options.keep:
            print(f"\nrunning; try: dig @{bound.host} -p {bound.port} www.example.com", flush=True)
            unwind.cancel()
            stop_on_signals().wait()
    return 0 if all_ok else 1


@contextmanager
def _running(folder: Path, latency_ms: int) -> Iterator[tuple[LoopbackUpstream, App]]:
    ca_file, chain_file, key_file = issue(folder, _NAME, "127.0.0.1")
    context = server_context(str(chain_file), str(key_file))
    upstream = LoopbackUpstream(context, latency_ms / 1000)
    upstream.start()
    try:
        file = folder / "nxdns.toml"
        file.write_text(_CONFIG.format(port=upstream.port, name=_NAME, ca_file=ca_file))
        app = App(load(file))
        app.start()
        try:
            yield upstream, app
        finally:
            app.stop()
    finally:
        upstream.stop()


def scrape(url: str) -> list[str]:
    """The five series of the upstream, as Prometheus would get them from the server at ``url``."""
    address = urlsplit(url)
    request = f"GET /metrics HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n"
    with (
        Timeout(_SCRAPE_SECONDS, TimeoutError),
        socket.create_connection((address.hostname, address.port)) as sock,
    ):
        sock.sendall(request.encode("ascii"))
        response = b"".join(iter(lambda: sock.recv(65536), b""))
    lines = response.decode().splitlines()
    return [line for name in _SERIES for line in lines if line.startswith(f"{name}{{")]
