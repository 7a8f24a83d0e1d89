"""The configuration: one TOML file in, frozen values out.

Everything that is wrong is reported at once, a line each, with file, line, key, value and what
would be right. There is no key for concurrency, and none that weakens TLS.
"""

from dataclasses import dataclass
from pathlib import Path

from OpenSSL import SSL

from nxdns.config.reader import ConfigError, Document, Table, show
from nxdns.platform.address import (
    ListenAddress,
    canonical_literal,
    is_host_name,
    parse_listen_address,
)
from nxdns.server import allow
from nxdns.upstream import health
from nxdns.upstream.endpoint import (
    Endpoint,
    EndpointError,
    Identity,
    Scheme,
    identity_of,
    labels_of,
    redact_text,
)

__all__ = ["Config", "ConfigError", "LogConfig", "UpstreamConfig", "WebConfig", "load"]

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

# An unqueued first attempt must never be cut short by the total budget: its expiry could then say
# nothing of the upstream. 100 ms is what the way to the attempt can cost on a busy small machine.
BUDGET_MARGIN_MS = 100

_ALLOW_DEFAULT = " and ".join(f'"{word}"' for word in allow.DEFAULT)
_URL_MISSING = 'is missing; write url = "tls://1.1.1.1:853" for example'
_MAX_NAME = 64  # characters of an upstream's name; it stands in every log line and on the page
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """One [[upstreams]] table."""

    label: str
    """The configured name, else the redacted URL; no two are the same."""
    endpoint: Endpoint
    tls_name: str | None
    priority: int
    enabled: bool

    @property
    def identity(self) -> Identity:
        return identity_of(self.endpoint, self.tls_name)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """[web]"""

    listen: ListenAddress | None
    """None: no web server."""
    allowed_hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """[log]"""

    level: str
    format: str


@dataclass(frozen=True, slots=True)
class Config:
    """A whole file."""

    listen: tuple[ListenAddress, ...]
    allow: allow.Rules
    upstreams: tuple[UpstreamConfig, ...]
    attempt_ms: int
    total_ms: int
    health: health.Config
    ca_file: str | None
    web: WebConfig
    storage_path: str
    log: LogConfig


def load(path: Path) -> Config:
    """The configuration in ``path``. Raises ConfigError."""
    document = Document(path)
    root = document.root()
    server = root.take_table("server")
    listen = _listen(server)
    rules = _allow(server)
    server.finish()
    upstreams = _upstreams(root, root.take_tables("upstreams"))
    attempt_ms, total_ms = _budgets(root.take_table("budgets"))
    health_config = _health(root.take_table("health"))
    ca_file = _ca_file(root.take_table("tls"), path.parent)
    web = _web(root.take_table("web"))
    storage_path = _storage_path(root.take_table("storage"))
    log = _log(root.take_table("log"))
    root.finish()
    document.raise_problems()
    return Config(
        listen,
        rules,
        upstreams,
        attempt_ms,
        total_ms,
        health_config,
        ca_file,
        web,
        storage_path,
        log,
    )


def _listen(table: Table) -> tuple[ListenAddress, ...]:
    addresses: list[ListenAddress] = []
    texts = table.take_texts("listen", ["127.0.0.1:5300", "[::1]:5300"])
    if not texts:
        table.complain("listen", 'must name an address, such as "127.0.0.1:5300"', show(texts))
    for text in texts:
        address = _address(table, "listen", text)
        if address is None:
            continue
        rival = next((other for other in addresses if address.overlaps(other)), None)
        if rival is None:
            addresses.append(address)
        else:
            table.complain("listen", f"covers the same as {rival}; name one of them", show(text))
    return tuple(addresses)


def _allow(table: Table) -> allow.Rules:
    texts = table.take_texts("allow", allow.DEFAULT)
    if not texts:
        table.complain("allow", f"must name who may ask, such as {_ALLOW_DEFAULT}", show(texts))
    good = []
    for text in texts:
        try:
            allow.Rules.parse([text])
        except ValueError as exc:
            table.complain("allow", str(exc), show(text))
        else:
            good.append(text)
    return allow.Rules.parse(good)


def _address(table: Table, key: str, text: str) -> ListenAddress | None:
    try:
        return parse_listen_address(text)
    except ValueError as exc:
        table.complain(key, str(exc), show(text))
        return None


