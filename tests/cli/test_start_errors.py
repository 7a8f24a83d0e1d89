"""What keeps nxdns from starting is one line, and nothing is left open behind it."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gevent import socket

from nxdns.app import App
from nxdns.config import Config, load
from nxdns.upstreams import StartError
from tests.cli.ports import refusing_tcp, refusing_udp
from tests.support.authority import Authority
from tests.support.leaks import no_descriptor_left
from tests.support.port_keeper import keeping
from tests.support.process import config_file, run

pytestmark = pytest.mark.integration

_UPSTREAM = 'url = "tls://127.0.0.1:1"'


def _listening_on(folder: Path, *addresses: str) -> Path:
    quoted = ", ".join(f'"{address}"' for address in addresses)
    return config_file(folder, _UPSTREAM, extra=f"[server]\nlisten = [{quoted}]\n")


def _refusal(config: Config) -> str:
    """Why an App of it cannot be."""
    with no_descriptor_left(), pytest.raises(StartError) as caught:
        App(config)
    return str(caught.value)


@contextmanager
def _listening_tcp() -> Iterator[int]:
    sock: Any = socket.socket()
    with sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(refusing_udp, id="udp"),
        pytest.param(refusing_tcp, id="tcp-bound"),
        pytest.param(_listening_tcp, id="tcp"),
    ],
)
def test_a_port_in_use_is_told_with_its_address(taken: Any, tmp_path: Path) -> None:
    with taken() as port:
        address = f"127.0.0.1:{port}"
        told = _refusal(load(_listening_on(tmp_path, "127.0.0.1:0", address)))
    assert told.startswith(f"cannot listen on {address}: ")
    assert "in use" in told


def test_with_no_address_of_this_machine_it_does_not_start(tmp_path: Path) -> None:
    told = _refusal(load(_listening_on(tmp_path, "192.0.2.1:0", "[2001:db8::1]:0")))
    assert "none of the listen addresses" in told


def test_an_interface_this_machine_lacks_is_no_reason_not_to_start(tmp_path: Path) -> None:
    app = App(load(_listening_on(tmp_path, "[fe80::1%no-such-if]:0", "127.0.0.1:0")))
    try:
        assert [each.bound.host for each in app.listeners] == ["127.0.0.1"]
    finally:
        app.stop()


@pytest.mark.parametrize("scheme", ["tls", "https"])
def test_an_upstream_that_cannot_be_built_is_told_by_its_name(
    scheme: str, tmp_path: Path, authority: Authority
) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(Path(authority.ca_file).read_bytes())
    file = config_file(
        tmp_path, f'name = "one"\nurl = "{scheme}://127.0.0.1:1"', ca_file=str(ca_file)
    )
    config = load(file)
    ca_file.unlink()
    assert _refusal(config).startswith("upstream 'one' cannot be built: ")


def test_only_disabled_upstreams_left_is_told(tmp_path: Path) -> None:
    file = config_file(tmp_path, _UPSTREAM, 'url = "tls://127.0.0.1:2"\nenabled = false')
    config = load(file)
    only_disabled = dataclasses.replace(config, upstreams=config.upstreams[1:])
    assert _refusal(only_disabled) == "no upstream is enabled"


def test_as_a_process_a_port_in_use_is_one_line_and_status_1(tmp_path: Path) -> None:
    with refusing_tcp() as port:
        ended = run("serve", "--config", _listening_on(tmp_path, f"127.0.0.1:{port}"))
    assert (ended.status, ended.stdout) == (1, "")
    [line] = ended.errors
    assert line.startswith(f"nxdns: cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_whoever_has_the_port_is_named_in_the_one_line(protocol: str, tmp_path: Path) -> None:
    with keeping(protocol) as keeper:
        ended = run("serve", "--config", _listening_on(tmp_path, f"127.0.0.1:{keeper.port}"))
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.errors == [
        f"nxdns: cannot listen on 127.0.0.1:{keeper.port}: "
        f"the port is in use by dnsmasq (pid {keeper.pid})"
    ]


def test_of_systemd_resolved_the_one_line_says_how_it_lets_the_port_go(tmp_path: Path) -> None:
    with keeping("udp", "127.0.0.53", name="systemd-resolved") as keeper:
        told = _refusal(load(_listening_on(tmp_path, f"0.0.0.0:{keeper.port}")))
    assert f"in use by systemd-resolved (pid {keeper.pid}); to free it, " in told
    assert "DNSStubListener=no" in told
    assert "\n" not in told


def test_whoever_has_the_port_of_the_web_server_is_named_in_the_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with keeping("tcp") as keeper, keeping("udp", port=keeper.port, name="innocent"):
        web = f'[web]\nlisten = "127.0.0.1:{keeper.port}"\n'
        App(load(config_file(tmp_path, _UPSTREAM, extra=web))).stop()
    assert [each.message for each in caplog.records] == [
        f"no web server on 127.0.0.1:{keeper.port}: "
        f"the port is in use by dnsmasq (pid {keeper.pid})"
    ]


def test_as_a_process_with_no_address_of_this_machine_it_says_which_and_ends(
    tmp_path: Path,
) -> None:
    ended = run("serve", "--config", _listening_on(tmp_path, "192.0.2.1:0"))
    assert (ended.status, ended.stdout) == (1, "")
    warning, error = ended.errors
    assert "WARNING not listening on 192.0.2.1:0: " in warning
    assert error.startswith("nxdns: none of the listen addresses")
