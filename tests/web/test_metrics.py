"""What a scrape says of what there is to say."""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import time

import gevent
import pytest

from nxdns.overview import Surface
from nxdns.owner import Owner
from nxdns.reloads import Reloads
from nxdns.server.handler import Handler
from nxdns.snapshots import HttpSnapshot, Overview
from nxdns.storage.events import EventStore
from nxdns.upstream.history import History
from nxdns.upstream.pool import UpstreamPool
from nxdns.web.metrics import OPENMETRICS, TEXT, Metrics
from tests.support.exchanging import exchanged
from tests.support.exposition import Scrape
from tests.support.fake_leaves import (
    MS,
    QUERY,
    GatedLeaf,
    ManualClock,
    SteadyLeaf,
    entry_of,
    pool_of,
)
from tests.support.full_overview import (
    DURATIONS,
    LISTENER,
    NO_TROUBLE,
    OVERVIEW,
    UPSTREAM,
    StillSource,
    with_upstreams,
)
from tests.support.overviews import missing_of
from tests.support.promtool import needs_promtool, promtool


def scrape(overview: Overview = OVERVIEW, http: HttpSnapshot = NO_TROUBLE) -> Scrape:
    body, content_type = Metrics(StillSource(overview), lambda: http).exposition("")
    assert content_type == TEXT
    return Scrape(body)


class _Generation:
    """A pool, and nothing that could be closed."""

    def __init__(self, pool: UpstreamPool) -> None:
        self.pool = pool

    def close(self) -> None:
        raise AssertionError("nobody has displaced it")


@contextmanager
def surface_over(pool: UpstreamPool, clock: ManualClock) -> Iterator[tuple[Owner, Surface]]:
    """All that surfaces ask, over a real pool and without listeners."""

    def never(_: UpstreamPool) -> None:
        raise AssertionError("nothing is ever retired")

    store = EventStore("", time)
    owner = Owner(_Generation(pool), clock, never)
    try:
        yield (
            owner,
            Surface(
                owner=owner,
                handler=Handler(owner),
                listeners=[],
                missing=list,
                store=store,
                reloads=Reloads(time),
            ),
        )
    finally:
        store.close()


def test_the_five_series_are_those_of_the_pool() -> None:
    clock = ManualClock()
    history = History()
    history.sessions.recoveries = 7
    leaves = [GatedLeaf() for _ in range(5)]
    busy = entry_of(*leaves, clock=clock, url="tls://192.0.2.1", history=history)
    idle = entry_of(SteadyLeaf(), clock=clock, url="https://192.0.2.2/s3cret", priority=20)
    with surface_over(pool_of(busy, idle, clock=clock), clock) as (owner, surface):
        metrics = Metrics(surface, lambda: NO_TROUBLE)
        asking = [gevent.spawn(exchanged, owner, QUERY) for _ in range(7)]
        gevent.idle()
        clock.advance(1_250 * MS)
        for leaf in leaves[:2]:
            leaf.gate.set()
        gevent.idle()
        seen = Scrape(metrics.exposition("")[0])
        for leaf in leaves:
            leaf.gate.set()
        gevent.joinall(asking, raise_error=True)

    first = {"index": "0", "url": "tls://192.0.2.1"}
    assert seen.value("nxdns_upstream_in_flight", **first) == 3
    assert seen.value("nxdns_upstream_slots", **first) == 5
    assert seen.value("nxdns_upstream_queued_total", **first) == 2
    assert seen.value("nxdns_upstream_queued_seconds_total", **first) == 2.5
    assert seen.value("nxdns_upstream_reuse_recoveries_total", **first) == 7
    second = {"index": "1", "url": "https://192.0.2.2/…"}
    assert seen.value("nxdns_upstream_in_flight", **second) == 0
    assert seen.value("nxdns_upstream_slots", **second) == 1


def test_the_same_metrics_show_what_has_changed_since_the_scrape_before() -> None:
    source = StillSource()
    metrics = Metrics(source, lambda: NO_TROUBLE)
    metrics.exposition("")
    source.current = with_upstreams(replace(UPSTREAM, url="tls://192.0.2.9", queued_total=6))
    after = Scrape(metrics.exposition("")[0])
    assert after.labels("nxdns_upstream_queued_total") == [{"index": "0", "url": "tls://192.0.2.9"}]
    assert after.value("nxdns_upstream_queued_total") == 6


@pytest.mark.parametrize(
    "name", ["nxdns_upstream_queued_total", "nxdns_upstream_queued_seconds_total"]
)
def test_what_is_only_sampled_says_so(name: str) -> None:
    assert "approximate; sampled at admission" in scrape().help[name]


def test_every_series_has_a_help_text_of_its_own() -> None:
    told = scrape().help
    assert told.keys() == scrape().types.keys()
    assert all(len(text) > 10 for text in told.values())
    ours = [text for name, text in told.items() if name.startswith("nxdns_")]
    assert len(set(ours)) == len(ours)


