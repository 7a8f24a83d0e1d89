"""``nxdns burst``: the field test anyone can run."""

import argparse
import json
import secrets
import shutil
import sys
import time
from typing import Any

import dns.message
import dns.rcode
import gevent
from dns.rcode import Rcode
from gevent import Timeout, socket

from nxdns.cli.arguments import whole_number
from nxdns.cli.burst_report import Answer, Burst
from nxdns.dns.packet import Packet
from nxdns.platform.address import ListenAddress, parse_listen_address
from nxdns.platform.sockets import socket_address
from nxdns.upstream.transport import validate_response
from nxdns.upstreams import StartError

LOST_SECONDS = 6.0  # a second more than stub resolvers wait (resolv.conf(5)), to see late answers
MOST_QUERIES = 500  # a socket each: well below the usual limit of 1024 descriptors
_DATAGRAM = 65535


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "burst",
        help="ask many unique names at once and show how they were answered",
        description="Ask for unique names under example.com at once, over UDP, and draw how long "
        "each took. Exit status 1 when one was lost or answered with SERVFAIL.",
        epilog="example: nxdns burst --server 127.0.0.1:5300 -n 30 --repeat 2",
    )
    verb.add_argument(
        "--server",
        type=_server,
        default="127.0.0.1:5300",
        metavar="HOST:PORT",
        help="an address, default 127.0.0.1:5300",
    )
    number = whole_number(1, MOST_QUERIES)
    verb.add_argument("-n", type=number, default=30, help="names at once, default 30")
    verb.add_argument("--repeat", type=number, default=2, help="bursts, default 2")
    verb.add_argument("--json", action="store_true", help="print JSON, with every query in it")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    bursts = [ask(options.server, options.n) for _ in range(options.repeat)]
    if options.json:
        print(json.dumps({"bursts": [burst.as_json() for burst in bursts]}))
    else:
        for burst in bursts:
            show(burst)
    if all(burst.refused for burst in bursts):
        raise StartError(f"nobody listens on {options.server}")
    return 0 if all(burst.ok for burst in bursts) else 1


def ask(server: ListenAddress, number: int) -> Burst:
    """``number`` unique names at once. Raises StartError when there is no socket for one."""
    queries = [
        dns.message.make_query(f"{secrets.token_hex(6)}.example.com.", "A") for _ in range(number)
    ]
    sockets: list[Any] = []
    try:
        for _ in queries:
            family, address = socket_address(server.host, server.port)
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sockets.append(sock)
            sock.connect(address)
        started = time.monotonic()
        asking = [
            gevent.spawn(_ask_one, sock, query.to_wire(), started)
            for sock, query in zip(sockets, queries, strict=True)
        ]
        gevent.joinall(asking, raise_error=True)
        wall_ms = (time.monotonic() - started) * 1000
    except OSError as exc:
        raise StartError(f"cannot ask {server}: {exc.strerror}") from exc
    finally:
        for sock in sockets:
            sock.close()
    return Burst(tuple(greenlet.value for greenlet in asking), wall_ms)


def _ask_one(sock: Any, query: bytes, started: float) -> Answer:
    """One query; times count from the start of the burst."""
    reply: Packet | None = None
    refused = False
    with Timeout(LOST_SECONDS, False):
        try:
            sock.send(query)
            while reply is None:
                outcome = validate_response(query, sock.recv(_DATAGRAM))
                if isinstance(outcome, Packet):
                    reply = outcome
        except OSError as exc:  # nobody listens there, or a firewall objects: as lost as any
            refused = isinstance(exc, ConnectionRefusedError)
    took_ms = (time.monotonic() - started) * 1000
    if reply is None:
        return Answer(took_ms, "", refused)
    return Answer(took_ms, dns.rcode.to_text(Rcode(reply.rcode)))


def show(burst: Burst) -> None:
    """Bars, then the line with the figures."""
    for line in burst.bars(_block(), shutil.get_terminal_size().columns):
        print(line)
    print(burst.summary(), flush=True)


def _block() -> str:
    """A full block where the terminal can show one."""
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "#"
    return "█"


def _server(text: str) -> ListenAddress:
    try:
        address = parse_listen_address(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    if not address.port:
        raise argparse.ArgumentTypeError("the port must be from 1 to 65535")
    return address
