"""The faults of an upstream in words, by their kind and cause. Pure."""

from typing import NamedTuple


class FaultWords(NamedTuple):
    """What an upstream does that fails, why, and what its owner can do about it."""

    title: str
    cause: str
    what_to_do: str


_CLOCK = (
    "Compare this machine's clock with a watch (date -u). A small computer without a battery "
    "starts in the past: let it set its clock from a server given by address, as names need DNS. "
)
_ELSEWHERE = "Look whether this machine reaches anything else: its cable or Wi-Fi, its router. "
_PROVIDER = "If it goes on, it is for the upstream's operator to mend: use another one meanwhile."
_VERIFICATION = "The certificate is always checked; there is no way to turn that off."

# By cause, whatever the kind.
_BY_CAUSE: dict[str, FaultWords] = {
    "ConnectionRefused": FaultWords(
        "refuses connections",
        "Its machine answers, but nothing accepts connections at that address and port; or a "
        "firewall refuses them in its name.",
        "Compare address and port of its url with what its operator publishes: 853 for tls://, "
        "443 for https://. Some networks block port 853: its https:// form then works.",
    ),
    "HostUnreachable": FaultWords(
        "cannot be reached",
        "The network says that there is no way to its address.",
        _ELSEWHERE + "If all else works, check the address in its url.",
    ),
    "NetworkUnreachable": FaultWords(
        "cannot be reached",
        "This machine has no route to its address.",
        _ELSEWHERE + "If the address is of IPv6 and the line has none, use its IPv4 address.",
    ),
    "NameNotResolved": FaultWords(
        "has a name that is not found",
        "The host of its url is a name, and this machine's resolver does not find it; it may be "
        "asking nxdns itself.",
        "Write its address into url, and its name into tls_name.",
    ),
    "CertificateExpired": FaultWords(
        "shows an expired certificate",
        "The certificate of the upstream has passed its last day, or this machine's clock is in "
        "the future. It may not be who it says it is, so it is not asked.",
        _CLOCK + "If the clock is right, the upstream's operator must renew the certificate: use "
        "another upstream meanwhile. " + _VERIFICATION,
    ),
    "CertificateNotYetValid": FaultWords(
        "shows a certificate that is not valid yet",
        "The first day of its certificate is to come. Most often the clock of this machine is "
        "wrong: it is in the past.",
        _CLOCK + _VERIFICATION,
    ),
    "CertificateUntrusted": FaultWords(
        "shows a certificate that nobody vouches for",
        "No authority that this machine trusts has signed it. Somebody on the way may be "
        "intercepting the connection; or it has an authority of its own.",
        "For an upstream of your own, name its authority in ca_file under [tls]. For a public one, "
        "install the system's ca-certificates, and mistrust the network if that does not help. "
        + _VERIFICATION,
    ),
    "CertificateNameMismatch": FaultWords(
        "shows a certificate for another name",
        "Its certificate is good, but not for the name that it must prove.",
        "Set tls_name to the name that its operator publishes for DNS over TLS or HTTPS, and check "
        "the address in url. " + _VERIFICATION,
    ),
    "TlsAlert": FaultWords(
        "ends the TLS handshake",
        "It refused the handshake: it may want other versions or ciphers of TLS, or does not "
        "know the name it is asked for.",
        "Check port and tls_name. An old server that speaks neither TLS 1.2 nor 1.3 cannot be "
        "used.",
    ),
    "TlsProtocol": FaultWords(
        "does not speak TLS there",
        "What it sent is not TLS 1.2 or 1.3; often the port is one of plain DNS or of HTTP.",
        "Check the port of its url: 853 for tls://, 443 for https://.",
    ),
    "HttpVersionNotSupported": FaultWords(
        "wants HTTP/2",
        "It answers DNS over HTTPS by HTTP/2 alone, which nxdns does not speak.",
        "Use its tls:// form, or another upstream.",
    ),
    "Redirect": FaultWords(
        "sends to another address",
        "It answers with a redirect, which is never followed: queries would go where nobody has "
        "configured it.",
        "Write the address that its operator publishes into url, path included.",
    ),
    "ClientError": FaultWords(
        "refuses the requests",
        "It answers with an HTTP status of 4xx: wrong path, or it knows this household and wants "
        "it no more.",
        "Check the path of its url, often /dns-query, and the terms of its operator.",
    ),
    "ServerError": FaultWords(
        "is broken at its end",
        "It answers with an HTTP status of 5xx.",
        _PROVIDER,
    ),
}

