"""The resolvers that people have, asking the real process: each must get what the upstream said.

What one of them needs and does not find skips its tests, or fails them where
NXDNS_CLIENTS_REQUIRED is set.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
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
from tests.support.namespaces import Network, network
from tests.support.process import child, config_file
from tests.support.tls_peer import TlsPeer, answer_all

pytestmark = pytest.mark.integration

_REQUIRED = "NXDNS_CLIENTS_REQUIRED"
_PATIENCE_SECONDS = 20

# What there is upstream. An answer of _MANY is of more than 3 kB in either family: no client
# takes it in a datagram unless it is told to.
_HOST, _MANY, _TEXT, _UNKNOWN = "host.test", "many.test", "text.test", "unknown.test"
_IPV4 = {_HOST: {"192.0.2.1"}, _MANY: {f"198.51.100.{n}" for n in range(1, 221)}}
_IPV6 = {_HOST: {"2001:db8::1"}, _MANY: {f"2001:db8:1::{n:x}" for n in range(1, 221)}}
_STRINGS = [f"{n:04}" + "x" * 246 for n in range(12)]  # 3 kB
_SOA = "ns.test. hostmaster.test. 1 3600 600 86400 60"


def _upstream(query: bytes) -> bytes:
    asked = dns.message.from_wire(query)
    [question] = asked.question
    name = question.name.to_text(omit_final_dot=True).lower()
    reply = dns.message.make_response(asked, recursion_available=True)
    known = {
        dns.rdatatype.A: _IPV4.get(name, set()),
        dns.rdatatype.AAAA: _IPV6.get(name, set()),
        dns.rdatatype.TXT: {" ".join(f'"{each}"' for each in _STRINGS)} if name == _TEXT else set(),
    }
    if rdatas := known.get(question.rdtype):
        reply.answer.append(
            dns.rrset.from_text(question.name, 300, "IN", question.rdtype, *sorted(rdatas))
        )
    else:
        if name not in (_HOST, _MANY, _TEXT):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        reply.authority.append(dns.rrset.from_text("test.", 60, "IN", "SOA", _SOA))
    return reply.to_wire(max_size=65535)


def _cannot(why: str) -> NoReturn:
    if os.environ.get(_REQUIRED):
        pytest.fail(why)
    pytest.skip(why)


class Served:
    """nxdns as a process, and how commands and sockets come to where it is."""

    def __init__(self, port: int, web: str, where: Network | None, inside: list[str]) -> None:
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
            timeout=_PATIENCE_SECONDS,
        )

    def counted(self) -> dict[str, float]:
        """Answers that were too long for a datagram, and messages that came over TCP."""
        host, _, port = self._web.removeprefix("http://").strip("/").rpartition(":")
        # A socket stays in the network that it was made in.
        with self._where.entered() if self._where else nullcontext():
            sock = socket.socket()
        body = b""
        with Timeout(_PATIENCE_SECONDS), sock:
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
def _serving(
    folder: Path, authority: Authority, certificate: Issued, listen: str, where: Network | None
) -> Iterator[Served]:
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
        yield Served(port, web, where, [*inside, *(_as_resolver(folder) if where else [])])


def _as_resolver(folder: Path) -> list[str]:
    """Before a command: the resolver of its C library knows DNS alone, and there us alone."""
    resolv, switch = folder / "resolv.conf", folder / "nsswitch.conf"
    resolv.write_text(
        f"nameserver 127.0.0.1\noptions timeout:{_PATIENCE_SECONDS} attempts:1\n", encoding="ascii"
    )
    switch.write_text("hosts: dns\n", encoding="ascii")
    script = (
        f"mount --bind {resolv} /etc/resolv.conf || exit 99; "
        f"[ ! -e /etc/nsswitch.conf ] || mount --bind {switch} /etc/nsswitch.conf || exit 99; "
        'exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


@pytest.fixture(scope="module")
def on_any_port(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, certificate: Issued
) -> Iterator[Served]:
    """For clients that can be told where to ask."""
    folder = tmp_path_factory.mktemp("any-port")
    with _serving(folder, authority, certificate, "127.0.0.1:0", None) as served:
        yield served


@pytest.fixture(scope="module")
def as_resolver(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, certificate: Issued
) -> Iterator[Served]:
    """For clients that ask where the system's resolv.conf says, on port 53."""
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            _cannot(f"there is no {program}; Debian has it")
    folder = tmp_path_factory.mktemp("resolver")
    with ExitStack() as namespace:
        try:
            where = namespace.enter_context(network())
        except pytest.skip.Exception as skipped:
            _cannot(str(skipped))
        served = namespace.enter_context(
            _serving(folder, authority, certificate, "127.0.0.1:53", where)
        )
        tried = served.run("true")
        if tried.returncode:
            _cannot(f"no mounts here: {tried.stderr}")
        yield served


