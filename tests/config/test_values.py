"""What a good file means."""

import dataclasses
import re
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from nxdns.config import Config, LogConfig, UpstreamConfig, WebConfig, load
from nxdns.platform.address import ListenAddress
from nxdns.server.allow import Rules
from nxdns.upstream.endpoint import Scheme
from tests.config.files import UPSTREAM, loaded, problems, written
from tests.support.authority import Authority

SHIPPED = Path(__file__).parents[2] / "etc" / "nxdns.toml"


def test_a_file_with_only_upstreams_has_the_documented_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, "[[upstreams]]\nurl = 'tls://192.0.2.1'\n")
    assert config.listen == (ListenAddress("127.0.0.1", 5300), ListenAddress("::1", 5300))
    assert config.allow == Rules.parse(["private", "on-link"])
    assert (config.attempt_ms, config.total_ms) == (2000, 5000)
    assert config.health.failure_threshold == 2
    assert config.health.base_backoff_ms == 500
    assert config.health.max_backoff_ms == 60_000
    assert config.ca_file is None
    assert config.web == WebConfig(ListenAddress("127.0.0.1", 8053), ())
    assert config.storage_path == ""
    assert config.log == LogConfig("info", "text")
    [upstream] = config.upstreams
    assert (upstream.endpoint.host, upstream.endpoint.port) == ("192.0.2.1", 853)
    assert upstream.label == "tls://192.0.2.1"
    assert upstream.tls_name is None
    assert upstream.priority == 100
    assert upstream.enabled


def test_the_shipped_file_documents_the_defaults(tmp_path: Path) -> None:
    shipped = load(SHIPPED)
    minimal = loaded(tmp_path, UPSTREAM)
    assert dataclasses.replace(minimal, upstreams=shipped.upstreams) == shipped


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        pytest.param("server", ["listen", "allow"], id="server"),
        pytest.param("budgets", ["attempt_ms", "total_ms"], id="budgets"),
        pytest.param(
            "health", ["failure_threshold", "base_backoff_ms", "max_backoff_ms"], id="health"
        ),
        pytest.param("tls", ["ca_file"], id="tls"),
        pytest.param("web", ["listen", "allowed_hosts"], id="web"),
        pytest.param("storage", ["path"], id="storage"),
        pytest.param("log", ["level", "format"], id="log"),
    ],
)
def test_the_shipped_file_shows_every_key_of_a_table(table: str, keys: list[str]) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    [body] = re.findall(rf"^\[{table}\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?:# )?(\w+) = ", body, re.MULTILINE) == keys


def test_the_shipped_file_asks_three_providers_over_both_protocols() -> None:
    config = load(SHIPPED)
    asked = [
        (each.endpoint.scheme, each.endpoint.host, each.endpoint.port, each.tls_name)
        for each in config.upstreams
    ]
    assert asked[0] == (Scheme.DOT, "1.1.1.1", 853, "cloudflare-dns.com")
    assert asked[1] == (Scheme.DOH, "8.8.8.8", 443, "dns.google")
    third = config.upstreams[2]
    assert third.endpoint.scheme is Scheme.DOT
    assert third.tls_name not in (None, "cloudflare-dns.com", "one.one.one.one", "dns.google")
    assert all(each.enabled for each in config.upstreams)


def test_the_shipped_file_never_needs_a_lookup() -> None:
    """This machine may ask nxdns for its names, and nxdns must not wait for itself."""
    assert all(each.endpoint.is_literal and each.tls_name for each in load(SHIPPED).upstreams)


def test_the_upstreams_of_the_shipped_file_have_different_priorities_in_their_order() -> None:
    priorities = [each.priority for each in load(SHIPPED).upstreams]
    assert priorities == sorted(set(priorities))


def _value(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        pytest.param("[server]\nlisten = ['0.0.0.0:53']", "listen.0", "0.0.0.0:53", id="listen"),
        pytest.param("[server]\nlisten = ['[::1]:0']", "listen.0", "[::1]:0", id="listen-v6"),
        pytest.param("[server]\nlisten = ['[0:0::1]:53']", "listen.0", "[::1]:53", id="canonical"),
        pytest.param("[server]\nallow = ['on-link']", "allow.on_link", True, id="allow-on-link"),
        pytest.param(
            "[server]\nallow = ['100.64.0.0/10']",
            "allow.prefixes.0",
            IPv4Network("100.64.0.0/10"),
            id="allow",
        ),
        pytest.param("name = 'küche 1'", "upstreams.0.label", "küche 1", id="name"),
        pytest.param("tls_name = 'dns.test'", "upstreams.0.tls_name", "dns.test", id="tls-name"),
        pytest.param("tls_name = '::1'", "upstreams.0.tls_name", "::1", id="tls-name-a-literal"),
        pytest.param("priority = -3", "upstreams.0.priority", -3, id="priority"),
        pytest.param("[budgets]\nattempt_ms = 4900", "attempt_ms", 4900, id="attempt"),
        pytest.param("[budgets]\ntotal_ms = 2100", "total_ms", 2100, id="total"),
        pytest.param(
            "[health]\nfailure_threshold = 5", "health.failure_threshold", 5, id="threshold"
        ),
        pytest.param(
            "[health]\nbase_backoff_ms = 70000", "health.max_backoff_ms", 70_000, id="backoff"
        ),
        pytest.param("[health]\nmax_backoff_ms = 500", "health.max_backoff_ms", 500, id="flat"),
        pytest.param("[web]\nlisten = ''", "web.listen", None, id="no-web"),
        pytest.param("[web]\nlisten = '[::1]:80'", "web.listen", "[::1]:80", id="web"),
        pytest.param(
            "[web]\nallowed_hosts = ['Pi.Home']", "web.allowed_hosts", ("pi.home",), id="host"
        ),
        pytest.param("[storage]\npath = 'a.db'", "storage_path", "a.db", id="storage"),
        pytest.param("[log]\nlevel = 'debug'", "log.level", "debug", id="level"),
        pytest.param("[log]\nformat = 'json'", "log.format", "json", id="format"),
        pytest.param("# url = 1\n[log]", "log.level", "info", id="empty-table"),
    ],
)
def test_a_key_sets_its_value(tmp_path: Path, text: str, path: str, value: Any) -> None:
    found = _value(loaded(tmp_path, UPSTREAM + text), path)
    assert (str(found) if isinstance(found, ListenAddress) else found) == value