def test_what_is_known_of_an_upstream_is_told() -> None:
    seen = scrape(with_upstreams(replace(UPSTREAM, tripped=True, available=False, serial=True)))
    told = {
        name.removeprefix("nxdns_upstream_"): seen.value(name)
        for name, kind in seen.types.items()
        if name.startswith("nxdns_upstream_")
        and kind != "histogram"
        and name != "nxdns_upstream_responses_total"
    }
    assert told == {
        "in_flight": 1,
        "peak_in_flight": 3,
        "slots": 256,
        "queued_total": 5,
        "queued_seconds_total": 0.75,
        "reuse_recoveries_total": 6,
        "successes_total": 4,
        "failures_total": 2,
        "consecutive_failures": 0,
        "enabled": 1,
        "available": 0,
        "tripped": 1,
        "success_rate": 0.5,
        "last_success_timestamp_seconds": 1_000.5,
        "last_error_timestamp_seconds": 999.5,
        "dials_total": 8,
        "open_sessions": 2,
        "late_answers_total": 7,
        "stated_idle_seconds": 10.5,
        "serial": 1,
    }


def test_what_has_not_happened_yet_has_no_time() -> None:
    fresh = replace(UPSTREAM, last_success_at=None, last_error_at=None, idle_seconds=None)
    seen = scrape(with_upstreams(fresh))
    assert seen.labels("nxdns_upstream_stated_idle_seconds") == []
    assert seen.labels("nxdns_upstream_last_success_timestamp_seconds") == []
    assert seen.labels("nxdns_upstream_last_error_timestamp_seconds") == []
    assert seen.types["nxdns_upstream_last_error_timestamp_seconds"] == "gauge"


def test_an_upstream_shows_its_rcodes_and_the_usual_ones_before_they_occur() -> None:
    assert scrape().by("rcode", "nxdns_upstream_responses_total", index="0") == {
        "NOERROR": 3,
        "NXDOMAIN": 0,
        "SERVFAIL": 0,
        "REFUSED": 0,
        "RCODE12": 1,
    }


def test_time_and_servfails_are_told_by_phase() -> None:
    seen = scrape()
    assert seen.by("phase", "nxdns_exchange_phase_seconds_total", index="0") == {
        "queue": 0.5,
        "dial": 1.5,
    }
    assert seen.by("phase", "nxdns_servfail_phase_total") == {"none": 0, "dial": 1}


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        pytest.param("nxdns_upstream_exchange_seconds", {"index": "0"}, id="exchange"),
        pytest.param("nxdns_query_wait_seconds", {}, id="wait"),
    ],
)
def test_each_bucket_of_a_histogram_holds_those_below_it(name: str, labels: dict[str, str]) -> None:
    seen = scrape()
    assert seen.by("le", f"{name}_bucket", **labels) == {"0.001": 1, "0.25": 1, "1.0": 4, "+Inf": 6}
    assert seen.value(f"{name}_count", **labels) == sum(DURATIONS.counts)
    assert seen.value(f"{name}_sum", **labels) == DURATIONS.sum_seconds


def test_listeners_are_told_apart_by_their_address() -> None:
    v6 = replace(LISTENER, address="[::1]:53", udp={**LISTENER.udp, "received": 11})
    seen = scrape(replace(OVERVIEW, listeners=(LISTENER, v6)))
    assert seen.by("listener", "nxdns_udp_received_total") == {"127.0.0.1:53": 1, "[::1]:53": 11}
    assert seen.by("listener", "nxdns_udp_in_flight") == {"127.0.0.1:53": 2, "[::1]:53": 2}
    assert seen.value("nxdns_tcp_active_connections", listener="[::1]:53") == 3
    assert seen.value("nxdns_udp_kernel_drops_total", listener="[::1]:53") == 9


def test_where_the_kernel_does_not_tell_of_its_drops_there_is_no_sample() -> None:
    seen = scrape(replace(OVERVIEW, listeners=(replace(LISTENER, udp_kernel_drops=None),)))
    assert seen.labels("nxdns_udp_kernel_drops_total") == []


def test_reloads_the_store_the_web_server_and_the_build_are_told() -> None:
    seen = scrape(
        replace(
            OVERVIEW,
            store=replace(OVERVIEW.store, write_failures_total=4, failing="disk full"),
            reload=replace(OVERVIEW.reload, last_ok=False, problems=("line 3: no such key",)),
            missing_listeners=(missing_of("192.0.2.7:53"),),
        ),
        HttpSnapshot(5, {"bad_host": 6}),
    )
    assert seen.by("result", "nxdns_reloads_total") == {"ok": 2, "failed": 1}
    assert seen.value("nxdns_last_reload_success") == 0
    assert seen.value("nxdns_last_reload_timestamp_seconds") == 950
    assert seen.value("nxdns_events_write_failures_total") == 4
    assert seen.value("nxdns_listeners_missing") == 1
    assert seen.value("nxdns_http_rejected_at_capacity_total") == 5
    assert seen.by("reason", "nxdns_http_errors_total") == {"bad_host": 6}
    assert seen.value("nxdns_build_info", version="1.2.3", python="3.11.9") == 1
    for text in ("disk full", "no such key", "192.0.2.7"):
        assert text not in seen.text


