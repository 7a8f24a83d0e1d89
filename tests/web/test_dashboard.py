"""etc/grafana-dashboard.json: a dashboard to import, of expressions that mean something."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from nxdns.web.metrics import Metrics
from tests.support.exposition import Scrape
from tests.support.full_overview import NO_TROUBLE, StillSource
from tests.support.process import ROOT
from tests.support.promtool import needs_promtool, promtool

DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "etc" / "grafana-dashboard.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]

_SERIES = re.compile(r"\b(?:nxdns|process|python)_\w+")


def _expressions() -> Iterator[str]:
    for panel in GRAPHS:
        for target in panel["targets"]:
            yield target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["expr"]


def test_every_series_in_it_exists() -> None:
    exposed = Scrape(Metrics(StillSource(), lambda: NO_TROUBLE).exposition("")[0]).types
    names = set(exposed)
    for name, kind in exposed.items():
        if kind == "histogram":
            names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    variables = [each.get("definition", "") for each in DASHBOARD["templating"]["list"]]
    named = set(_SERIES.findall(" ".join([*_expressions(), *variables])))
    assert len(named) > 30
    assert named <= names


@needs_promtool
def test_every_expression_is_one_of_prometheus(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(_expressions())
    ]
    file = tmp_path / "rules.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, said = promtool("check", "rules", file)
    assert (status, f"SUCCESS: {len(rules)} rules found" in said) == (0, True), said


def test_it_brings_its_data_source_as_a_variable_and_no_id_of_another_grafana() -> None:
    assert DASHBOARD["id"] is None
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    uid = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["instance"]["datasource"] == uid
    for panel in GRAPHS:
        assert panel["datasource"] == uid
        assert all(target["datasource"] == uid for target in panel["targets"])


def test_it_uses_no_variable_that_it_does_not_have() -> None:
    known = {each["name"] for each in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r"\$\{?(\w+)", text)) - {"__all"} == known


def test_each_panel_has_a_title_an_explanation_and_targets_that_are_told_apart() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in GRAPHS:
        assert panel["description"]
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_no_panel_lies_over_another() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        return {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }

    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])


def test_it_shows_the_five_series_and_what_the_alerts_are_about() -> None:
    shown = " ".join(_expressions())
    for name in (
        "nxdns_upstream_in_flight",
        "nxdns_upstream_slots",
        "nxdns_upstream_queued_total",
        "nxdns_upstream_queued_seconds_total",
        "nxdns_upstream_reuse_recoveries_total",
        "nxdns_upstream_tripped",
        "nxdns_handler_servfail_total",
        "nxdns_udp_dropped_no_slot_total",
        "nxdns_udp_kernel_drops_total",
        "nxdns_events_write_failures_total",
        "nxdns_last_reload_success",
    ):
        assert f"{name}{{" in shown, name
