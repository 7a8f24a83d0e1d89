"""What the API says, field by field."""

import gevent
import pytest
from gevent.event import Event

from nxdns.snapshots import FlightSnapshot, Overview, UpstreamSnapshot
from nxdns.web.server import WebServer
from tests.support.overviews import (
    AT,
    ScriptedSource,
    episode_of,
    flight_of,
    missing_of,
    overview_of,
    tripped_of,
    upstream_of,
)
from tests.support.web_client import get, serving

pytestmark = pytest.mark.integration

FAULT = "ConnectFailed (cause ConnectionRefused)"
PHASES = ["queue", "dial", "tls", "send", "first_byte", "rest"]


@pytest.mark.parametrize(
    ("upstreams", "status", "code"),
    [
        pytest.param((upstream_of(), upstream_of(1)), "ok", 200, id="none-tripped"),
        pytest.param((tripped_of(FAULT), upstream_of(1)), "degraded", 200, id="one-tripped"),
        pytest.param((tripped_of(FAULT), tripped_of(FAULT, 1)), "failing", 503, id="all-tripped"),
        pytest.param(
            (tripped_of(FAULT), upstream_of(1, enabled=False)), "failing", 503, id="other-disabled"
        ),
        pytest.param(
            (upstream_of(), tripped_of(FAULT, 1, enabled=False)), "ok", 200, id="tripped-disabled"
        ),
        pytest.param((upstream_of(consecutive_failures=1),), "ok", 200, id="below-threshold"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_is_that_of_the_upstreams_that_are_enabled(
    upstreams: tuple[UpstreamSnapshot, ...], status: str, code: int, method: str
) -> None:
    with serving(ScriptedSource(overview_of(*upstreams))) as server:
        answer = get(server, "/api/health", method=method)
        assert answer.status == code
        if method == "GET":
            conditions = {"upstreams": status, "listeners": "ok"}
            assert answer.json == {"status": status, "conditions": conditions}


@pytest.mark.parametrize(
    ("seen", "status", "conditions", "code"),
    [
        pytest.param(
            overview_of(upstream_of(), missing_listeners=(missing_of(),)),
            "degraded",
            {"upstreams": "ok", "listeners": "degraded"},
            200,
            id="one-of-two",
        ),
        pytest.param(
            overview_of(tripped_of(FAULT), missing_listeners=(missing_of(),)),
            "failing",
            {"upstreams": "failing", "listeners": "degraded"},
            503,
            id="the-upstreams-are-worse",
        ),
        pytest.param(
            overview_of(upstream_of(), listeners=(), missing_listeners=(missing_of(),)),
            "failing",
            {"upstreams": "ok", "listeners": "failing"},
            503,
            id="none-is-left",
        ),
    ],
)
def test_an_address_that_is_not_listened_on_is_a_condition_of_health(
    seen: Overview, status: str, conditions: dict[str, str], code: int
) -> None:
    with serving(ScriptedSource(seen)) as server:
        answer = get(server, "/api/health")
        assert (answer.status, answer.json) == (code, {"status": status, "conditions": conditions})
        told = get(server, "/api/overview").json
        assert told["status"] == status
        assert told["missing_listeners"] == [
            {"address": "192.0.2.1:53", "reason": "this machine does not have that address"}
        ]


def test_an_upstream_is_shown_with_each_of_its_numbers() -> None:
    upstream = upstream_of(
        2,
        label="quad9",
        url="https://9.9.9.9/…",
        available=False,
        consecutive_failures=1,
        successes_total=11,
        failures_total=12,
        success_rate=0.5,
        window="0110",
        last_success_at=AT - 0.25,
        last_error_at=AT,
        last_error=FAULT,
        backoff_until=AT + 60,
        in_flight=3,
        slots=8,
        serial=True,
        queued_total=13,
        queued_seconds_total=1.5,
        open_sessions=4,
        dials_total=14,
        reuse_recoveries_total=15,
        late_answers_total=16,
        idle_seconds=10.5,
        rcodes={"NOERROR": 9, "NXDOMAIN": 2},
    )
    with serving(ScriptedSource(overview_of(upstream))) as server:
        answer = get(server, "/api/upstreams")
    assert answer.json == {
        "upstreams": [
            {
                "index": 2,
                "name": "quad9",
                "url": "https://9.9.9.9/…",
                "enabled": True,
                "available": False,
                "tripped": False,
                "consecutive_failures": 1,
                "successes_total": 11,
                "failures_total": 12,
                "success_rate": 0.5,
                "window": "0110",
                "last_success_at": "2027-01-15T07:59:59.750Z",
                "last_error_at": "2027-01-15T08:00:00.000Z",
                "backoff_until": "2027-01-15T08:01:00.000Z",
                "in_flight": 3,
                "slots": 8,
                "serial": True,
                "queued_total": 13,
                "queued_seconds_total": 1.5,
                "open_sessions": 4,
                "dials_total": 14,
                "reuse_recoveries_total": 15,
                "late_answers_total": 16,
                "idle_seconds": 10.5,
                "phase_seconds": {
                    "queue": 0.0,
                    "dial": 0.1,
                    "tls": 0.2,
                    "send": 0.0,
                    "first_byte": 0.9,
                    "rest": 0.05,
                },
                "rcodes": {"NOERROR": 9, "NXDOMAIN": 2},
            }
        ]
    }
    assert b"ConnectionRefused" not in answer.body


def test_what_has_not_happened_yet_has_no_time() -> None:
    fresh = upstream_of(last_success_at=None, window="", successes_total=0)
    with serving(ScriptedSource(overview_of(fresh))) as server:
        (shown,) = get(server, "/api/upstreams").json["upstreams"]
    assert shown["last_success_at"] is shown["last_error_at"] is shown["backoff_until"] is None


def test_diagnostics_tell_of_episodes_and_of_what_came_before_them() -> None:
    open_one = episode_of()
    over = episode_of("gone", resolved_at=AT - 30, occurrences=1, flight=())
    source = ScriptedSource(
        overview_of(tripped_of(FAULT), upstream_of(1), open_episodes=(open_one,))
    )
    source.stored = (over,)
    source.flights = {1: (flight_of("NXDOMAIN"), flight_of(session_seconds=None, reused=False))}
    with serving(source) as server:
        shown = get(server, "/api/diagnostics").json

    assert [each["subject"] for each in shown["episodes"]] == ["upstream-0", "gone"]
    first, second = shown["episodes"]
    assert {**first, "flight": len(first["flight"])} == {
        "code": "upstream_exchange",
        "subject": "upstream-0",
        "detail": f"upstream 'upstream-0' failed: {FAULT}",
        "opened_at": "2027-01-15T07:59:00.000Z",
        "last_seen": "2027-01-15T07:59:55.000Z",
        "resolved_at": None,
        "occurrences": 3,
        "flight": 1,
    }
    assert second["resolved_at"] == "2027-01-15T07:59:30.000Z"
    assert first["flight"][0]["outcome"] == FAULT

    flights = shown["flights"]
    assert [(each["index"], each["name"], len(each["records"])) for each in flights] == [
        (0, "upstream-0", 0),
        (1, "upstream-1", 2),
    ]
    record = flights[1]["records"][0]
    assert list(record["phase_seconds"]) == PHASES
    assert {**record, "phase_seconds": None} == {
        "seconds_ago": 1.5,
        "slot": 3,
        "session_seconds": 12.0,
        "reused": True,
        "phase_seconds": None,
        "ended_in": "rest",
        "outcome": "NXDOMAIN",
        "failed": False,
    }
    assert flights[1]["records"][1]["session_seconds"] is None


def test_while_the_disk_is_slow_everything_else_is_answered() -> None:
    source, gate = ScriptedSource(), Event()
    source.on_episodes = gate.wait
    with serving(source) as server:
        waiting = gevent.spawn(get, server, "/api/diagnostics")
        gevent.idle()
        for path in ("/api/health", "/api/upstreams", "/api/overview", "/"):
            assert get(server, path).status == 200
        assert not waiting.dead
        gate.set()
        assert waiting.get().status == 200


def test_between_the_pieces_of_a_big_answer_others_have_their_turn() -> None:
    flight: tuple[FlightSnapshot, ...] = tuple(flight_of() for _ in range(256))
    source = ScriptedSource()
    source.stored = tuple(episode_of(resolved_at=AT, flight=flight) for _ in range(20))
    turns: list[int] = []

    def others() -> None:
        while True:
            turns.append(1)
            gevent.sleep(0)

    with serving(source) as server:
        get(server, "/api/diagnostics")  # what happens once has happened
        running = gevent.spawn(others)
        before = len(turns)
        get(server, "/api/diagnostics")
        running.kill()
    assert len(turns) - before >= 20 * 256 / 32


def test_a_reload_between_two_pieces_is_never_half_seen() -> None:
    class Reloading(ScriptedSource):
        """As the pool does, it knows no index beyond its upstreams."""

        def flight(self, index: int) -> tuple[FlightSnapshot, ...]:
            return (flight_of(slot=self.shown.upstreams[index].slots),)

    many = overview_of(*(upstream_of(index, slots=index) for index in range(3)))
    few = overview_of(upstream_of(label="other", slots=9))
    source = Reloading(many)

    def reload() -> None:
        while True:
            source.shown = few if source.shown is many else many
            gevent.sleep(0)

    with serving(source) as server:
        reloading = gevent.spawn(reload)
        for _ in range(20):
            shown = get(server, "/api/diagnostics").json["flights"]
            slots = [(each["name"], each["records"][0]["slot"]) for each in shown]
            assert slots in ([(f"upstream-{n}", n) for n in range(3)], [("other", 9)])
            assert get(server, "/api/overview").status == 200
        reloading.kill()


def test_a_hostile_name_stays_within_its_json() -> None:
    name = '</script>"\\\u2028\n\x7f'
    source = ScriptedSource(overview_of(upstream_of(label=name)))
    with serving(source) as server:
        for path in ("/api/upstreams", "/api/overview"):
            assert get(server, path).json["upstreams"][0]["name"] == name


def test_the_overview_has_notes_and_no_flight_records() -> None:
    source = ScriptedSource(overview_of(tripped_of(FAULT), open_episodes=(episode_of(),)))
    with serving(source) as server:
        shown = get(server, "/api/overview").json
    assert shown["status"] == "failing"
    assert [note["severity"] for note in shown["notes"]] == ["critical", "critical"]
    assert shown["upstreams"][0]["last_error"] == FAULT
    assert "flight" not in shown["open_episodes"][0]
    assert shown["at"] == "2027-01-15T08:00:00.000Z"


def test_what_is_elsewhere_is_not_there() -> None:
    with serving() as server:
        for path in ("/api", "/api/", "/api/health/", "/index.html", "/../setup.py", "//"):
            assert get(server, path).status == 404
        assert get(server, "/api/health?since=yesterday").status == 200


def test_metrics_are_served_in_the_form_that_is_asked_for() -> None:
    with serving() as server:
        answer = get(server, "/metrics")
        assert answer.status == 200
        assert answer.fields["content-type"].startswith("text/plain")
        assert b"nxdns_http_rejected_at_capacity_total 0" in answer.body


def test_the_address_of_the_page_is_that_of_the_server() -> None:
    server = WebServer("::1", 0, ScriptedSource(), ())
    try:
        assert server.url.startswith("http://[::1]:")
        assert not server.url.endswith(":0/")
    finally:
        server.stop()
