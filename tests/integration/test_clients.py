"""The resolvers that people have, asking the real process: each must get what the upstream said.

What one of them needs and does not find skips its tests, or fails them where
NXDNS_CLIENTS_REQUIRED is set. systemd-resolved is in test_client_resolved.py.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.authority import Authority, Issued
from tests.support.namespaces import network
from tests.support.served import (
    HOST,
    IPV4,
    IPV6,
    MANY,
    PATIENCE_SECONDS,
    STRINGS,
    TEXT,
    UNKNOWN,
    Served,
    cannot,
    serving,
)

pytestmark = pytest.mark.integration


def _as_resolver(folder: Path) -> list[str]:
    """Before a command: the resolver of its C library knows DNS alone, and there us alone."""
    resolv, switch = folder / "resolv.conf", folder / "nsswitch.conf"
    resolv.write_text(
        f"nameserver 127.0.0.1\noptions timeout:{PATIENCE_SECONDS} attempts:1\n", encoding="ascii"
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
    with serving(folder, authority, certificate, "127.0.0.1:0") as served:
        yield served


@pytest.fixture(scope="module")
def as_resolver(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, certificate: Issued
) -> Iterator[Served]:
    """For clients that ask where the system's resolv.conf says, on port 53."""
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            cannot(f"there is no {program}; Debian has it")
    folder = tmp_path_factory.mktemp("resolver")
    with ExitStack() as namespace:
        try:
            where = namespace.enter_context(network())
        except pytest.skip.Exception as skipped:
            cannot(str(skipped))
        served = namespace.enter_context(
            serving(folder, authority, certificate, "127.0.0.1:53", where, _as_resolver(folder))
        )
        tried = served.run("true")
        if tried.returncode:
            cannot(f"no mounts here: {tried.stderr}")
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
            cannot(f"there is no {self.program}; Debian has it")
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
    "dig": _dig("dig", "+tries=1", f"+timeout={PATIENCE_SECONDS}"),
    "kdig": _dig("kdig", "+retry=0", f"+timeout={PATIENCE_SECONDS}"),
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
        assert client.addresses(served, HOST) == IPV4[HOST] | IPV6[HOST]


@_EVERY
def test_a_client_comes_again_over_tcp_for_more_than_it_takes_in_a_datagram(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    with served.over_tcp():
        assert client.addresses(served, MANY) == IPV4[MANY] | IPV6[MANY]


@_only("dig", "kdig", "drill", "Node")
def test_a_client_gets_a_text_of_3_kb_whole(client: Client, request: pytest.FixtureRequest) -> None:
    served = client.served(request)
    assert client.text
    # drill would ask for 4096 octets before it tries TCP; Node takes what it always does.
    payload = None if client is _CLIENTS["Node"] else 1232
    with served.over_tcp():
        assert client.text(served, TEXT, payload) == STRINGS


@_only("dig", "kdig", "drill")
def test_a_client_that_takes_4096_octets_gets_3_kb_in_one_datagram(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    assert client.text
    with served.over_udp():
        assert client.text(served, TEXT, 4096) == STRINGS


@_EVERY
def test_a_client_is_told_that_there_is_no_such_name(
    client: Client, request: pytest.FixtureRequest
) -> None:
    served = client.served(request)
    assert client.is_unknown(served, UNKNOWN)
    assert not client.is_unknown(served, HOST)
