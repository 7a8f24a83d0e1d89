"""The series of the queries, and of each listener."""

from nxdns.snapshots import HandlerSnapshot, ListenerSnapshot
from nxdns.web.series import Series, counter, gauge, histogram


def _total(name: str, meaning: str) -> Series[HandlerSnapshot]:
    return counter(f"nxdns_handler_{name}_total", meaning, lambda h: h.totals[name])


HANDLER: tuple[Series[HandlerSnapshot], ...] = (
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


LISTENER: tuple[Series[ListenerSnapshot], ...] = (
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