@dataclass(frozen=True)
class Client:
    """One resolver. A lookup of it fails the test when the resolver says that it failed."""

    program: str
    where: str
    """The fixture that it asks."""
    addresses: Callable[[Served, str], set[str]]
    """Of both families."""
    is_unknown: Callable[[Served, str], bool]
    """Whether it says that there is no such name."""
    text: Callable[[Served, str, int | None], list[str]] | None = None
    """The strings of a TXT record, with a payload size if it can state one; stubs have no such."""

    def served(self, request: pytest.FixtureRequest) -> Served:
        if shutil.which(self.program) is None:
            _cannot(f"there is no {self.program}; Debian has it")
        served: Served = request.getfixturevalue(self.where)
        return served


def _output(done: Any) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def _lines(text: str) -> list[str]:
    # What a tool remarks on its way, such as that it retries over TCP, is a comment.
    return [line for line in text.splitlines() if line and not line.startswith(";")]


def _strings(text: str) -> list[str]:
    return re.findall(r'"([^"]*)"', "".join(_lines(text)))


def _dig(program: str, *options: str) -> Client:
    """dig, or what is used like it."""

    def ask(served: Served, *words: str) -> str:
        command = [program, "@127.0.0.1", "-p", str(served.port), *options]
        return _output(served.run(*command, *words))

    def addresses(served: Served, name: str) -> set[str]:
        return {
            line for kind in ("A", "AAAA") for line in _lines(ask(served, "+short", name, kind))
        }

    def is_unknown(served: Served, name: str) -> bool:
        return all("status: NXDOMAIN" in ask(served, name, kind) for kind in ("A", "AAAA"))

    def text(served: Served, name: str, payload: int | None) -> list[str]:
        sized = [f"+bufsize={payload}"] if payload else []
        return _strings(ask(served, "+short", *sized, name, "TXT"))

    return Client(program, "on_any_port", addresses, is_unknown, text)


def _drill() -> Client:
    def ask(served: Served, *words: str) -> str:
        # -a: without it, a truncated answer is shown as it is.
        return _output(served.run("drill", "-a", "-p", str(served.port), "@127.0.0.1", *words))

    def addresses(served: Served, name: str) -> set[str]:
        return {line for kind in ("A", "AAAA") for line in _lines(ask(served, "-Q", name, kind))}

    def is_unknown(served: Served, name: str) -> bool:
        return all("rcode: NXDOMAIN" in ask(served, name, kind) for kind in ("A", "AAAA"))

    def text(served: Served, name: str, payload: int | None) -> list[str]:
        sized = ["-b", str(payload)] if payload else []
        return _strings(ask(served, "-Q", *sized, name, "TXT"))

    return Client("drill", "on_any_port", addresses, is_unknown, text)


_NODE = """
const { Resolver } = require("dns").promises;
const [port, name, ...kinds] = process.argv.slice(1);
const resolver = new Resolver({ timeout: 20000, tries: 1 });
resolver.setServers([`127.0.0.1:${port}`]);
Promise.all(kinds.map((kind) => resolver.resolve(name, kind).catch((error) => error.code)))
  .then((answers) => console.log(JSON.stringify(answers)));
"""