def _upstreams(root: Table, tables: list[Table] | None) -> tuple[UpstreamConfig, ...]:
    parsed: list[tuple[str | None, Endpoint, str | None, int, bool]] = []
    seen: dict[Identity, Table] = {}
    complete = tables is not None
    for table in tables or []:
        name = _name(table)
        endpoint = _endpoint(table)
        tls_name = _tls_name(table)
        priority = table.take_integer("priority", 100, -1_000_000, 1_000_000)
        enabled = table.take_flag("enabled", default=True)
        table.finish()
        if endpoint is None:
            complete = False
            continue
        _require_literal(table, endpoint, tls_name)
        first = seen.setdefault(identity_of(endpoint, tls_name), table)
        if first is not table:
            position = first.path[-1]
            table.complain(
                "url", f"is the same upstream as upstreams[{position}]", _shown(endpoint)
            )
        parsed.append((name, endpoint, tls_name, priority, enabled))
    if complete and not any(enabled for *_, enabled in parsed):
        remedy = "set enabled = true for one" if parsed else "add one: [[upstreams]] with a url"
        root.complain("upstreams", f"no upstream is enabled; {remedy}")
    labels = labels_of((name, endpoint) for name, endpoint, *_ in parsed)
    return tuple(
        UpstreamConfig(label, endpoint, tls_name, priority, enabled)
        for label, (_, endpoint, tls_name, priority, enabled) in zip(labels, parsed, strict=True)
    )


def _name(table: Table) -> str | None:
    name = table.take_optional_text("name")
    if name is not None and (len(name) > _MAX_NAME or not name.isprintable()):
        table.complain("name", f"must be at most {_MAX_NAME} printable characters", show(name))
    return name


def _endpoint(table: Table) -> Endpoint | None:
    url = table.take_optional_text("url", empty=_URL_MISSING, secret=True)
    if url is None:
        if not table.has("url"):
            table.complain("url", _URL_MISSING)
        return None
    try:
        return Endpoint.parse(url)
    except EndpointError as exc:
        table.complain("url", str(exc), show(redact_text(url)))
        return None


def _tls_name(table: Table) -> str | None:
    name = table.take_optional_text("tls_name")
    if name is None or is_host_name(name) or canonical_literal(name) is not None:
        return name
    table.complain(
        "tls_name",
        "must be the name in the upstream's certificate, such as cloudflare-dns.com "
        "(an international name in its xn-- form)",
        # A URL without its scheme may have been pasted, with a token in its path.
        show(name.partition("/")[0] + ("/…" if "/" in name else "")),
    )
    return None


def _require_literal(table: Table, endpoint: Endpoint, tls_name: str | None) -> None:
    """Looking up a DoT host could mean asking ourselves."""
    if endpoint.scheme is Scheme.DOT and not endpoint.is_literal:
        name = tls_name or endpoint.host
        table.complain(
            "url",
            "a DoT host must be an IP address, as nxdns may be this machine's resolver; "
            f'write for example url = "tls://1.1.1.1:853" and tls_name = "{name}"',
            _shown(endpoint),
        )


def _shown(endpoint: Endpoint) -> str:
    return show(endpoint.redacted)


def _budgets(table: Table) -> tuple[int, int]:
    attempt_ms = table.take_integer("attempt_ms", 2000, 10, 60_000)
    total_ms = table.take_integer("total_ms", 5000, 10 + BUDGET_MARGIN_MS, 120_000)
    if total_ms < attempt_ms + BUDGET_MARGIN_MS:
        table.complain(
            "total_ms",
            f"must be at least {BUDGET_MARGIN_MS} above attempt_ms, so "
            f"{attempt_ms + BUDGET_MARGIN_MS} or more",
            show(total_ms),
        )
    table.finish()
    return attempt_ms, total_ms


def _health(table: Table) -> health.Config:
    threshold = table.take_integer("failure_threshold", 2, 1, 1000)
    base_ms = table.take_integer("base_backoff_ms", 500, 1, _DAY_MS)
    max_ms = table.take_integer("max_backoff_ms", max(60_000, base_ms), 1, _DAY_MS)
    if max_ms < base_ms:
        table.complain(
            "max_backoff_ms", f"must not be below base_backoff_ms, which is {base_ms}", show(max_ms)
        )
        max_ms = base_ms
    table.finish()
    return health.Config(threshold, base_ms, max_ms)


def _ca_file(table: Table, folder: Path) -> str | None:
    """Relative to the file that names it. Loaded here once, so that a bad one is told by line."""
    text = table.take_optional_text("ca_file")
    table.finish()
    if text is None:
        return None
    path = str(folder / text)
    try:
        SSL.Context(SSL.TLS_CLIENT_METHOD).load_verify_locations(path)
    except SSL.Error:
        what = "holds no PEM certificate" if Path(path).is_file() else "is no file"
        table.complain("ca_file", f"{what}; name a readable file of PEM certificates", show(path))
    return path


def _web(table: Table) -> WebConfig:
    text = table.take_text("listen", "127.0.0.1:8053")
    listen = _address(table, "listen", text) if text else None
    hosts = table.take_texts("allowed_hosts", [])
    for host in hosts:
        if not is_host_name(host):
            table.complain("allowed_hosts", "must be host names, without a port", show(host))
    table.finish()
    return WebConfig(listen, tuple(host.lower() for host in hosts))


def _storage_path(table: Table) -> str:
    path = table.take_text("path", "")
    table.finish()
    return path


def _log(table: Table) -> LogConfig:
    level = table.take_choice("level", "info", LEVELS)
    log_format = table.take_choice("format", "text", FORMATS)
    table.finish()
    return LogConfig(level, log_format)
