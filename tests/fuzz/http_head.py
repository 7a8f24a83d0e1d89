"""Any head is read or refused, and what was read of it can be read again."""

from nxdns.web.head import END, BadHead, Head, is_allowed_host, parse

ALLOWED = frozenset({"dns.home.arpa"})


def target(data: bytes) -> None:
    is_allowed_host(data.decode("latin-1"), ALLOWED)
    try:
        head = parse(data + END)
    except BadHead:
        return
    assert b"\0" not in data
    assert data.count(b"\r") == data.count(b"\n") == data.count(b"\r\n")
    method = head.method.encode("ascii")
    assert data.startswith(method + b" /")
    again = method + b" / HTTP/1.1"
    if head.host is not None:
        again += b"\r\nHost: " + head.host.encode("latin-1")
    if head.has_body:
        again += b"\r\nContent-Length: 1"
    assert parse(again + END) == Head(head.method, head.host, head.has_body)
    if is_allowed_host(head.host, ALLOWED):
        assert head.host is not None
        assert head.host.isascii()
        assert not set(head.host) & set(" \t@/?#,")
