"""The head of a request (RFC 9112), checked before anything else looks at it. Pure.

It is stricter than HTTP has to be, for nobody but browsers, Prometheus and curl has business here:
what two readers could read differently is refused.
"""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_HEAD_BYTES = 8192
"""Request line and header fields together: several times what a browser sends."""

END = b"\r\n\r\n"

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_TARGET = re.compile(rb"/[!-~]*")  # origin-form alone: no proxy stands here
_VERSION = re.compile(rb"HTTP/1\.[01]")
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")  # no control character
_PORT = re.compile(r"[0-9]{1,5}")


class BadHead(ValueError):
    """Not the head of a request that is answered here."""


@dataclass(frozen=True, slots=True)
class Head:
    """What of it decides whether the request is answered."""

    method: str
    host: str | None
    """None when there is no Host, or more than one."""
    has_body: bool


def parse(data: bytes) -> Head:
    """The head in ``data``, which ends with END. Raises BadHead."""
    if not data.endswith(END):
        raise BadHead("it has no end")
    request_line, *fields = data[: -len(END)].split(b"\r\n")
    words = request_line.split(b" ")
    if len(words) != 3:
        raise BadHead("its request line is not three words")
    method, target, version = words
    if not (_TOKEN.fullmatch(method) and _TARGET.fullmatch(target) and _VERSION.fullmatch(version)):
        raise BadHead("its request line is not of HTTP/1.1 or HTTP/1.0")
    values: dict[bytes, list[bytes]] = {}
    for field in fields:
        name, colon, value = field.partition(b":")
        # A space before the colon, or a line that continues the one before, fails here.
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadHead("a header field is not a name and a value")
        values.setdefault(name.lower(), []).append(value.strip(b" \t"))
    hosts = values.get(b"host", [])
    return Head(
        method.decode("ascii"),
        hosts[0].decode("latin-1") if len(hosts) == 1 else None,
        b"transfer-encoding" in values or any(v != b"0" for v in values.get(b"content-length", [])),
    )


def is_allowed_host(host: str | None, allowed: Collection[str]) -> bool:
    """Whether a page that came from ``host`` may see what is here.

    Any web page can make a browser resolve its own name to this machine (DNS rebinding) and read
    what it finds; no page can do so under an address, under ``localhost``, or under a name that
    the owner has ``allowed``, in lower case and without a final dot.
    """
    if not host:
        return False
    if host.startswith("["):
        literal, bracket, rest = host[1:].partition("]")
        return bool(bracket) and _is_port_or_nothing(rest) and _is_address(literal, version=6)
    name, colon, port = host.partition(":")
    if not _is_port_or_nothing(colon + port):
        return False
    name = name.lower().removesuffix(".")
    return name == "localhost" or name in allowed or _is_address(name, version=4)


def _is_port_or_nothing(text: str) -> bool:
    return not text or (text[0] == ":" and _PORT.fullmatch(text[1:]) is not None)


def _is_address(text: str, *, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
