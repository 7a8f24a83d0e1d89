"""A source of the web surface that says what the test says."""

from dataclasses import replace

from nxdns.snapshots import (
    EpisodeSnapshot,
    FlightSnapshot,
    HandlerSnapshot,
    HistogramSnapshot,
    HttpSnapshot,
    ListenerSnapshot,
    Overview,
    ReloadSnapshot,
    StoreSnapshot,
    UpstreamSnapshot,
)

NO_TROUBLE = HttpSnapshot(0, {})

DURATIONS = HistogramSnapshot((0.001, 0.25, 1.0), (1, 0, 3, 2), 9.75)

UPSTREAM = UpstreamSnapshot(
    index=0,
    label="home",
    url="tls://192.0.2.1",
    enabled=True,
    available=True,
    tripped=False,
    consecutive_failures=0,
    successes_total=4,
    failures_total=2,
    success_rate=0.5,
    window="10",
    last_success_at=1_000.5,
    last_error_at=999.5,
    last_error="ReceiveFailed (cause ConnectionResetByPeer)",
    backoff_until=None,
    in_flight=1,
    peak_in_flight=3,
    slots=256,
    serial=False,
    queued_total=5,
    queued_seconds_total=0.75,
    open_sessions=2,
    dials_total=8,
    reuse_recoveries_total=6,
    late_answers_total=7,
    idle_seconds=10.5,
    exchange_seconds=DURATIONS,
    phase_seconds={"queue": 0.5, "dial": 1.5},
    rcodes={"NOERROR": 3, "RCODE12": 1},
)

LISTENER = ListenerSnapshot(
    address="127.0.0.1:53",
    udp=dict.fromkeys(
        (
            "received",
            "dropped_not_allowed",
            "dropped_oversize",
            "dropped_duplicate",
            "dropped_no_slot",
            "dropped_handler",
            "receive_errors",
            "send_errors",
        ),
        1,
    ),
    udp_in_flight=2,
    udp_capacity=256,
    udp_kernel_drops=9,
    tcp=dict.fromkeys(
        (
            "accepted",
            "messages",
            "rejected_at_capacity",
            "evicted",
            "rejected_not_allowed",
            "accept_errors",
            "connection_errors",
            "idle_timeouts",
            "replies_lost",
        ),
        1,
    ),
    tcp_active=3,
    tcp_capacity=64,
)

OVERVIEW = Overview(
    version="1.2.3",
    python="3.11.9",
    at=1_001.0,
    started_at=900.0,
    upstreams=(UPSTREAM,),
    listeners=(LISTENER,),
    missing_listeners=(),
    handler=HandlerSnapshot(
        totals=dict.fromkeys(
            (
                "queries",
                "dropped_malformed",
                "formerr",
                "notimp",
                "badvers",
                "refused",
                "servfail",
                "truncated",
                "upstream_truncated",
                "cancelled",
            ),
            1,
        ),
        servfail_phases={"none": 0, "dial": 1},
        wait_seconds=DURATIONS,
    ),
    store=StoreSnapshot(path="", write_failures_total=0, failing="", set_aside=""),
    reload=ReloadSnapshot(ok_total=2, failed_total=1, last_ok=True, last_at=950.0, problems=()),
    open_episodes=(),
)


class StillSource:
    """Says the same each time, and counts how often it is asked."""

    def __init__(self, overview: Overview = OVERVIEW) -> None:
        self.current = overview
        self.asked = 0

    def overview(self) -> Overview:
        self.asked += 1
        return self.current

    def flight(self, index: int) -> tuple[FlightSnapshot, ...]:
        raise AssertionError(f"nobody should have asked for the flight record of {index}")

    def episodes(self, limit: int) -> tuple[EpisodeSnapshot, ...]:
        raise AssertionError(f"nobody should have asked for {limit} episodes")


def with_upstreams(*upstreams: UpstreamSnapshot) -> Overview:
    return replace(OVERVIEW, upstreams=upstreams)