def test_one_enabled_upstream_is_enough_and_disabled_ones_are_kept(tmp_path: Path) -> None:
    text = "[[upstreams]]\nurl = 'tls://127.0.0.2'\nenabled = false\n" + UPSTREAM
    assert [each.enabled for each in loaded(tmp_path, text).upstreams] == [False, True]


def test_port_0_may_be_listened_on_twice(tmp_path: Path) -> None:
    text = UPSTREAM + "[server]\nlisten = ['127.0.0.1:0', '127.0.0.1:0']"
    assert len(loaded(tmp_path, text).listen) == 2


def test_a_ca_file_is_looked_for_beside_the_file_that_names_it(
    tmp_path: Path, authority: Authority
) -> None:
    (tmp_path / "ca.pem").write_bytes(Path(authority.ca_file).read_bytes())
    config = loaded(tmp_path, UPSTREAM + "[tls]\nca_file = 'ca.pem'")
    assert config.ca_file == str(tmp_path / "ca.pem")


def test_an_absolute_ca_file_is_taken_as_it_is(tmp_path: Path, authority: Authority) -> None:
    config = loaded(tmp_path, UPSTREAM + f"[tls]\nca_file = '{authority.ca_file}'")
    assert config.ca_file == authority.ca_file


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("url = 'tls://127.0.0.1'", "url = 'TLS://127.0.0.1:853/'", id="defaults"),
        pytest.param("url = 'tls://[::1]'", "url = 'tls://[0:0::0001]'", id="ipv6-forms"),
        pytest.param("url = 'https://a.test'", "url = 'https://A.Test./dns-query'", id="case-dot"),
        pytest.param(
            "url = 'https://a.test'", "url = 'https://a.test:443'\ntls_name = 'A.test'", id="name"
        ),
        pytest.param(
            "url = 'tls://127.0.0.1'\npriority = 1",
            "url = 'tls://127.0.0.1'\nname = 'b'",
            id="rest",
        ),
    ],
)
def test_the_same_upstream_written_in_another_way_is_refused(
    tmp_path: Path, one: str, other: str
) -> None:
    [problem] = problems(tmp_path, f"[[upstreams]]\n{one}\n[[upstreams]]\n{other}\n")
    assert "upstreams[1].url" in problem
    assert "is the same upstream as upstreams[0]" in problem


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("url = 'https://a.test/one-token'", id="path"),
        pytest.param("url = 'https://a.test:444'", id="port"),
        pytest.param("url = 'https://b.test'", id="host"),
        pytest.param("url = 'https://a.test'\ntls_name = 'b.test'", id="tls-name"),
        pytest.param("url = 'tls://127.0.0.1:443'\ntls_name = 'a.test'", id="scheme"),
    ],
)
def test_what_differs_in_one_part_is_another_upstream(tmp_path: Path, other: str) -> None:
    text = f"[[upstreams]]\nurl = 'https://a.test'\n[[upstreams]]\n{other}\n"
    one, two = loaded(tmp_path, text).upstreams
    assert one.identity != two.identity


def test_labels_keep_apart_what_differs_only_in_a_secret(tmp_path: Path) -> None:
    urls = ["https://a.test/one", "https://a.test/two", "https://a.test/three"]
    text = "".join(f"[[upstreams]]\nurl = '{url}'\n" for url in urls)
    labels = [each.label for each in loaded(tmp_path, text).upstreams]
    assert labels == ["https://a.test/…", "https://a.test/… (2)", "https://a.test/… (3)"]


def test_a_configuration_cannot_be_changed(tmp_path: Path) -> None:
    config = load(written(tmp_path, UPSTREAM))
    parts: list[Config | UpstreamConfig | WebConfig | LogConfig] = [
        config,
        config.upstreams[0],
        config.web,
        config.log,
    ]
    for part in parts:
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, None)
