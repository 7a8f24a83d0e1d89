"""nxdns without one of its features, to see what that costs.

``python tests/bench/without.py FEATURE serve --config FILE``, FEATURE one of ``FEATURES``. In place
of what a feature does for each query stands the cheapest thing that keeps the rest at work, so what
is left of it is the call. Only of an interpreted build: in a compiled one, calls between functions
do not look at what a module's names stand for.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from nxdns import cli
from nxdns.dns import hop
from nxdns.dns.packet import parse
from nxdns.server import handler
from nxdns.server.allow import Allow
from nxdns.server.datagrams import Datagrams
from nxdns.upstream import dot_client, health, pipeline
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.history import History
from tests.support.messages import OPT_LENGTH, make_query


class _Nobody(list[Any]):
    """In place of a set that is always empty; nothing in it runs Python code."""

    add = discard = staticmethod(id)  # any builtin that takes what it is given


def _nobody_answering() -> None:
    real = Datagrams.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        real(self, *arguments, **keywords)
        _replace(self, "_answering", _Nobody())

    _replace(Datagrams, "__init__", init)


def _replace(owner: Any, name: str, instead: Any) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner} has no {name} any more: the table below is to be put right")
    setattr(owner, name, instead)


def _both(*each: tuple[Any, str, Any]) -> Callable[[], None]:
    def replace() -> None:
        for owner, name, instead in each:
            _replace(owner, name, instead)

    return replace


_CLIENTS_OPT = make_query(payload=1232)[-OPT_LENGTH:]

# Feature: what takes the place of its entry points.
FEATURES: dict[str, Callable[[], None]] = {
    "padding-and-keepalive": _both(
        (dot_client, "complete", lambda query, *, keepalive: (query, len(query) - OPT_LENGTH))
    ),
    # What remains is the walk of the response: it is what the handler makes its reply of.
    "validation": _both(
        (pipeline, "validate_response", lambda query, response, question_end: parse(response))
    ),
    # Phases, histogram, flight record.
    "records": _both(
        (History, "record", lambda self, outcome, info, *, slot, queued_ns, took_ns, ended: None)
    ),
    "health": _both((health.State, "count_success", lambda self, at: None)),
    "allow": _both((Allow, "permits", lambda self, host: True)),
    "duplicates": _nobody_answering,
    # The client's own OPT then goes upstream, and is one whose end is found as quickly as of ours.
    "opt-hop-by-hop": _both(
        (hop, "_OPTS", frozenset({_CLIENTS_OPT})),
        (hop, "_OPT_BEGINS", _CLIENTS_OPT[:5]),
        (handler, "to_upstream", lambda asked, opt: asked.wire),
        (handler, "to_client", lambda reply, opt: reply.wire),
    ),
    "deadlines": _both(
        (Deadlines, "watch", lambda self, greenlet, budget_ns, *, cut_short: None),
        (Deadlines, "forget", lambda self, greenlet: None),
    ),
}


if __name__ == "__main__":
    feature = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if feature not in FEATURES:
        sys.exit(f"one of {', '.join(FEATURES)}, please")
    FEATURES[feature]()
    cli.run()
