"""The series of each upstream."""

from nxdns.snapshots import UpstreamSnapshot
from nxdns.web.series import Series, counter, gauge, histogram

# Those that a graph or an alert is made of exist before they happen: a rate needs two samples.
_USUAL_RCODES = {"NOERROR": 0, "NXDOMAIN": 0, "SERVFAIL": 0, "REFUSED": 0}

UPSTREAM: tuple[Series[UpstreamSnapshot], ...] = (
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
