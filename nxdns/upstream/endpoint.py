"""Where an upstream is: its URL parsed, redacted, and its identity. Pure.

A DoH path other than the default is a secret: providers put a customer's token there. So nothing
but this module and the leaf that connects ever looks at the original URL or path.
"""

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from nxdns.platform.address import canonical_literal, is_host_name, parse_port

DOH_PORT = 443  # RFC 8484 is HTTPS
DOT_PORT = 853  # RFC 7858 §3.1
DOH_PATH = "/dns-query"  # RFC 8484 §4.1.1 uses it, and so do nearly all providers

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}")  # RFC 3986 §3.1; none has more letters
_PATH = re.compile(r"/[!-~]*")  # printable ASCII: what can stand in a request line unescaped


class Scheme(enum.Enum):
    """How an upstream is spoken to."""

    DOH = "https"
    DOT = "tls"

    @property
    def default_port(self) -> int:
        return DOH_PORT if self is Scheme.DOH else DOT_PORT


class EndpointError(ValueError):
    """A URL that names no upstream. Its text never repeats the URL. Never raised itself."""


class UnsupportedScheme(EndpointError):
    pass


class MissingHost(EndpointError):
    pass


class BadPort(EndpointError):
    pass


class BadUrl(EndpointError):
    pass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One upstream's address. ``host`` has no brackets; ``path`` is "" for DoT."""

    scheme: Scheme
    url: str = field(repr=False)
    host: str
    port: int
    path: str = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """``https://host[:port][/path]`` or ``tls://host[:port]``; ``[v6]`` goes in brackets.

        Raises UnsupportedScheme, MissingHost, BadPort, or BadUrl for user information, a query or
        a fragment, for a path on ``tls://``, and for characters that no URL has.
        """
        scheme_text, separator, rest = url.partition("://")
        scheme = _SCHEMES.get(scheme_text.lower()) if separator else None
        if scheme is None:
            raise UnsupportedScheme(
                "the scheme must be tls:// (DoT) or https:// (DoH), as in tls://1.1.1.1:853"
            )
        authority, slash, tail = rest.partition("/")
        if "@" in authority:
            raise BadUrl("user information has no place in it")
        if "?" in authority or "#" in authority:
            raise BadUrl("a query or a fragment has no place in it")
        host, port = _split_authority(authority, scheme)
        return cls(scheme, url, host, port, _path_of(scheme, slash + tail))

    @property
    def redacted(self) -> str:
        """The URL as every surface shows it: a path other than the default is ``/…``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == self.scheme.default_port else f":{self.port}"
        shown = self.path if self.path in ("", DOH_PATH) else "/…"
        return f"{self.scheme.value}://{host}{port}{shown}"

    @property
    def is_literal(self) -> bool:
        """Whether the host can be dialled without a lookup."""
        return canonical_literal(self.host) is not None


_SCHEMES = {scheme.value: scheme for scheme in Scheme}


def _split_authority(authority: str, scheme: Scheme) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, port_part = authority[1:].partition("]")
        if not bracket or ":" not in host or canonical_literal(host) is None:
            raise BadUrl("the brackets hold no IPv6 address")
        if port_part and not port_part.startswith(":"):
            raise BadUrl("only a port may follow the brackets")
        colon, port_text = port_part[:1], port_part[1:]
    else:
        host, colon, port_text = authority.partition(":")
        if canonical_literal(authority) is not None and colon:
            raise BadUrl("an IPv6 address must be in brackets")
        if not host:
            raise MissingHost("the host is missing")
        if canonical_literal(host) is None and not is_host_name(host):
            raise BadUrl("the host is neither an IP address nor a host name")
    if not colon:
        return host, scheme.default_port
    port = parse_port(port_text)
    if not port:
        raise BadPort("the port must be a number from 1 to 65535")
    return host, port


def _path_of(scheme: Scheme, path: str) -> str:
    if scheme is Scheme.DOT:
        if path not in ("", "/"):
            raise BadUrl("a tls:// URL has no path")
        return ""
    if not path:
        return DOH_PATH
    if "?" in path or "#" in path:
        raise BadUrl("a query or a fragment has no place in it")
    if not _PATH.fullmatch(path):
        raise BadUrl("the path may hold printable ASCII characters only, others as %XX")
    return path


def redact_text(url: str) -> str:
    """A URL that did not parse, for an error message: what can be a secret is ``…``."""
    scheme, separator, rest = url.partition("://")
    if not (separator and _SCHEME.fullmatch(scheme)):
        return "…"
    if "@" in rest:  # a password may hold any delimiter: where it ends is anyone's guess
        return f"{scheme}://…"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return f"{scheme}://{authority}" + ("" if rest == authority else "/…")


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two upstreams the same one, everything in its canonical form."""

    scheme: Scheme
    host: str
    port: int
    path: str = field(repr=False)
    tls_name: str


def identity_of(endpoint: Endpoint, tls_name: str | None) -> Identity:
    """The identity of an upstream whose ``tls_name`` defaults to its host."""
    host = _canonical_host(endpoint.host)
    name = host if tls_name is None else _canonical_host(tls_name)
    return Identity(endpoint.scheme, host, endpoint.port, endpoint.path, name)


def _canonical_host(host: str) -> str:
    return canonical_literal(host) or host.lower().removesuffix(".")


def labels_of(named: Iterable[tuple[str | None, Endpoint]]) -> list[str]:
    """What logs, episodes and the page call each upstream of a list, no two the same.

    The configured name, else the redacted URL; `` (2)``, `` (3)`` where two would be the same, so
    that two upstreams which differ only in a secret path stay apart.
    """
    labels: list[str] = []
    for name, endpoint in named:
        wanted = name or endpoint.redacted
        label, number = wanted, 1
        while label in labels:
            number += 1
            label = f"{wanted} ({number})"
        labels.append(label)
    return labels
