"""docs/reference/api.md names everything there is."""

import re
from pathlib import Path

import pytest

from nxdns.web.troubles import Reason
from tests.support.overviews import ScriptedSource, episode_of, flight_of, overview_of
from tests.support.web_client import get, serving

pytestmark = pytest.mark.integration

_NAMED = set(
    re.findall(
        r"`([a-z0-9_]+)`",
        (Path(__file__).parents[2] / "docs/reference/api.md").read_text(encoding="utf-8"),
    )
)


def test_every_reason_is_documented() -> None:
    assert {reason.value for reason in Reason} <= _NAMED


def test_every_field_is_documented() -> None:
    source = ScriptedSource(overview_of(open_episodes=(episode_of(),)))
    source.flights = {0: (flight_of(),)}
    with serving(source) as server:
        (upstream,) = get(server, "/api/upstreams").json["upstreams"]
        diagnostics = get(server, "/api/diagnostics").json
    (episode,), (flight,) = diagnostics["episodes"], diagnostics["flights"]
    for told in (upstream, upstream["phase_seconds"], episode, flight["records"][0]):
        assert set(told) <= _NAMED