def _node() -> Client:
    def ask(served: Served, name: str, *kinds: str) -> list[Any]:
        told = _output(served.run("node", "-e", _NODE, str(served.port), name, *kinds))
        answers: list[Any] = json.loads(told)
        return answers

    def addresses(served: Served, name: str) -> set[str]:
        ipv4, ipv6 = ask(served, name, "A", "AAAA")
        assert isinstance(ipv4, list), ipv4
        assert isinstance(ipv6, list), ipv6
        return {*ipv4, *ipv6}

    def is_unknown(served: Served, name: str) -> bool:
        return ask(served, name, "A", "AAAA") == ["ENOTFOUND", "ENOTFOUND"]

    def text(served: Served, name: str, payload: int | None) -> list[str]:
        assert payload is None, "it cannot be told"
        [[strings]] = ask(served, name, "TXT")
        return list(strings)

    return Client("node", "on_any_port", addresses, is_unknown, text)


def _getent() -> Client:
    def addresses(served: Served, name: str) -> set[str]:
        return {
            line.split()[0]
            for line in _output(served.run("getent", "ahosts", name)).split("\n")
            if line
        }

    def is_unknown(served: Served, name: str) -> bool:
        return bool(served.run("getent", "ahosts", name).returncode == 2)  # not found

    return Client("getent", "as_resolver", addresses, is_unknown)


_PYTHON = """
import socket, sys
try:
    found = socket.getaddrinfo(sys.argv[1], None)
except socket.gaierror as error:
    print("unknown" if error.errno == socket.EAI_NONAME else error)
else:
    print(*(address[0] for *_, address in found), sep="\\n")
"""


def _python() -> Client:
    def ask(served: Served, name: str) -> list[str]:
        return _output(served.run(sys.executable, "-S", "-c", _PYTHON, name)).splitlines()

    def addresses(served: Served, name: str) -> set[str]:
        return set(ask(served, name))

    def is_unknown(served: Served, name: str) -> bool:
        return ask(served, name) == ["unknown"]

    return Client(sys.executable, "as_resolver", addresses, is_unknown)


_CLIENTS = {
    "dig": _dig("dig", "+tries=1", f"+timeout={_PATIENCE_SECONDS}"),
    "kdig": _dig("kdig", "+retry=0", f"+timeout={_PATIENCE_SECONDS}"),
    "drill": _drill(),
    "glibc": _getent(),
    "Python": _python(),
    "Node": _node(),
}
_EVERY = pytest.mark.parametrize("client", _CLIENTS.values(), ids=list(_CLIENTS))


def _only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", [_CLIENTS[each] for each in names], ids=list(names))


@_EVERY
def test_a_client_gets_the_addresses_of_both_families(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    with served.over_udp():
        assert client.addresses(served, _HOST) == _IPV4[_HOST] | _IPV6[_HOST]


@_EVERY
def test_a_client_comes_again_over_tcp_for_more_than_it_takes_in_a_datagram(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    with served.over_tcp():
        assert client.addresses(served, _MANY) == _IPV4[_MANY] | _IPV6[_MANY]


@_only("dig", "kdig", "drill", "Node")
def test_a_client_gets_a_text_of_3_kb_whole(client: Client, request: pytest.FixtureRequest) -> None:
    served = client.served(request)
    assert client.text
    # drill would ask for 4096 octets before it tries TCP; Node takes what it always does.
    payload = None if client is _CLIENTS["Node"] else 1232
    with served.over_tcp():
        assert client.text(served, _TEXT, payload) == _STRINGS


@_only("dig", "kdig", "drill")
def test_a_client_that_takes_4096_octets_gets_3_kb_in_one_datagram(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    assert client.text
    with served.over_udp():
        assert client.text(served, _TEXT, 4096) == _STRINGS


@_EVERY
def test_a_client_is_told_that_there_is_no_such_name(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    assert client.is_unknown(served, _UNKNOWN)
    assert not client.is_unknown(served, _HOST)
