"""docs/reference/metrics.md says of every series what the collector says of it."""

import re
from typing import NamedTuple

from nxdns.snapshots import HttpSnapshot
from nxdns.web.metrics import Metrics
from tests.support.exposition import Scrape
from tests.support.full_overview import NO_TROUBLE, StillSource
from tests.support.process import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")

_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\| (.+) \|$", re.MULTILINE)


class Described(NamedTuple):
    """One series, as a reader sees it."""

    kind: str
    labels: frozenset[str]
    meaning: str


def _documented() -> dict[str, Described]:
    rows = _ROW.findall(REFERENCE)
    found = {
        name: Described(kind, frozenset(filter(None, labels.split(", "))), meaning)
        for name, kind, labels, meaning in rows
    }
    assert len(found) == len(rows), "a series is there twice"
    return found


def _exposed() -> dict[str, Described]:
    troubled = HttpSnapshot(0, {"timeout": 0})
    seen = Scrape(Metrics(StillSource(), lambda: troubled).exposition("")[0])
    return {
        name: Described(kind, _labels(seen, name, kind), seen.help[name])
        for name, kind in seen.types.items()
        if name.startswith("nxdns_")
    }


def _labels(seen: Scrape, name: str, kind: str) -> frozenset[str]:
    [sample, *_] = seen.labels(f"{name}_sum" if kind == "histogram" else name)
    return frozenset(sample)


def test_the_reference_has_every_series_with_its_type_labels_and_meaning() -> None:
    assert _documented() == _exposed()


def test_the_series_of_the_process_that_it_names_exist() -> None:
    exposed = Scrape(Metrics(StillSource(), lambda: NO_TROUBLE).exposition("")[0]).types
    named = set(re.findall(r"`((?:process|python)_\w+?)(?:_\*)?`", REFERENCE))
    assert len(named) >= 6
    for name in named:
        assert any(other.startswith(name) for other in exposed), name
    for other in exposed:
        assert other.startswith("nxdns_") or any(other.startswith(name) for name in named), other
