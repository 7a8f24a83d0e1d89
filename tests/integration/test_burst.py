"""The field defect: thirty names at once, one upstream at 92 ms."""

import time
from pathlib import Path

import gevent
import pytest

from nxdns.cli import burst
from nxdns.platform.tls_server import LoopbackUpstream
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.messages import make_query

pytestmark = pytest.mark.integration

_LATENCY_SECONDS = 0.092
_NAMES = 30
_SESSIONS = 8
# All ride at once. A serial staircase would be thirty waves, and eight exclusive slots four; what
# is between is a margin for eight handshakes and a busy machine.
_WAVES_ALLOWED = 3.5


def test_thirty_names_at_once_clear_in_one_wave_and_the_second_burst_dials_nobody(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    upstream = LoopbackUpstream(certificate.openssl_context(), _LATENCY_SECONDS)
    upstream.start()
    body = f'url = "tls://127.0.0.1:{upstream.port}"\ntls_name = "{NAME}"'
    try:
        with running(tmp_path, authority.ca_file, [body]) as app:
            cold = burst.ask(address_of(app), _NAMES)
            handshakes = upstream.handshakes
            started = time.monotonic()
            ask_udp(address_of(app), make_query())
            single_ms = (time.monotonic() - started) * 1000
            warm = burst.ask(address_of(app), _NAMES)
            snapshot = app.snapshot()[0]
    finally:
        upstream.stop()
        gevent.idle()

    assert cold.ok
    assert warm.ok
    assert handshakes <= _SESSIONS
    assert upstream.handshakes == handshakes
    assert cold.wall_ms <= _WAVES_ALLOWED * single_ms
    assert warm.wall_ms <= _WAVES_ALLOWED * single_ms
    assert snapshot.peak_in_flight == _NAMES
    assert snapshot.queued_total == 0
    assert (snapshot.open_sessions, snapshot.dials_total) == (handshakes, handshakes)
    assert snapshot.failures_total == 0
