"""A silent upstream: every client hears within its total budget."""

import time
from collections.abc import Callable
from pathlib import Path

import gevent
import pytest

from tests.bench.measure import Load, config, forwarder
from tests.support.authority import NAME, Authority, Issued
from tests.support.tls_peer import Session, TlsPeer

pytestmark = [pytest.mark.bench, pytest.mark.timeout(120)]

_TOTAL_SECONDS = 5.0
_SLACK_SECONDS = 0.2


def test_a_silent_upstream_leaves_no_client_waiting_beyond_the_total_budget(
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
    tell: Callable[[str], None],
) -> None:
    def stay_silent(session: Session) -> None:
        session.wait_for_end()

    with (
        TlsPeer(certificate.openssl_context(), stay_silent) as silent,
        forwarder(
            tmp_path,
            config(silent.port, NAME, authority.ca_file),
        ) as (_, address),
    ):
        started = time.monotonic()
        # More at once than there are slots: most of their budget is spent in the queue.
        load = Load(address, in_flight=30, seconds=0.01)
        gevent.idle()
        took = time.monotonic() - started
    tell(
        f"silent upstream, 30 at once: {load.servfail} SERVFAIL, {load.lost} lost, the last after "
        f"{max(load.latencies_ms):.0f} ms"
    )
    assert load.lost == 0
    assert load.servfail == 30
    assert took <= _TOTAL_SECONDS + _SLACK_SECONDS
