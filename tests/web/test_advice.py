"""What the page tells its owner: each trouble by name, with its cause and what to do."""

from collections.abc import Sequence

import pytest

from nxdns.snapshots import FlightSnapshot, Overview, ReloadSnapshot, StoreSnapshot
from nxdns.upstream.errors import Cause, FaultKind
from nxdns.web.advice import Flights, advise
from nxdns.web.notes import Note
from tests.support.overviews import (
    AT,
    episode_of,
    flight_of,
    listener_of,
    missing_of,
    overview_of,
    tripped_of,
    upstream_of,
)

NOTHING: Flights = {}


def only_note(overview: Overview, flights: Flights = NOTHING) -> Note:
    (note,) = advise(overview, flights)
    return note


def note_of_fault(fault: str, *, url: str = "tls://192.0.2.1", ended_in: str = "") -> Note:
    """That of one upstream of two that has failed by ``fault``."""
    flight = (flight_of(fault, ended_in=ended_in),) if ended_in else ()
    overview = overview_of(
        tripped_of(fault, label="one", url=url),
        upstream_of(1, label="other"),
        open_episodes=(episode_of("one", flight=flight),),
    )
    return only_note(overview)


def test_while_all_is_well_there_is_nothing_to_say() -> None:
    flights = {0: [flight_of() for _ in range(256)]}
    assert advise(overview_of(), flights) == ()


@pytest.mark.parametrize(
    ("fault", "title", "what_to_do"),
    [
        ("ConnectFailed (cause ConnectionRefused)", "one refuses connections", "address and port"),
        ("ConnectFailed (cause HostUnreachable)", "one cannot be reached", "router"),
        ("ConnectFailed (cause NetworkUnreachable)", "one cannot be reached", "IPv4"),
        ("ConnectFailed (cause ConnectionTimedOut)", "one does not answer", "port 853"),
        ("ConnectFailed (cause ErrnoEPERM)", "one does not answer", "port"),
        ("ConnectFailed (cause NameNotResolved)", "one has a name that is not found", "tls_name"),
        ("TlsFailed (cause CertificateExpired)", "one shows an expired certificate", "clock"),
        (
            "TlsFailed (cause CertificateNotYetValid)",
            "one shows a certificate that is not valid yet",
            "clock",
        ),
        (
            "TlsFailed (cause CertificateUntrusted)",
            "one shows a certificate that nobody vouches for",
            "ca_file",
        ),
        (
            "TlsFailed (cause CertificateNameMismatch)",
            "one shows a certificate for another name",
            "tls_name",
        ),
        (
            "TlsFailed (cause CertificateEeKeyTooSmall)",
            "one shows a certificate that cannot be trusted",
            "operator",
        ),
        ("TlsFailed (cause TlsAlert)", "one ends the TLS handshake", "port"),
        ("TlsFailed (cause TlsProtocol)", "one does not speak TLS there", "853"),
        ("TlsFailed (cause EndOfStream)", "one fails the TLS handshake", "nxdns check"),
        ("SendFailed (cause BrokenPipe)", "one hangs up", "another one"),
        ("ReceiveFailed (cause EndOfStream)", "one hangs up without an answer", "resolver"),
        ("HttpStatus (cause HttpVersionNotSupported)", "one wants HTTP/2", "tls:// form"),
        ("HttpStatus (cause Redirect)", "one sends to another address", "url"),
        ("HttpStatus (cause ClientError)", "one refuses the requests", "/dns-query"),
        ("HttpStatus (cause ServerError)", "one is broken at its end", "operator"),
        ("HttpContentType (cause WrongType)", "one does not answer as DNS over HTTPS", "path"),
        ("BadResponse (cause Malformed)", "one sends broken answers", "resolver"),
        ("ResponseMismatch (cause WrongId)", "one answers other questions", "operator"),
        ("ResponseTooLarge (cause BodyLength)", "one sends too much", "resolver"),
        ("Timeout (cause Timeout)", "one is silent", "line"),
    ],
)
def test_an_upstream_that_is_not_trusted_is_named_with_its_cause_and_a_remedy(
    fault: str, title: str, what_to_do: str
) -> None:
    note = note_of_fault(fault)
    assert note.severity == "warning"
    assert note.title.startswith(title)
    assert note.cause.startswith(f"{fault}: ")
    assert "queries go to other" in note.cause
    assert what_to_do in note.what_to_do


@pytest.mark.parametrize(
    ("ended_in", "title"),
    [
        ("dial", "one does not answer"),
        ("tls", "one is silent: it accepts connections and no more"),
        ("first_byte", "one is silent"),
        ("", "one is silent"),
    ],
)
def test_a_silent_upstream_is_told_apart_by_where_its_exchanges_end(
    ended_in: str, title: str
) -> None:
    assert note_of_fault("Timeout (cause Timeout)", ended_in=ended_in).title == title


