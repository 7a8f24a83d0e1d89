"""Who may ask: prefixes, and what a client's address is to them. Pure.

A resolver that answers anybody is used to attack others, and a household's own addresses are not
all private: with IPv6 its machines ask from global ones, in a prefix that their provider changes
when it likes. So besides prefixes there are two words, which are the default:

``private``
    what is never routed beyond a household: loopback, RFC 1918, link-local, ULA;
``on-link``
    the prefixes on link of this machine's interfaces, as they are now.

Addresses of 100.64.0.0/10 (RFC 6598) are shared by a provider's customers, so neither word means
them, even where an interface has one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import Final

Prefix = IPv4Network | IPv6Network

PRIVATE: Final = "private"
ON_LINK: Final = "on-link"
DEFAULT: Final = (PRIVATE, ON_LINK)

_PRIVATE: Final[tuple[Prefix, ...]] = (
    IPv4Network("127.0.0.0/8"),
    IPv4Network("10.0.0.0/8"),  # RFC 1918
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("169.254.0.0/16"),  # RFC 3927
    IPv6Network("::1/128"),
    IPv6Network("fe80::/10"),  # RFC 4291
    IPv6Network("fc00::/7"),  # RFC 4193
)
_SHARED: Final = IPv4Network("100.64.0.0/10")

# Clients that are remembered with what was decided of them: a household has few. Whoever asks
# under ever new addresses makes us decide again, which costs some microseconds, and no memory.
_REMEMBERED: Final = 1024

_MAPPED: Final = IPv6Network("::ffff:0:0/96")  # RFC 4291 §2.5.5.2
_MAPPED_BITS: Final = 96


@dataclass(frozen=True, slots=True)
class Rules:
    """[server] allow."""

    prefixes: tuple[Prefix, ...]
    on_link: bool
    """Whether the prefixes on link are allowed, too."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Rules":
        """Raises ValueError for the first text that is neither a prefix nor a word."""
        prefixes: list[Prefix] = []
        on_link = False
        for text in texts:
            if text == PRIVATE:
                prefixes += _PRIVATE
            elif text == ON_LINK:
                on_link = True
            else:
                prefixes.append(parse_prefix(text))
        return cls(tuple(prefixes), on_link)

    @property
    def anybody(self) -> bool:
        """Whether all of a family may ask."""
        return any(prefix.prefixlen == 0 for prefix in self.prefixes)


def parse_prefix(text: str) -> Prefix:
    """``192.168.1.0/24``, ``2001:db8::/56``, or an address by itself.

    Raises ValueError with what is wrong and what would be right.
    """
    try:
        prefix = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f'must be a prefix, such as "192.168.1.0/24" or "2001:db8::/56", or "{PRIVATE}" or '
            f'"{ON_LINK}"'
        ) from None
    if "%" in text:
        raise ValueError('a prefix has no interface; "fe80::/10" covers those of all')
    if ip_address(text.partition("/")[0]) != prefix.network_address:
        raise ValueError(f'has bits set behind the prefix; write "{prefix}"')
    if isinstance(prefix, IPv6Network) and prefix.subnet_of(_MAPPED):
        carried = IPv4Address(int(prefix.network_address) & 0xFFFF_FFFF)
        return IPv4Network((carried, prefix.prefixlen - _MAPPED_BITS))
    return prefix


class Allow:
    """Decides by rules that can be replaced while it is asked."""

    def __init__(self, rules: Rules, on_link: Iterable[Prefix] = ()) -> None:
        self._rules = rules
        self._on_link = tuple(on_link)
        self._decided: dict[str, bool] = {}
        self._rebuild()

    @property
    def rules(self) -> Rules:
        return self._rules

    def replace(self, rules: Rules) -> None:
        """Go on with other rules, and the same prefixes on link."""
        self._rules = rules
        self._rebuild()

    def set_on_link(self, prefixes: Iterable[Prefix]) -> None:
        """Our interfaces have these prefixes now, and no others."""
        self._on_link = tuple(prefixes)
        self._rebuild()

    def permits(self, host: str) -> bool:
        """Whether a client at ``host``, an IP literal as the kernel writes it, may ask."""
        decided = self._decided.get(host)
        return self._decide(host) if decided is None else decided

    def _rebuild(self) -> None:
        prefixes = list(self._rules.prefixes)
        if self._rules.on_link:
            prefixes += (p for p in self._on_link if not _is_shared(p))
        self._v4 = _Ranges([p for p in prefixes if isinstance(p, IPv4Network)])
        self._v6 = _Ranges([p for p in prefixes if isinstance(p, IPv6Network)])
        self._decided.clear()

    def _decide(self, host: str) -> bool:
        address = ip_address(host)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        ranges = self._v4 if isinstance(address, IPv4Address) else self._v6
        permitted = int(address) in ranges
        if len(self._decided) >= _REMEMBERED:
            self._decided.clear()
        self._decided[host] = permitted
        return permitted


def is_private(host: str) -> bool:
    """Whether ``host``, an IP literal, is an address that no packet from elsewhere reaches."""
    return _ONLY_PRIVATE.permits(host)


def anybody(_host: str) -> bool:
    """Permits every client: what a server does by itself, without rules."""
    return True


def _is_shared(prefix: Prefix) -> bool:
    """Whether it is of a provider's customers. A single address is our own one."""
    return (
        isinstance(prefix, IPv4Network)
        and prefix.overlaps(_SHARED)
        and prefix.prefixlen < prefix.max_prefixlen
    )


class _Ranges:
    """Whether a number is in one of many ranges, by a search that halves."""

    def __init__(self, prefixes: Sequence[Prefix]) -> None:
        apart = sorted(collapse_addresses(prefixes))  # type: ignore[type-var]
        self._first = [int(prefix.network_address) for prefix in apart]
        self._last = [int(prefix.broadcast_address) for prefix in apart]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._first, number) - 1
        return index >= 0 and number <= self._last[index]


_ONLY_PRIVATE: Final = Allow(Rules.parse([PRIVATE]))
