"""What is wrong, why, and what its owner can do about it: in words, for the page. Pure.

Each note says what it is certain of. What is only counted since the start, and may be long over,
is never more than an ``info``, unless it is much.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nxdns.snapshots import (
    FlightSnapshot,
    ListenerSnapshot,
    MissingSnapshot,
    Overview,
    ReloadSnapshot,
    StoreSnapshot,
    UpstreamSnapshot,
)

Severity = Literal["critical", "warning", "info"]

Flights = Mapping[int, Sequence[FlightSnapshot]]
"""The last exchanges by an upstream's index, at most a minute old."""

_ORDER: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}

# Of the last minute's exchanges. Fewer say little: two names looked up at once may be all.
_ENOUGH_EXCHANGES = 10
_MOST = 0.5
# One wait in a burst of a phone that wakes up is what the queue is for.
_ENOUGH_WAITS = 5
_SHARE_WAITING = 0.1
_WAITED_SECONDS = 0.001  # below, a slot was free and the clock ran on

# Of the last 32 outcomes, and only while the last failure is news.
_ENOUGH_FAILURES = 3
_NEWS_SECONDS = 600.0

_DROPPED_MUCH = 0.001  # of what was received
_CHURN = 0.2  # recoveries an exchange
_ENOUGH_RECOVERIES = 20


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that its owner should know."""

    key: str
    """The same for the same thing at the next look."""
    severity: Severity
    title: str
    cause: str
    what_to_do: str
    details: tuple[str, ...] = ()
    """Lines to read as they are, as those of a configuration that was refused."""


def advise(overview: Overview, flights: Flights) -> tuple[Note, ...]:
    """Everything worth knowing now, the worst first."""
    notes = [
        *_all_down(overview),
        *_reload(overview.reload),
        *_store(overview.store),
        *_missing(overview.missing_listeners),
    ]
    for upstream in overview.upstreams:
        if upstream.enabled:
            notes += _upstream(upstream, overview, flights.get(upstream.index, ()))
    for listener in overview.listeners:
        notes += _drops(listener)
        notes += _refused(listener)
    return tuple(sorted(notes, key=lambda note: _ORDER[note.severity]))


class _Advice(NamedTuple):
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
_BY_CAUSE: dict[str, _Advice] = {
    "ConnectionRefused": _Advice(
        "refuses connections",
        "Its machine answers, but nothing accepts connections at that address and port; or a "
        "firewall refuses them in its name.",
        "Compare address and port of its url with what its operator publishes: 853 for tls://, "
        "443 for https://. Some networks block port 853: its https:// form then works.",
    ),
    "HostUnreachable": _Advice(
        "cannot be reached",
        "The network says that there is no way to its address.",
        _ELSEWHERE + "If all else works, check the address in its url.",
    ),
    "NetworkUnreachable": _Advice(
        "cannot be reached",
        "This machine has no route to its address.",
        _ELSEWHERE + "If the address is of IPv6 and the line has none, use its IPv4 address.",
    ),
    "NameNotResolved": _Advice(
        "has a name that is not found",
        "The host of its url is a name, and this machine's resolver does not find it; it may be "
        "asking nxdns itself.",
        "Write its address into url, and its name into tls_name.",
    ),
    "CertificateExpired": _Advice(
        "shows an expired certificate",
        "The certificate of the upstream has passed its last day, or this machine's clock is in "
        "the future. It may not be who it says it is, so it is not asked.",
        _CLOCK + "If the clock is right, the upstream's operator must renew the certificate: use "
        "another upstream meanwhile. " + _VERIFICATION,
    ),
    "CertificateNotYetValid": _Advice(
        "shows a certificate that is not valid yet",
        "The first day of its certificate is to come. Most often the clock of this machine is "
        "wrong: it is in the past.",
        _CLOCK + _VERIFICATION,
    ),
    "CertificateUntrusted": _Advice(
        "shows a certificate that nobody vouches for",
        "No authority that this machine trusts has signed it. Somebody on the way may be "
        "intercepting the connection; or it has an authority of its own.",
        "For an upstream of your own, name its authority in ca_file under [tls]. For a public one, "
        "install the system's ca-certificates, and mistrust the network if that does not help. "
        + _VERIFICATION,
    ),
    "CertificateNameMismatch": _Advice(
        "shows a certificate for another name",
        "Its certificate is good, but not for the name that it must prove.",
        "Set tls_name to the name that its operator publishes for DNS over TLS or HTTPS, and check "
        "the address in url. " + _VERIFICATION,
    ),
    "TlsAlert": _Advice(
        "ends the TLS handshake",
        "It refused the handshake: it may want other versions or ciphers of TLS, or does not "
        "know the name it is asked for.",
        "Check port and tls_name. An old server that speaks neither TLS 1.2 nor 1.3 cannot be "
        "used.",
    ),
    "TlsProtocol": _Advice(
        "does not speak TLS there",
        "What it sent is not TLS 1.2 or 1.3; often the port is one of plain DNS or of HTTP.",
        "Check the port of its url: 853 for tls://, 443 for https://.",
    ),
    "HttpVersionNotSupported": _Advice(
        "wants HTTP/2",
        "It answers DNS over HTTPS by HTTP/2 alone, which nxdns does not speak.",
        "Use its tls:// form, or another upstream.",
    ),
    "Redirect": _Advice(
        "sends to another address",
        "It answers with a redirect, which is never followed: queries would go where nobody has "
        "configured it.",
        "Write the address that its operator publishes into url, path included.",
    ),
    "ClientError": _Advice(
        "refuses the requests",
        "It answers with an HTTP status of 4xx: wrong path, or it knows this household and wants "
        "it no more.",
        "Check the path of its url, often /dns-query, and the terms of its operator.",
    ),
    "ServerError": _Advice(
        "is broken at its end",
        "It answers with an HTTP status of 5xx.",
        _PROVIDER,
    ),
}

_HTTP2_ALERT = _Advice(
    "ends the TLS handshake; it may want HTTP/2",
    "It refused the handshake. A server of DNS over HTTPS that speaks HTTP/2 alone does so, as "
    "nxdns does not speak it; so does one that does not know the name it is asked for.",
    "Use its tls:// form; or check tls_name.",
)

_NO_ROUTE = _Advice(
    "does not answer",
    "Nothing answers at its address, not even with a refusal: it is down, or a firewall swallows "
    "what is sent.",
    _ELSEWHERE + "Check address and port of its url. Some networks swallow port 853: its https:// "
    "form then works.",
)

_SILENT: dict[str, _Advice] = {
    "dial": _NO_ROUTE,
    "tls": _Advice(
        "is silent: it accepts connections and no more",
        "The connection opens, but the TLS handshake never ends: the server hangs, or something "
        "on the way swallows what is sent.",
        "Check the port of its url. " + _PROVIDER,
    ),
}

_SILENT_ELSE = _Advice(
    "is silent",
    "It accepts connections and takes queries, but no answer comes within the time of one attempt.",
    "If others are slow too, it is the line: look at a router that is overloaded or a download "
    "that fills it. " + _PROVIDER,
)

# By kind, for the causes that have no words of their own.
_BY_KIND: dict[str, _Advice] = {
    "ConnectFailed": _NO_ROUTE,
    "TlsFailed": _Advice(
        "fails the TLS handshake",
        "The connection opens, and no encryption that can be trusted comes about.",
        "Check port and tls_name; nxdns check tells more. " + _VERIFICATION,
    ),
    "SendFailed": _Advice(
        "hangs up",
        "It closes its sessions before it has taken the query.",
        _PROVIDER,
    ),
    "ReceiveFailed": _Advice(
        "hangs up without an answer",
        "It takes the query and ends the session: it may be overloaded, refuse this client, or "
        "something on the way cuts the connection.",
        "Check that its url is of a resolver, with the right port. " + _PROVIDER,
    ),
    "HttpStatus": _Advice(
        "does not answer as DNS over HTTPS does",
        "It answers with an HTTP status that says nothing.",
        "Check the path of its url, often /dns-query.",
    ),
    "HttpContentType": _Advice(
        "does not answer as DNS over HTTPS does",
        "What it sends is not of the type application/dns-message: it is a web page, or another "
        "form of DNS over HTTPS. A network that wants a login answers so, too.",
        "Check the path of its url, often /dns-query; log in to the network if it wants that.",
    ),
    "BadResponse": _Advice(
        "sends broken answers",
        "What it sends is not a DNS message that can be read.",
        "Check that its url is of a resolver. " + _PROVIDER,
    ),
    "ResponseMismatch": _Advice(
        "answers other questions than were asked",
        "Its answers are to something else; nobody is shown them. It is broken, or something on "
        "the way is.",
        _PROVIDER,
    ),
    "ResponseTooLarge": _Advice(
        "sends too much",
        "Its answers are longer than a DNS message can be.",
        "Check that its url is of a resolver. " + _PROVIDER,
    ),
}

_WEAK_CERTIFICATE = _Advice(
    "shows a certificate that cannot be trusted",
    "Its certificate was refused for the reason that the cause names.",
    "Compare url and tls_name with what its operator publishes. " + _VERIFICATION,
)

_UNKNOWN = _Advice("fails", "Its exchanges fail.", "nxdns check asks it once, and tells more.")

_FAULT = re.compile(r"(\w+) \(cause (\w+)\)")


def _all_down(overview: Overview) -> list[Note]:
    enabled = [each for each in overview.upstreams if each.enabled]
    if not enabled or not all(each.tripped for each in enabled):
        return []
    return [
        Note(
            "all-down",
            "critical",
            "No name is resolved: every upstream fails",
            "None of the upstreams that are enabled is trusted now. Clients get SERVFAIL, unless "
            "one of them answers when it is tried again, which happens with every query.",
            "If all fail in the same way, it is this machine's line, clock or firewall; what is "
            "wrong with each stands below.",
        )
    ]


def _reload(reload: ReloadSnapshot) -> list[Note]:
    if not reload.last_ok:
        return [
            Note(
                "reload",
                "warning",
                "The last reload failed",
                "The configuration cannot be used as it is written, so nothing of it was: nxdns "
                "goes on with the one before.",
                "Correct the lines below, let nxdns check try the file, and reload again.",
                reload.problems,
            )
        ]
    if reload.problems:
        return [
            Note(
                "reload",
                "info",
                "A part of the configuration does not apply yet",
                "It was reloaded; what of it could not be applied while nxdns runs stands below.",
                "Restart nxdns when it suits for what needs that.",
                reload.problems,
            )
        ]
    return []


def _store(store: StoreSnapshot) -> list[Note]:
    notes = []
    if store.failing:
        notes.append(
            Note(
                "store",
                "warning",
                "Episodes cannot be stored",
                f"The store at {store.path} cannot be written: {store.failing}. DNS does not need "
                "it: what is open is kept in memory, and would be lost with a restart.",
                "Make room on its file system, mount it writable, or let path under [storage] name "
                "a file in a folder that nxdns may write. It is tried again by itself.",
            )
        )
    if store.set_aside:
        notes.append(
            Note(
                "store-damaged",
                "info",
                "The store of episodes was damaged",
                f"It was put away as {store.set_aside}, and a new one begun.",
                "Nothing, unless it happens again: then look at the card or disk below it.",
            )
        )
    return notes


def _missing(missing: Sequence[MissingSnapshot]) -> list[Note]:
    return [
        Note(
            f"missing {each.address}",
            "warning",
            f"Not listening on {each.address}",
            f"It cannot be had now: {each.reason}.",
            "Nothing, if that passes: it is tried again every second. Otherwise correct it under "
            "[server] listen, and reload nxdns.",
        )
        for each in missing
    ]


def _upstream(
    upstream: UpstreamSnapshot, overview: Overview, flight: Sequence[FlightSnapshot]
) -> list[Note]:
    notes = []
    if upstream.tripped:
        notes.append(_tripped(upstream, overview))
    else:
        notes += _flapping(upstream, overview.at)
    notes += _refusing(upstream, flight)
    notes += _queueing(upstream, flight)
    if upstream.serial:
        notes.append(
            Note(
                f"serial {upstream.url}",
                "info",
                f"{upstream.label} is asked one query a session",
                "It closes its sessions behind its answers, so each of them carries one query at a "
                "time. That is slower in a burst, and nothing is lost.",
                "Nothing; an upstream that keeps its sessions open is quicker.",
            )
        )
    notes += _churning(upstream)
    return notes


def _tripped(upstream: UpstreamSnapshot, overview: Overview) -> Note:
    fault = _FAULT.fullmatch(upstream.last_error)
    kind, cause = fault.groups() if fault else ("", "")
    advice = _of_fault(kind, cause, upstream, overview)
    others = [
        each.label
        for each in overview.upstreams
        if each.enabled and not each.tripped and each.index != upstream.index
    ]
    meanwhile = f" Meanwhile queries go to {others[0]}." if others else ""
    return Note(
        f"tripped {upstream.url}",
        "warning" if others else "critical",
        f"{upstream.label} {advice.title}",
        f"{upstream.last_error}: {advice.cause}{meanwhile}"
        if upstream.last_error
        else advice.cause + meanwhile,
        advice.what_to_do,
    )


def _of_fault(kind: str, cause: str, upstream: UpstreamSnapshot, overview: Overview) -> _Advice:
    if kind == "Timeout" or cause in ("Timeout", "ConnectionTimedOut"):
        if kind == "ConnectFailed":
            return _NO_ROUTE
        return _SILENT.get(_last_phase(upstream, overview), _SILENT_ELSE)
    if cause == "TlsAlert" and upstream.url.startswith("https://"):
        return _HTTP2_ALERT
    if cause in _BY_CAUSE:
        return _BY_CAUSE[cause]
    if cause.startswith("Certificate"):
        return _WEAK_CERTIFICATE
    return _BY_KIND.get(kind, _UNKNOWN)


def _last_phase(upstream: UpstreamSnapshot, overview: Overview) -> str:
    """Where its last failure before its episode ended, or ""."""
    for episode in overview.open_episodes:
        if episode.subject == upstream.label:
            return next((each.ended_in for each in episode.flight if each.failed), "")
    return ""


def _flapping(upstream: UpstreamSnapshot, at: float) -> list[Note]:
    failures = upstream.window.count("0")
    last = upstream.last_error_at
    if failures < _ENOUGH_FAILURES or last is None or at - last > _NEWS_SECONDS:
        return []
    often = failures >= _MOST * len(upstream.window)
    return [
        Note(
            f"flapping {upstream.url}",
            "info",  # a warning about an upstream means that it is not trusted
            f"{upstream.label} fails {'often' if often else 'now and then'}",
            f"{failures} of its last {len(upstream.window)} exchanges failed, the last with "
            f"{upstream.last_error}. Too few in a row to pass it over; each costs a client time.",
            "If it goes on, give another upstream a lower priority number, so that it is asked "
            "first.",
        )
    ]


def _refusing(upstream: UpstreamSnapshot, flight: Sequence[FlightSnapshot]) -> list[Note]:
    answers = [each.outcome for each in flight if not each.failed]
    if len(answers) < _ENOUGH_EXCHANGES:
        return []
    for rcode, why in (
        ("SERVFAIL", "It cannot resolve them itself: it, or the line behind it, is broken."),
        ("REFUSED", "It does not serve this client."),
    ):
        count = answers.count(rcode)
        if count >= _MOST * len(answers):
            return [
                Note(
                    f"rcode {upstream.url}",
                    "warning",
                    f"{upstream.label} answers {rcode} to most queries",
                    f"{count} of its last {len(answers)} answers were {rcode}. {why} An answer is "
                    "an answer, so it stays trusted, and clients get these.",
                    "Set enabled = false for it, or give another upstream a lower priority number, "
                    "and reload; tell its operator.",
                )
            ]
    return []


def _queueing(upstream: UpstreamSnapshot, flight: Sequence[FlightSnapshot]) -> list[Note]:
    waits = [each.phase_seconds[0] for each in flight if each.phase_seconds[0] > _WAITED_SECONDS]
    full = upstream.in_flight >= upstream.slots > 0
    many = len(waits) >= max(_ENOUGH_WAITS, _SHARE_WAITING * len(flight))
    if not (full or many):
        return []
    waited = (
        f" {len(waits)} of the last {len(flight)} waited, {sum(waits) / len(waits):.1f} s on "
        "average."
        if waits
        else ""
    )
    return [
        Note(
            f"queueing {upstream.url}",
            "warning",
            f"{upstream.label} is saturated: queries wait in line for it",
            f"All of its {upstream.slots} places were in use at once.{waited} It answers more "
            "slowly than clients ask.",
            "See below where its time goes. If it is slow, give a nearer upstream a lower priority "
            "number; if one device asks without end, find it.",
        )
    ]


def _churning(upstream: UpstreamSnapshot) -> list[Note]:
    recoveries = upstream.reuse_recoveries_total
    if recoveries < _ENOUGH_RECOVERIES or recoveries < _CHURN * upstream.successes_total:
        return []
    return [
        Note(
            f"churn {upstream.url}",
            "info",
            f"{upstream.label} closes idle sessions early",
            f"{recoveries} of {upstream.successes_total} exchanges found their session closed, and "
            "opened another, which costs a handshake each. Nothing was lost.",
            "Nothing; a router that forgets connections too soon can often be set to wait longer.",
        )
    ]


def _drops(listener: ListenerSnapshot) -> list[Note]:
    received = listener.udp.get("received", 0)
    kernel = listener.udp_kernel_drops or 0
    no_slot = listener.udp.get("dropped_no_slot", 0)
    rejected = listener.tcp.get("rejected_at_capacity", 0)
    notes = []
    if kernel:
        notes.append(
            Note(
                f"kernel-drops {listener.address}",
                _much(kernel, received + kernel),
                f"The kernel dropped {kernel} queries to {listener.address}",
                "They came faster than this machine could read them, and its buffer was full. "
                "Clients that got no answer ask again. Counted since the start.",
                "If it grows: allow a larger buffer (sysctl net.core.rmem_max=1048576, and restart "
                "nxdns), and look what else keeps this machine busy.",
            )
        )
    if no_slot:
        notes.append(
            Note(
                f"no-slot {listener.address}",
                _much(no_slot, received),
                f"{no_slot} queries to {listener.address} were dropped",
                f"{listener.udp_capacity} were being answered already. Clients that got no answer "
                "ask again. Counted since the start.",
                "If it grows, the upstreams are slow, see there, or one device asks without end.",
            )
        )
    if rejected:
        accepted = listener.tcp.get("accepted", 0)
        notes.append(
            Note(
                f"tcp-capacity {listener.address}",
                _much(rejected, accepted + rejected),
                f"{rejected} TCP connections to {listener.address} were closed",
                f"{listener.tcp_capacity} were open already. Counted since the start.",
                "If it grows, find the device that opens so many.",
            )
        )
    return notes


def _refused(listener: ListenerSnapshot) -> list[Note]:
    queries = listener.udp.get("dropped_not_allowed", 0)
    connections = listener.tcp.get("rejected_not_allowed", 0)
    if not queries and not connections:
        return []
    received = listener.udp.get("received", 0)
    accepted = listener.tcp.get("accepted", 0)
    shown = " and ".join(
        _plural(count, what)
        for count, what in ((queries, "UDP query"), (connections, "TCP connection"))
        if count
    )
    return [
        Note(
            f"not-allowed {listener.address}",
            _much(queries + connections, received + accepted + connections),
            f"{shown} to {listener.address} came from clients that may not ask",
            "Their addresses are not in allow under [server], so they get no answer. Whose they "
            "were is not kept. Counted since the start.",
            "If a device of yours gets no answer, add the prefix of its network to allow under "
            '[server], beside "private" and "on-link", and reload: these do not mean a public '
            "network behind another router, nor 100.64.0.0/10, which some VPNs use. If all of them "
            "get answers, it was strangers: let a firewall keep them away from this port.",
        )
    ]


def _plural(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"


def _much(count: int, of: int) -> Severity:
    return "warning" if count > _DROPPED_MUCH * of else "info"