def test_an_alert_of_an_https_upstream_may_be_for_http2() -> None:
    note = note_of_fault("TlsFailed (cause TlsAlert)", url="https://192.0.2.1/…")
    assert "HTTP/2" in note.title
    assert "tls://" in note.what_to_do


@pytest.mark.parametrize("cause", [c for c in Cause if c.startswith("Certificate")])
def test_no_advice_on_a_certificate_ever_says_to_trust_it_anyway(cause: Cause) -> None:
    assert "always checked" in note_of_fault(f"TlsFailed (cause {cause})").what_to_do


@pytest.mark.parametrize("kind", [kind.value for kind in FaultKind])
def test_every_fault_has_words_of_its_own(kind: str) -> None:
    for cause in Cause:
        note = note_of_fault(f"{kind} (cause {cause})")
        assert note.title != "one fails"
        assert note.what_to_do.endswith(".")


def test_with_every_upstream_failing_the_house_is_told_first() -> None:
    fault = "ConnectFailed (cause NetworkUnreachable)"
    notes = advise(overview_of(tripped_of(fault), tripped_of(fault, 1)), NOTHING)
    assert [note.severity for note in notes] == ["critical"] * 3
    assert "No name is resolved" in notes[0].title
    assert "Meanwhile" not in notes[1].cause


def test_a_disabled_upstream_is_nobodys_trouble() -> None:
    down = tripped_of("Timeout (cause Timeout)", 1, enabled=False, serial=True)
    assert advise(overview_of(upstream_of(), down), NOTHING) == ()


def test_a_failed_reload_shows_every_problem() -> None:
    problems = ("nxdns.toml:3: upstreams[0].prio: unknown key", "nxdns.toml:9: web.listen: no port")
    note = only_note(overview_of(reload=ReloadSnapshot(0, 1, False, AT, problems)))
    assert (note.severity, note.title) == ("warning", "The last reload failed")
    assert note.details == problems
    assert "nxdns check" in note.what_to_do


def test_a_reload_that_does_not_apply_in_part_says_of_what() -> None:
    problems = ("[web] has changed, which needs a restart",)
    note = only_note(overview_of(reload=ReloadSnapshot(1, 0, True, AT, problems)))
    assert (note.severity, note.details) == ("info", problems)
    assert "Restart" in note.what_to_do


def test_a_store_that_cannot_be_written_is_named_with_its_reason() -> None:
    store = StoreSnapshot("/data/events.db", 4, "attempt to write a readonly database", "")
    note = only_note(overview_of(store=store))
    assert note.severity == "warning"
    assert "/data/events.db cannot be written: attempt to write a readonly database" in note.cause
    assert "[storage]" in note.what_to_do


def test_a_damaged_store_is_told_of() -> None:
    store = StoreSnapshot("/data/events.db", 0, "", "/data/events.db.damaged-1")
    assert "/data/events.db.damaged-1" in only_note(overview_of(store=store)).cause


def test_each_missing_listener_is_named_with_the_reason() -> None:
    missing = (missing_of(), missing_of("[::1]:53", "the port is in use by dnsmasq (pid 812)"))
    notes = advise(overview_of(missing_listeners=missing), NOTHING)
    assert [note.title for note in notes] == [
        "Not listening on 192.0.2.1:53",
        "Not listening on [::1]:53",
    ]
    assert "dnsmasq (pid 812)" in notes[1].cause
    assert len({note.key for note in notes}) == 2


def waiting(count: int, of: int, waited: float = 0.5) -> Sequence[FlightSnapshot]:
    slow = [flight_of(phase_seconds=(waited, 0, 0, 0, 1, 0)) for _ in range(count)]
    return [*slow, *(flight_of() for _ in range(of - count))]


@pytest.mark.parametrize(
    ("in_flight", "flight", "noted"),
    [
        pytest.param(8, (), True, id="full-now"),
        pytest.param(7, (), False, id="nearly-full"),
        pytest.param(0, waiting(5, 20), True, id="a-quarter-waited"),
        pytest.param(0, waiting(4, 4), False, id="a-few"),
        pytest.param(0, waiting(5, 256), False, id="a-burst-of-a-minute"),
        pytest.param(0, waiting(20, 20, 0.000_01), False, id="not-really"),
    ],
)
def test_a_saturated_upstream_is_named_while_queries_wait_for_it(
    in_flight: int, flight: Sequence[FlightSnapshot], noted: bool
) -> None:
    # What has waited at any time since the start is no trouble of now.
    overview = overview_of(upstream_of(in_flight=in_flight, slots=8, queued_total=1000))
    notes = advise(overview, {0: flight})
    assert ["saturated" in note.title for note in notes] == [True] * noted
    if noted:
        assert "priority" in notes[0].what_to_do


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED"])
def test_an_upstream_that_answers_and_never_helps_is_named_although_it_is_healthy(
    rcode: str,
) -> None:
    flight = [flight_of(rcode) for _ in range(10)] + [flight_of() for _ in range(10)]
    note = only_note(overview_of(), {0: flight})
    assert (note.severity, note.title) == (
        "warning",
        f"upstream-0 answers {rcode} to most queries",
    )
    assert only_note_or_none({0: flight[1:]}) is None
    assert only_note_or_none({0: flight[:9]}) is None


