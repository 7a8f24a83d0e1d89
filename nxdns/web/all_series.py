"""Every series of ours on /metrics.

No label holds a client's address, a query's name or the text of a fault. A counter is since the
start of the process, and no reload makes it fall.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from nxdns.snapshots import (
    HandlerSnapshot,
    HttpSnapshot,
    ListenerSnapshot,
    Overview,
    ReloadSnapshot,
    UpstreamSnapshot,
)
from nxdns.web.series import Series, counter, gauge, histogram

# Those that a graph or an alert is made of exist before they happen: a rate needs two samples.
_USUAL_RCODES = {"NOERROR": 0, "NXDOMAIN": 0, "SERVFAIL": 0, "REFUSED": 0}

_UPSTREAM: tuple[Series[UpstreamSnapshot], ...] = (
    gauge(
        "nxdns_upstream_in_flight",
        "Exchanges with this upstream that are under way; those that wait for a slot are not.",
        lambda u: u.in_flight,
    ),
    gauge(
        "nxdns_upstream_peak_in_flight",
        "The most exchanges that were under way at once, since the start or the last reload.",
        lambda u: u.peak_in_flight,
    ),
    gauge(
        "nxdns_upstream_slots",
        "Exchanges that this upstream carries at once; what is beyond them waits.",
        lambda u: u.slots,
    ),
    counter(
        "nxdns_upstream_queued_total",
        "Queries that had to wait for a slot of this upstream (approximate; sampled at admission).",
        lambda u: u.queued_total,
    ),
    counter(
        "nxdns_upstream_queued_seconds_total",
        "How long queries waited for a slot of this upstream, those that gave up included "
        "(approximate; sampled at admission).",
        lambda u: u.queued_seconds_total,
    ),
    counter(
        "nxdns_upstream_reuse_recoveries_total",
        "Redials because the upstream had closed an idle session. Each costs a handshake, and is "
        "no failure.",
        lambda u: u.reuse_recoveries_total,
    ),
    counter(
        "nxdns_upstream_successes_total",
        "Exchanges that ended in a valid answer, whatever its RCODE.",
        lambda u: u.successes_total,
    ),
    counter(
        "nxdns_upstream_failures_total",
        "Exchanges that failed by the upstream's fault. Which fault, the log and the page say.",
        lambda u: u.failures_total,
    ),
    gauge(
        "nxdns_upstream_consecutive_failures",
        "Failures since the last success.",
        lambda u: u.consecutive_failures,
    ),
    gauge(
        "nxdns_upstream_enabled",
        "1 when it may be asked; 0 when the configuration has it disabled.",
        lambda u: u.enabled,
    ),
    gauge(
        "nxdns_upstream_available",
        "1 when its turn may come; 0 while it is in backoff and passed over.",
        lambda u: u.available,
    ),
    gauge(
        "nxdns_upstream_tripped",
        "1 while it is not trusted: it failed as often in a row as health.failure_threshold says, "
        "and has not answered since.",
        lambda u: u.tripped,
    ),
    gauge(
        "nxdns_upstream_success_rate",
        "Successes among the last 32 outcomes, from 0 to 1; 1 before the first.",
        lambda u: u.success_rate,
    ),
    gauge(
        "nxdns_upstream_last_success_timestamp_seconds",
        "When it last answered, in seconds since 1970; no sample before the first time.",
        lambda u: u.last_success_at,
    ),
    gauge(
        "nxdns_upstream_last_error_timestamp_seconds",
        "When it last failed, in seconds since 1970; no sample before the first time.",
        lambda u: u.last_error_at,
    ),
    histogram(
        "nxdns_upstream_exchange_seconds",
        "How long an exchange with this upstream took, success or failure, a redial included, the "
        "wait for a slot excluded.",
        lambda u: u.exchange_seconds,
    ),
    counter(
        "nxdns_exchange_phase_seconds_total",
        "Where the time of its exchanges went: queue (the wait for a slot), dial, tls, send, "
        "first_byte (the wait for the answer), rest (of the answer).",
        lambda u: u.phase_seconds,
        by="phase",
    ),
    counter(
        "nxdns_upstream_responses_total",
        "Valid answers by RCODE. An upstream that answers SERVFAIL to everything stays healthy, "
        "and shows here.",
        lambda u: {**_USUAL_RCODES, **u.rcodes},
        by="rcode",
    ),
    counter(
        "nxdns_upstream_dials_total",
        "Sessions begun, whether or not they opened: each is a TCP and a TLS handshake.",
        lambda u: u.dials_total,
    ),
    gauge(
        "nxdns_upstream_open_sessions",
        "TLS sessions that are open.",
        lambda u: u.open_sessions,
    ),
    gauge(
        "nxdns_upstream_stated_idle_seconds",
        "How long a TLS session may stay idle, as a tls:// server has stated last (RFC 7828); no "
        "sample while it has not.",
        lambda u: u.idle_seconds,
    ),
    counter(
        "nxdns_upstream_late_answers_total",
        "Answers that came when nobody waited for them any more.",
        lambda u: u.late_answers_total,
    ),
    gauge(
        "nxdns_upstream_serial",
        "1 while it is asked one query a session, because it closes its sessions behind answers.",
        lambda u: u.serial,
    ),
)


def _total(name: str, meaning: str) -> Series[HandlerSnapshot]:
    return counter(f"nxdns_handler_{name}_total", meaning, lambda h: h.totals[name])


_HANDLER: tuple[Series[HandlerSnapshot], ...] = (
    _total("queries", "Queries that were answered by an upstream, whatever the RCODE."),
    _total(
        "dropped_malformed",
        "Messages that deserve no reply: cut off, or responses. They are dropped.",
    ),
    _total("formerr", "Queries that cannot be understood, answered FORMERR."),
    _total("notimp", "Messages of another kind than a query, answered NOTIMP."),
    _total("badvers", "Queries of an EDNS version above 0, answered BADVERS."),
    _total("refused", "Zone transfers (AXFR, IXFR), answered REFUSED."),
    _total(
        "servfail",
        "Queries that no upstream answered in time, answered SERVFAIL. An upstream's own SERVFAIL "
        "is in nxdns_upstream_responses_total.",
    ),
    _total(
        "truncated",
        "Answers too long for UDP, of which the client was told to ask again over TCP; they are "
        "among the queries.",
    ),
    _total(
        "upstream_truncated",
        "Answers over TCP that an upstream had truncated, passed on as they are; they are among "
        "the queries.",
    ),
    _total("cancelled", "Queries that were given up because nxdns was stopping."),
    counter(
        "nxdns_servfail_phase_total",
        "The SERVFAILs of nxdns by what the query's time, or its last upstream, ended in: a phase "
        "of nxdns_exchange_phase_seconds_total, or none when it reached no upstream.",
        lambda h: h.servfail_phases,
        by="phase",
    ),
    histogram(
        "nxdns_query_wait_seconds",
        "How long clients waited for what needed an upstream: the wait for a slot, failed attempts "
        "and SERVFAILs included.",
        lambda h: h.wait_seconds,
    ),
)


def _udp(name: str, meaning: str) -> Series[ListenerSnapshot]:
    return counter(f"nxdns_udp_{name}_total", meaning, lambda each: each.udp[name])


def _tcp(name: str, meaning: str) -> Series[ListenerSnapshot]:
    return counter(f"nxdns_tcp_{name}_total", meaning, lambda each: each.tcp[name])


_LISTENER: tuple[Series[ListenerSnapshot], ...] = (
    _udp("received", "Datagrams read, whether or not they were dropped then."),
    _udp(
        "dropped_not_allowed",
        "Datagrams dropped because their client is not in server.allow.",
    ),
    _udp("dropped_oversize", "Datagrams dropped because they are longer than 4096 bytes."),
    _udp(
        "dropped_duplicate",
        "Datagrams dropped because the same one of the same client was being answered: that answer "
        "serves both.",
    ),
    _udp(
        "dropped_no_slot",
        "Datagrams dropped because nxdns_udp_capacity of them were being answered.",
    ),
    _udp(
        "dropped_handler",
        "Datagrams that deserved no reply; they are in nxdns_handler_dropped_malformed_total.",
    ),
    _udp("receive_errors", "Errors of the socket while reading; no datagram was read."),
    _udp("send_errors", "Replies that could not be sent, and are lost."),
    gauge(
        "nxdns_udp_in_flight",
        "Datagrams that are being answered.",
        lambda each: each.udp_in_flight,
    ),
    gauge(
        "nxdns_udp_capacity",
        "Datagrams that can be answered at once.",
        lambda each: each.udp_capacity,
    ),
    counter(
        "nxdns_udp_kernel_drops_total",
        "Datagrams that the kernel dropped before they were read: its receive buffer was full. "
        "No sample where it does not tell.",
        lambda each: each.udp_kernel_drops,
    ),
    _tcp("accepted", "Connections accepted, without the rejected ones."),
    _tcp("messages", "Whole messages read."),
    _tcp(
        "rejected_at_capacity",
        "Connections closed at once because nxdns_tcp_capacity of them were open, or nxdns was "
        "stopping.",
    ),
    _tcp(
        "evicted",
        "Connections closed, with nothing asked on them, to make room for a client that had fewer.",
    ),
    _tcp(
        "rejected_not_allowed",
        "Connections closed at once because their client is not in server.allow.",
    ),
    _tcp("accept_errors", "Errors while accepting: often no descriptor was left."),
    _tcp(
        "connection_errors",
        "Connections ended by an error: reset, cut off within a message, or too slow with one.",
    ),
    _tcp("idle_timeouts", "Connections closed because the client asked nothing for 10 seconds."),
    _tcp(
        "replies_lost",
        "Replies not sent: the client had gone, or did not take them within 10 seconds.",
    ),
    gauge(
        "nxdns_tcp_active_connections",
        "Connections that are open.",
        lambda each: each.tcp_active,
    ),
    gauge(
        "nxdns_tcp_capacity",
        "Connections that can be open at once.",
        lambda each: each.tcp_capacity,
    ),
)

_RELOAD: tuple[Series[ReloadSnapshot], ...] = (
    counter(
        "nxdns_reloads_total",
        "Reloads of the configuration, by result: ok or failed.",
        lambda r: {"ok": r.ok_total, "failed": r.failed_total},
        by="result",
    ),
    gauge(
        "nxdns_last_reload_success",
        "0 when the last reload failed, and what ran before goes on. The start counts as a "
        "success.",
        lambda r: r.last_ok,
    ),
    gauge(
        "nxdns_last_reload_timestamp_seconds",
        "When the last reload was, or the start, in seconds since 1970.",
        lambda r: r.last_at,
    ),
)

_HTTP: tuple[Series[HttpSnapshot], ...] = (
    counter(
        "nxdns_http_rejected_at_capacity_total",
        "HTTP connections closed at once because as many as may be were open.",
        lambda h: h.rejected_at_capacity_total,
    ),
    counter(
        "nxdns_http_errors_total",
        "HTTP requests that were refused or given up, by reason.",
        lambda h: h.errors,
        by="reason",
    ),
)

_PROCESS: tuple[Series[Overview], ...] = (
    gauge(
        "nxdns_listeners_missing",
        "Addresses of server.listen that are not listened on now. Each is tried again every "
        "second.",
        lambda o: len(o.missing_listeners),
    ),
    counter(
        "nxdns_events_write_failures_total",
        "Writes to the store of episodes that failed; what they were to write is kept, and tried "
        "again.",
        lambda o: o.store.write_failures_total,
    ),
)

_BUILD: Series[Overview] = gauge(
    "nxdns_build_info", "Always 1; which version runs, on which Python.", lambda _: 1
)


def families(seen: Overview, http: HttpSnapshot) -> Iterator[Metric]:
    """All of them, each with its samples."""
    upstreams = [((str(each.index), each.url), each) for each in seen.upstreams]
    for of_upstream in _UPSTREAM:
        yield of_upstream.family(("index", "url"), upstreams)
    for of_handler in _HANDLER:
        yield of_handler.family((), [((), seen.handler)])
    listeners = [((each.address,), each) for each in seen.listeners]
    for of_listener in _LISTENER:
        yield of_listener.family(("listener",), listeners)
    for of_reload in _RELOAD:
        yield of_reload.family((), [((), seen.reload)])
    for of_http in _HTTP:
        yield of_http.family((), [((), http)])
    for of_process in _PROCESS:
        yield of_process.family((), [((), seen)])
    yield _BUILD.family(("version", "python"), [((seen.version, seen.python), seen)])