_HTTP2_ALERT = FaultWords(
    "ends the TLS handshake; it may want HTTP/2",
    "It refused the handshake. A server of DNS over HTTPS that speaks HTTP/2 alone does so, as "
    "nxdns does not speak it; so does one that does not know the name it is asked for.",
    "Use its tls:// form; or check tls_name.",
)

_NO_ROUTE = FaultWords(
    "does not answer",
    "Nothing answers at its address, not even with a refusal: it is down, or a firewall swallows "
    "what is sent.",
    _ELSEWHERE + "Check address and port of its url. Some networks swallow port 853: its https:// "
    "form then works.",
)

_SILENT: dict[str, FaultWords] = {
    "dial": _NO_ROUTE,
    "tls": FaultWords(
        "is silent: it accepts connections and no more",
        "The connection opens, but the TLS handshake never ends: the server hangs, or something "
        "on the way swallows what is sent.",
        "Check the port of its url. " + _PROVIDER,
    ),
}

_SILENT_ELSE = FaultWords(
    "is silent",
    "It accepts connections and takes queries, but no answer comes within the time of one attempt.",
    "If others are slow too, it is the line: look at a router that is overloaded or a download "
    "that fills it. " + _PROVIDER,
)

# By kind, for the causes that have no words of their own.
_BY_KIND: dict[str, FaultWords] = {
    "ConnectFailed": _NO_ROUTE,
    "TlsFailed": FaultWords(
        "fails the TLS handshake",
        "The connection opens, and no encryption that can be trusted comes about.",
        "Check port and tls_name; nxdns check tells more. " + _VERIFICATION,
    ),
    "SendFailed": FaultWords(
        "hangs up",
        "It closes its sessions before it has taken the query.",
        _PROVIDER,
    ),
    "ReceiveFailed": FaultWords(
        "hangs up without an answer",
        "It takes the query and ends the session: it may be overloaded, refuse this client, or "
        "something on the way cuts the connection.",
        "Check that its url is of a resolver, with the right port. " + _PROVIDER,
    ),
    "HttpStatus": FaultWords(
        "does not answer as DNS over HTTPS does",
        "It answers with an HTTP status that says nothing.",
        "Check the path of its url, often /dns-query.",
    ),
    "HttpContentType": FaultWords(
        "does not answer as DNS over HTTPS does",
        "What it sends is not of the type application/dns-message: it is a web page, or another "
        "form of DNS over HTTPS. A network that wants a login answers so, too.",
        "Check the path of its url, often /dns-query; log in to the network if it wants that.",
    ),
    "BadResponse": FaultWords(
        "sends broken answers",
        "What it sends is not a DNS message that can be read.",
        "Check that its url is of a resolver. " + _PROVIDER,
    ),
    "ResponseMismatch": FaultWords(
        "answers other questions than were asked",
        "Its answers are to something else; nobody is shown them. It is broken, or something on "
        "the way is.",
        _PROVIDER,
    ),
    "ResponseTooLarge": FaultWords(
        "sends too much",
        "Its answers are longer than a DNS message can be.",
        "Check that its url is of a resolver. " + _PROVIDER,
    ),
}

_WEAK_CERTIFICATE = FaultWords(
    "shows a certificate that cannot be trusted",
    "Its certificate was refused for the reason that the cause names.",
    "Compare url and tls_name with what its operator publishes. " + _VERIFICATION,
)

_UNKNOWN = FaultWords("fails", "Its exchanges fail.", "nxdns check asks it once, and tells more.")


def words_for(kind: str, cause: str, *, last_phase: str, is_https: bool) -> FaultWords:
    """``last_phase`` is where the last exchange of this fault ended, or "" if that is not known."""
    if kind == "Timeout" or cause in ("Timeout", "ConnectionTimedOut"):
        if kind == "ConnectFailed":
            return _NO_ROUTE
        return _SILENT.get(last_phase, _SILENT_ELSE)
    if cause == "TlsAlert" and is_https:
        return _HTTP2_ALERT
    if cause in _BY_CAUSE:
        return _BY_CAUSE[cause]
    if cause.startswith("Certificate"):
        return _WEAK_CERTIFICATE
    return _BY_KIND.get(kind, _UNKNOWN)