def test_the_process_and_the_interpreter_are_told() -> None:
    seen = scrape()
    assert seen.value("process_resident_memory_bytes") > 1e6
    assert seen.value("process_open_fds") > 2
    assert seen.value("process_cpu_seconds_total") > 0
    assert seen.value("python_info", implementation="CPython") == 1
    assert seen.by("generation", "python_gc_collections_total").keys() == {"0", "1", "2"}


HOSTILE = 'tls://a"} 1\nnxdns_forged_total{x="\\'


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_a_hostile_url_is_a_label_and_nothing_else(accept: str) -> None:
    source = StillSource(with_upstreams(replace(UPSTREAM, url=HOSTILE)))
    body, content_type = Metrics(source, lambda: NO_TROUBLE).exposition(accept)
    seen = Scrape(body, openmetrics=content_type == OPENMETRICS)
    assert seen.labels("nxdns_upstream_slots") == [{"index": "0", "url": HOSTILE}]
    assert seen.labels("nxdns_forged_total") == []
    assert not re.search("^nxdns_forged", seen.text, re.MULTILINE)


def test_two_upstreams_that_look_the_same_are_told_apart() -> None:
    redacted = replace(UPSTREAM, url="https://dns.example/…")
    seen = scrape(with_upstreams(redacted, replace(redacted, index=1, slots=32)))
    assert seen.by("index", "nxdns_upstream_slots") == {"0": 256, "1": 32}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param("", TEXT, id="nothing-said"),
        pytest.param("*/*", TEXT, id="anything"),
        pytest.param("text/html,application/xhtml+xml,*/*;q=0.8", TEXT, id="a-browser"),
        pytest.param("application/openmetrics-text", OPENMETRICS, id="openmetrics"),
        pytest.param("Application/OpenMetrics-Text", OPENMETRICS, id="capitals"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
            "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OPENMETRICS,
            id="prometheus-2",
        ),
        pytest.param(
            "text/plain;version=0.0.4;q=0.9, application/openmetrics-text; q=0.3",
            TEXT,
            id="rather-text",
        ),
        pytest.param("application/openmetrics-text;q=0, */*", TEXT, id="anything-but"),
        pytest.param("application/openmetrics-text;q=high", TEXT, id="no-number"),
        pytest.param("application/openmetrics-text;q=nan", TEXT, id="not-a-number"),
        pytest.param(";;,,=;q=;\x00é", TEXT, id="garbage"),
    ],
)
def test_the_format_is_the_one_that_accept_prefers(accept: str, content_type: str) -> None:
    body, got = Metrics(StillSource(), lambda: NO_TROUBLE).exposition(accept)
    assert got == content_type
    seen = Scrape(body, openmetrics=content_type == OPENMETRICS)
    assert seen.value("nxdns_upstream_queued_total") == 5
    assert body.endswith(b"# EOF\n") is (content_type == OPENMETRICS)


@pytest.mark.parametrize(
    ("step_ns", "least"),
    [
        pytest.param(2_000_000, 40, id="each family takes long"),
        pytest.param(100_000, 3, id="ten families in a millisecond"),
        pytest.param(0, 0, id="it takes no time"),
    ],
)
def test_a_scrape_is_of_one_moment_and_lets_others_have_their_turn(
    step_ns: int, least: int
) -> None:
    source = StillSource()
    ticks = itertools.count(step=step_ns)
    metrics = Metrics(source, lambda: NO_TROUBLE, lambda: next(ticks))
    turns = 0

    def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            source.current = with_upstreams(replace(UPSTREAM, slots=turns, dials_total=turns))
            gevent.sleep(0)

    running = gevent.spawn(others)
    try:
        seen = Scrape(metrics.exposition("")[0])
    finally:
        running.kill()
    assert turns >= least
    assert bool(turns) is bool(least)
    assert source.asked == 1
    assert seen.value("nxdns_upstream_slots") == 256
    assert seen.value("nxdns_upstream_dials_total") == 8


def test_a_metrics_that_is_made_asks_nothing_yet() -> None:
    source = StillSource()
    Metrics(source, lambda: NO_TROUBLE)
    assert source.asked == 0


@needs_promtool
def test_promtool_has_nothing_to_say() -> None:
    upstreams = with_upstreams(UPSTREAM, replace(UPSTREAM, index=1, url=HOSTILE))
    text = scrape(upstreams, HttpSnapshot(1, {"timeout": 1})).text
    assert promtool("check", "metrics", stdin=text.encode()) == (0, "")
