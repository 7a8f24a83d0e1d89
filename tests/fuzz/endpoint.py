"""Any text is a URL or refused as one; what is shown of it names the same, and has no secret."""

from nxdns.upstream.endpoint import (
    DOH_PATH,
    Endpoint,
    EndpointError,
    identity_of,
    labels_of,
    redact_text,
)


def target(data: bytes) -> None:
    url = data.decode("utf-8", "ignore")
    assert redact_text(url)
    try:
        endpoint = Endpoint.parse(url)
    except EndpointError as error:
        told = str(error)
    else:
        _parsed(endpoint)
        return
    assert len(url) < 40 or url not in told  # a short one may stand in the example there


def _parsed(endpoint: Endpoint) -> None:
    assert endpoint.host
    assert 0 < endpoint.port < 65536
    identity = identity_of(endpoint, None)
    shown = endpoint.redacted
    public = shown.removesuffix("/…")
    assert public.isascii()
    assert public == shown or endpoint.path not in ("", DOH_PATH)
    again = Endpoint.parse(public)
    assert again.redacted in (shown, public + DOH_PATH)
    assert (again.scheme, again.host, again.port) == (
        endpoint.scheme,
        endpoint.host,
        endpoint.port,
    )
    assert identity_of(again, None).host == identity.host == identity.tls_name
    assert identity_of(endpoint, identity.host) == identity
    assert len(set(labels_of([(None, endpoint)] * 3))) == 3
