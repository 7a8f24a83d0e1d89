"""Addresses that this machine gets after nxdns has started, in a network of the test's own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import pytest
from gevent import Timeout, socket

from tests.support.messages import make_query
from tests.support.namespaces import ip, network
from tests.support.process import child, config_file
from tests.support.supervisor import Supervisor
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

_PATIENCE_SECONDS = 20.0
_LINK = "late0"
_LATE = ("192.0.2.7", "fd00::7", f"fe80::7%{_LINK}")
# Of the network that this thread is in.
_IPV6_OFF = Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
# Answered without an upstream.
_NOTIFY = make_query()[:2] + b"\x20\x00" + make_query()[4:]


@pytest.fixture(autouse=True)
def in_a_network_of_its_own() -> Iterator[None]:
    with network() as alone, alone.entered():
        yield


def _ask(host: str) -> int:
    """The RCODE that comes from ``host`` itself."""
    literal, _, scope = host.partition("%")
    target: tuple[Any, ...] = (literal, 53)
    if ":" in host:
        target = (literal, 53, 0, socket.if_nametoindex(scope) if scope else 0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock, Timeout(_PATIENCE_SECONDS):
        sock.sendto(_NOTIFY, target)
        reply, answering = sock.recvfrom(512)
        assert answering == target
        return int(dns.message.from_wire(reply).rcode())


def _get(path: str, host: str = "127.0.0.1") -> Any:
    name = f"[{host}]" if ":" in host else host
    with socket.create_connection((host, 8053)) as sock, Timeout(_PATIENCE_SECONDS):
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        response = b"".join(iter(lambda: sock.recv(65536), b""))
    return json.loads(response.partition(b"\r\n\r\n")[2])


def test_an_address_that_comes_after_the_start_is_listened_on_and_shown_meanwhile(
    tmp_path: Path,
) -> None:
    addresses = [f"[{host}]:53" if ":" in host else f"{host}:53" for host in _LATE]
    listen = json.dumps(["127.0.0.1:53", *addresses])
    file = config_file(
        tmp_path,
        'name = "one"\nurl = "tls://127.0.0.1:1"',
        extra=f'[server]\nlisten = {listen}\n[web]\nlisten = "127.0.0.1:8053"\n',
    )
    with (
        Supervisor() as supervisor,
        child(
            "serve", "--config", file, environment={"NOTIFY_SOCKET": supervisor.address}
        ) as serve,
    ):
        serve.listening()
        [ready] = supervisor.wait_for(1)
        assert ready == [
            "READY=1",
            f"STATUS=serving 127.0.0.1:53; waiting for {', '.join(addresses)}; upstreams one",
        ]
        assert _get("/api/health") == {
            "status": "degraded",
            "conditions": {"upstreams": "ok", "listeners": "degraded"},
        }
        missing = _get("/api/overview")["missing_listeners"]
        assert [each["address"] for each in missing] == addresses
        assert missing[0]["reason"] == "this machine does not have that address"
        assert missing[2]["reason"] == f"no interface is named {_LINK}"

        ip("address", "add", "192.0.2.7/32", "dev", "lo")
        serve.wait_for_line("listening 192.0.2.7:53")
        assert _ask(_LATE[0]) == dns.rcode.NOTIMP
        assert _get("/api/health")["status"] == "degraded", "two are still to come"

        ip("address", "add", "fd00::7/128", "dev", "lo", "nodad")
        ip("link", "add", _LINK, "type", "veth", "peer", "name", "other0")
        for end in (_LINK, "other0"):
            ip("link", "set", end, "up")
        ip("address", "add", "fe80::7/64", "dev", _LINK, "nodad")
        eventually(lambda: _get("/api/health")["status"] == "ok", seconds=_PATIENCE_SECONDS)
        for host in _LATE[1:]:
            assert _ask(host) == dns.rcode.NOTIMP
        told = supervisor.told[-1]
        assert serve.running
        ended = serve.terminate()
    assert told == [f"STATUS=serving 127.0.0.1:53, {', '.join(addresses)}; upstreams one"]
    assert serve.stdout.count("listening ") == 4
    for address in addresses:
        assert f"WARNING not listening on {address}: " in ended.stderr
        assert f"INFO listening on {address}\n" in ended.stderr
    assert (ended.status, "Traceback" in ended.stderr) == (0, False)


def test_a_listener_whose_address_goes_and_comes_back_answers_again(tmp_path: Path) -> None:
    ip("address", "add", "192.0.2.7/32", "dev", "lo")
    # Allowed by itself: that it is on link may be heard a moment after it is asked from.
    server = '[server]\nlisten = ["192.0.2.7:53"]\nallow = ["192.0.2.7"]\n'
    file = config_file(tmp_path, 'url = "tls://127.0.0.1:1"', extra=server)
    with child("serve", "--config", file) as serve:
        serve.listening()
        ip("address", "del", "192.0.2.7/32", "dev", "lo")
        ip("address", "add", "192.0.2.7/32", "dev", "lo")
        assert _ask("192.0.2.7") == dns.rcode.NOTIMP
        assert serve.terminate().status == 0


def test_the_page_comes_with_its_address_too_and_is_announced(tmp_path: Path) -> None:
    _IPV6_OFF.write_text("1")
    file = config_file(
        tmp_path,
        'name = "one"\nurl = "tls://127.0.0.1:1"',
        extra='[web]\nlisten = "[::1]:8053"\n',
    )
    with child("serve", "--config", file) as serve:
        serve.listening()
        _IPV6_OFF.write_text("0")
        serve.wait_for_line("web http://[::1]:8053/")
        assert _get("/api/health", "::1")["status"] == "ok"
        ended = serve.terminate()
    told = [line for line in ended.stderr.splitlines() if "web server" in line]
    assert len(told) == 2, "it is not told again each second"
    reason = "this machine does not have that address"
    assert told[0].endswith(f"WARNING no web server on [::1]:8053: {reason}")
    assert told[1].endswith("INFO web server on [::1]:8053")
    assert ended.status == 0


def test_where_ipv6_is_off_its_loopback_address_is_missed_by_nobody_and_still_comes_with_it(
    tmp_path: Path,
) -> None:
    _IPV6_OFF.write_text("1")
    file = config_file(
        tmp_path,
        'name = "one"\nurl = "tls://127.0.0.1:1"',
        extra='[server]\n[web]\nlisten = "127.0.0.1:8053"\n',
    )
    with (
        Supervisor() as supervisor,
        child(
            "serve", "--config", file, environment={"NOTIFY_SOCKET": supervisor.address}
        ) as serve,
    ):
        serve.listening()
        [ready] = supervisor.wait_for(1)
        assert ready == ["READY=1", "STATUS=serving 127.0.0.1:5300; upstreams one"]
        assert _get("/api/health")["status"] == "ok"
        assert _get("/api/overview")["missing_listeners"] == []
        _IPV6_OFF.write_text("0")
        serve.wait_for_line("listening [::1]:5300")
        ended = serve.terminate()
    assert "INFO not listening on [::1]:5300: this machine does not have that address" in (
        ended.stderr
    )
    assert "WARNING not listening" not in ended.stderr
