"""Every series of ours on /metrics.

No label holds a client's address, a query's name or the text of a fault. A counter is since the
start of the process, and no reload makes it fall.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from nxdns.snapshots import HttpSnapshot, Overview, ReloadSnapshot
from nxdns.web.series import Series, counter, gauge
from nxdns.web.server_series import HANDLER, LISTENER
from nxdns.web.upstream_series import UPSTREAM

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
        "Addresses of server.listen that are not listened on now, though somebody could ask "
        "there. Each is tried again every second.",
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
    for of_upstream in UPSTREAM:
        yield of_upstream.family(("index", "url"), upstreams)
    for of_handler in HANDLER:
        yield of_handler.family((), [((), seen.handler)])
    listeners = [((each.address,), each) for each in seen.listeners]
    for of_listener in LISTENER:
        yield of_listener.family(("listener",), listeners)
    for of_reload in _RELOAD:
        yield of_reload.family((), [((), seen.reload)])
    for of_http in _HTTP:
        yield of_http.family((), [((), http)])
    for of_process in _PROCESS:
        yield of_process.family((), [((), seen)])
    yield _BUILD.family(("version", "python"), [((seen.version, seen.python), seen)])
