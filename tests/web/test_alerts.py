"""etc/nxdns-alerts.yml: rules that Prometheus takes, that fire on what they should, and that name
only what there is."""

import re

import pytest

from nxdns.web.metrics import Metrics
from tests.support.exposition import Scrape
from tests.support.full_overview import NO_TROUBLE, StillSource
from tests.support.process import ROOT
from tests.support.promtool import needs_promtool, promtool

RULES = ROOT / "etc" / "nxdns-alerts.yml"
TESTS = ROOT / "etc" / "nxdns-alerts_test.yml"

_ALERTS = dict(
    re.findall(
        r"^      - alert: (\w+)\n(.+?)(?=^      - alert: |\Z)",
        RULES.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    status, said = promtool("check", "rules", RULES)
    assert (status, f"SUCCESS: {len(_ALERTS)} rules found" in said) == (0, True), said


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_otherwise() -> None:
    status, said = promtool("test", "rules", TESTS)
    assert status == 0, said


@pytest.mark.parametrize("alert", _ALERTS)
def test_each_alert_has_a_case_that_fires_and_one_that_does_not(alert: str) -> None:
    cases = TESTS.read_text(encoding="utf-8")
    assert re.search(rf"alertname: {alert}\n +exp_alerts:\n", cases)
    assert re.search(rf"alertname: {alert}\n +exp_alerts: \[\]\n", cases)


@pytest.mark.parametrize("alert", _ALERTS)
def test_each_alert_says_what_is_wrong_and_what_to_do(alert: str) -> None:
    body = _ALERTS[alert]
    assert re.search(r"^          severity: (critical|warning)$", body, re.MULTILINE)
    summary = re.search(r'^          summary: "(.+)"$', body, re.MULTILINE)
    assert summary
    assert "{{ $labels." in summary[1], "which one?"
    description = re.search(r"^          description: >-\n((?: {12}.+\n?)+)", body, re.MULTILINE)
    assert description
    assert re.search(r"\b([Ll]ook|Run|Let|Put|Give|Ask|Mend)\b", description[1]), "what to do?"


def test_every_series_that_it_names_exists() -> None:
    exposed = Scrape(Metrics(StillSource(), lambda: NO_TROUBLE).exposition("")[0]).types
    named = set(re.findall(r"\bnxdns_\w+", RULES.read_text(encoding="utf-8")))
    assert len(named) > 10
    assert named <= exposed.keys()


@pytest.mark.parametrize(
    "series",
    [
        "nxdns_upstream_tripped",
        "nxdns_upstream_queued_total",
        "nxdns_handler_servfail_total",
        "nxdns_udp_dropped_no_slot_total",
        "nxdns_udp_kernel_drops_total",
        "nxdns_events_write_failures_total",
        "nxdns_last_reload_success",
        'up{job="nxdns"}',
    ],
)
def test_there_is_an_alert_on_what_an_owner_must_hear_of(series: str) -> None:
    assert any(series in body.partition("annotations:")[0] for body in _ALERTS.values())


def test_the_how_to_has_each_alert_and_no_other() -> None:
    how_to = (ROOT / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(Nxdns\w+)`", how_to)) == set(_ALERTS)