def only_note_or_none(flights: Flights) -> Note | None:
    notes = advise(overview_of(), flights)
    return notes[0] if notes else None


@pytest.mark.parametrize(
    ("window", "seconds_ago", "words"),
    [
        pytest.param("1010101", 5, "now and then", id="every-other"),
        pytest.param("0101", 5, None, id="two"),
        pytest.param("1010101", 3600, None, id="long-ago"),
        pytest.param("10010", 5, "often", id="most"),
    ],
)
def test_an_upstream_that_flaps_below_the_threshold_is_told_of_and_is_no_warning(
    window: str, seconds_ago: float, words: str | None
) -> None:
    upstream = upstream_of(
        window=window,
        last_error_at=AT - seconds_ago,
        last_error="ReceiveFailed (cause EndOfStream)",
        failures_total=9,
    )
    notes = advise(overview_of(upstream), NOTHING)
    told = [(note.severity, note.title) for note in notes]
    assert told == ([("info", f"upstream-0 fails {words}")] if words else [])


def test_a_serial_upstream_and_one_that_closes_early_are_no_warning() -> None:
    serial = upstream_of(serial=True)
    churning = upstream_of(1, reuse_recoveries_total=30, successes_total=100)
    notes = advise(overview_of(serial, churning), NOTHING)
    assert [note.severity for note in notes] == ["info", "info"]
    assert "one query a session" in notes[0].title
    assert "closes idle sessions early" in notes[1].title


@pytest.mark.parametrize(
    ("received", "severity"), [(100_000, "info"), (1_000, "warning")], ids=["few", "many"]
)
def test_drops_are_named_by_where_they_happen(received: int, severity: str) -> None:
    listener = listener_of(
        udp={"received": received, "dropped_no_slot": 7},
        udp_kernel_drops=5,
        tcp={"accepted": received, "rejected_at_capacity": 3},
    )
    notes = advise(overview_of(listeners=(listener,)), NOTHING)
    assert {note.severity for note in notes} == {severity}
    kernel, no_slot, tcp = notes
    assert "The kernel dropped 5 queries" in kernel.title
    assert "rmem_max" in kernel.what_to_do
    assert "7 queries" in no_slot.title
    assert "3 TCP connections" in tcp.title


@pytest.mark.parametrize(
    ("queries", "connections", "severity", "words"),
    [
        (1, 0, "info", "1 UDP query to"),
        (900, 0, "warning", "900 UDP queries to"),
        (0, 1, "info", "1 TCP connection to"),
        (2, 3, "info", "2 UDP queries and 3 TCP connections to"),
    ],
)
def test_clients_that_may_not_ask_are_counted_with_the_key_that_would_let_them(
    queries: int, connections: int, severity: str, words: str
) -> None:
    listener = listener_of(
        udp={"received": 10**5, "dropped_not_allowed": queries},
        tcp={"accepted": 10**4, "rejected_not_allowed": connections},
    )
    [note] = advise(overview_of(listeners=(listener,)), NOTHING)
    assert note.severity == severity
    assert note.title == f"{words} {listener.address} came from clients that may not ask"
    assert "allow under [server]" in note.what_to_do


def test_where_the_kernel_does_not_tell_of_drops_nothing_is_claimed() -> None:
    overview = overview_of(listeners=(listener_of(udp_kernel_drops=None),))
    assert advise(overview, NOTHING) == ()


def test_the_worst_comes_first_and_every_key_is_its_own() -> None:
    overview = overview_of(
        tripped_of("Timeout (cause Timeout)"),
        upstream_of(1, serial=True),
        listeners=(listener_of(udp={"received": 10**6, "dropped_no_slot": 1}),),
        missing_listeners=(missing_of(),),
        reload=ReloadSnapshot(0, 1, False, AT, ("x",)),
        store=StoreSnapshot("/x", 1, "full", "/y"),
    )
    notes = advise(overview, NOTHING)
    ranks = [("critical", "warning", "info").index(note.severity) for note in notes]
    assert ranks == sorted(ranks)
    assert len({note.key for note in notes}) == len(notes) == 7
