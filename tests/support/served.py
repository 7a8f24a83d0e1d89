"""nxdns as a process for clients of all kinds, and what its upstream tells them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from gevent import Timeout, socket, subprocess

from tests.support.authority import NAME, Authority, Issued
from tests.support.exposition import Scrape
from tests.support.namespaces import Network
from tests.support.process import child, config_file
from tests.support.tls_peer import TlsPeer, answer_all

PATIENCE_SECONDS = 20

_REQUIRED = "NXDNS_CLIENTS_REQUIRED"

# What there is upstream. An answer of MANY is of more than 3 kB in either family: no client
# takes it in a datagram unless it is told to.
HOST, MANY, TEXT, UNKNOWN = "host.test", "many.test", "text.test", "unknown.test"
FAILING = "failing.test"  # SERVFAIL
IPV4 = {HOST: {"192.0.2.1"}, MANY: {f"198.51.100.{n}" for n in range(1, 221)}}
IPV6 = {HOST: {"2001:db8::1"}, MANY: {f"2001:db8:1::{n:x}" for n in range(1, 221)}}
STRINGS = [f"{n:04}" + "x" * 246 for n in range(12)]  # 3 kB
_SOA = "ns.test. hostmaster.test. 1 3600 600 86400 60"


def _upstream(query: bytes) -> bytes:
    asked = dns.message.from_wire(query)
    [question] = asked.question
    name = question.name.to_text(omit_final_dot=True).lower()
    reply = dns.message.make_response(asked, recursion_available=True)
    known = {
        dns.rdatatype.A: IPV4.get(name, set()),
        dns.rdatatype.AAAA: IPV6.get(name, set()),
        dns.rdatatype.TXT: {" ".join(f'"{each}"' for each in STRINGS)} if name == TEXT else set(),
    }
    if rdatas := known.get(question.rdtype):
        reply.answer.append(
            dns.rrset.from_text(question.name, 300, "IN", question.rdtype, *sorted(rdatas))
        )
    else:
        if name == FAILING:
            reply.set_rcode(dns.rcode.SERVFAIL)
        elif name not in (HOST, MANY, TEXT):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        reply.authority.append(dns.rrset.from_text("test.", 60, "IN", "SOA", _SOA))
    return reply.to_wire(max_size=65535)


def cannot(why: str) -> NoReturn:
    """Skip the test; or fail it, where somebody has seen to it that every client is there."""
    if os.environ.get(_REQUIRED):
        pytest.fail(why)
    pytest.skip(why)


class Served:
    """nxdns as a process, and how commands and sockets come to where it is."""

    def __init__(self, port: int, web: str, where: Network | None, inside: Sequence[str]) -> None:
        self.port = port
        self._web = web
        self._where = where
        self._inside = inside

    def run(self, *command: str) -> Any:
        """Run a client to its end; its output and status are the test's to judge."""
        return subprocess.run(
            [*self._inside, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def counted(self) -> dict[str, float]:
        """Answers that were too long for a datagram, and messages that came over TCP."""
        host, _, port = self._web.removeprefix("http://").strip("/").rpartition(":")
        # A socket stays in the network that it was made in.
        with self._where.entered() if self._where else nullcontext():
            sock = socket.socket()
        body = b""
        with Timeout(PATIENCE_SECONDS), sock:
            sock.connect((host, int(port)))
            sock.sendall(f"GET /metrics HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
            while piece := sock.recv(65536):
                body += piece
        scrape = Scrape(body.partition(b"\r\n\r\n")[2])
        return {
            "truncated": scrape.value("nxdns_handler_truncated_total"),
            "tcp": sum(scrape.by("listener", "nxdns_tcp_messages_total").values()),
        }

    @contextmanager
    def over_tcp(self) -> Iterator[None]:
        """What is asked in it is truncated at first, then asked again over TCP."""
        before = self.counted()
        yield
        after = self.counted()
        assert after["truncated"] > before["truncated"]
        assert after["tcp"] > before["tcp"]

    @contextmanager
    def over_udp(self) -> Iterator[None]:
        """What is asked in it is answered in datagrams alone."""
        before = self.counted()
        yield
        assert self.counted() == before


@contextmanager
def serving(
    folder: Path,
    authority: Authority,
    certificate: Issued,
    listen: str,
    where: Network | None = None,
    before: Sequence[str] = (),
) -> Iterator[Served]:
    """nxdns listening on ``listen``, in a network of its own if ``where`` says one.

    ``before`` is what prepares that place for a command that is run there.
    """
    inside = ["nsenter", f"--net={where.path}"] if where else []
    with ExitStack() as running:
        with where.entered() if where else nullcontext():
            peer = TlsPeer(certificate.openssl_context(), answer_all(_upstream))
        running.enter_context(peer)
        file = config_file(
            folder,
            f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"',
            ca_file=authority.ca_file,
            extra=f'[server]\nlisten = ["{listen}"]\n[web]\nlisten = "127.0.0.1:0"\n',
        )
        process = running.enter_context(child("serve", "--config", file, inside=inside))
        port = process.listening().port
        web = process.wait_for_line("web ").removeprefix("web ")
        yield Served(port, web, where, [*inside, *before])
