"""Addresses as people write them: listen addresses, IP literals, host names. Pure."""

import ipaddress
import re
from dataclasses import dataclass

MAX_PORT = 65535
_MAX_NAME = 253  # RFC 1035 §2.3.4's 255 octets, as text and without the root's dot

_SCOPE = re.compile(r"[A-Za-z0-9._~-]{1,32}")  # RFC 6874's ZoneID; Linux allows 15
# RFC 1123 §2.1 letters, digits and hyphens; underscores occur in names people really use.
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """One address and port that both a UDP and a TCP listener bind."""

    host: str
    port: int

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    @property
    def is_wildcard(self) -> bool:
        return ipaddress.ip_address(self.host).is_unspecified

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def overlaps(self, other: "ListenAddress") -> bool:
        """Whether both cannot be bound: a wildcard takes the port on all addresses of its family.

        What the kernel will choose for port 0 is yet to be seen.
        """
        if self.port != other.port or self.port == 0 or self.is_ipv6 is not other.is_ipv6:
            return False
        return self.host == other.host or self.is_wildcard or other.is_wildcard

    def with_port(self, port: int) -> "ListenAddress":
        return ListenAddress(self.host, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """``127.0.0.1:53`` or ``[::1]:53``; port 0 lets the kernel choose.

    Raises ValueError with what is wrong and what would be right.
    """
    host, colon, port_text = text.rpartition(":")
    if not colon:
        raise ValueError("a port is missing; write it as 127.0.0.1:5300 or [::1]:5300")
    port = parse_port(port_text)
    if port is None:
        raise ValueError(f"the port must be a number from 0 to {MAX_PORT}")
    bracketed = host.startswith("[") and host.endswith("]")
    literal = canonical_literal(host[1:-1] if bracketed else host)
    if literal is None:
        raise ValueError("the host must be an IP address, such as 127.0.0.1:5300 or [::1]:5300")
    if (":" in literal) is not bracketed:
        raise ValueError("an IPv6 address, and only that, goes in brackets, such as [::1]:5300")
    return ListenAddress(literal, port)


def parse_port(text: str) -> int | None:
    """A decimal port from 0 to 65535, or None."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_PORT)):
        return None
    port = int(text)
    return port if port <= MAX_PORT else None


def canonical_literal(text: str) -> str | None:
    """An IP literal in its one canonical form (RFC 5952 for IPv6), or None for anything else."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    scope = getattr(address, "scope_id", None)
    return str(address) if scope is None or _SCOPE.fullmatch(scope) else None


def is_literal(text: str) -> bool:
    return canonical_literal(text) is not None


def is_host_name(text: str) -> bool:
    """Whether ``text`` can be looked up, sent as SNI and stand in a certificate: ASCII labels.

    A last label of digits alone is refused: it is a mistyped IPv4 literal (RFC 1123 §2.1).
    """
    name = text.removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_NAME or labels[-1].isdigit():
        return False
    return all(_LABEL.fullmatch(label) for label in labels)
