"""An hour of a household's queries in half a minute, through two upstreams that misbehave."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gevent import Timeout

from tests.bench.measure import Load, descriptors, forwarder, resident_mib
from tests.support.authority import NAME, Authority, Issued
from tests.support.messages import make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

_ROUNDS = 6
_ROUND_SECONDS = 5.0
_IN_FLIGHT = 16
_GARBAGE = 0.01
_HALF_OPEN = 0.001
_IDLE_CLOSE_SECONDS = 1.0
_FLAP_SECONDS = 3.0
_MOST_GROWTH_MIB = 2.0

_CONFIG = """
[server]
listen = ["127.0.0.1:0"]
[[upstreams]]
name = "one"
url = "tls://127.0.0.1:{one}"
tls_name = "{name}"
priority = 10
[[upstreams]]
name = "other"
url = "tls://127.0.0.1:{other}"
tls_name = "{name}"
priority = 20
[budgets]
attempt_ms = 300
total_ms = 3000
[tls]
ca_file = "{ca_file}"
[web]
listen = ""
[log]
level = "error"
"""


def _misbehave(chance: random.Random, *, flaps: bool) -> Callable[[Session], None]:
    """Garbage, sessions that go silent, a close every second, and a while of refusing all."""

    def script(session: Session) -> None:
        opened = time.monotonic()
        while True:
            with Timeout(_IDLE_CLOSE_SECONDS, False):
                query = session.read_query()
                now = time.monotonic()
                if flaps and int(now / _FLAP_SECONDS) % 2:
                    session.reset()
                    return
                draw = chance.random()
                if draw < _HALF_OPEN:
                    session.wait_for_end()
                elif draw < _HALF_OPEN + _GARBAGE:
                    session.send(chance.randbytes(chance.randrange(1, 200)))
                else:
                    session.send_message(make_response(query, "192.0.2.1"))
                if now - opened < _IDLE_CLOSE_SECONDS:
                    continue
            return

    return script


def test_memory_and_descriptors_stay_flat_and_every_query_is_answered(
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
    tell: Callable[[str], None],
) -> None:
    context = certificate.openssl_context()
    chance = random.Random(20261130)
    with (
        TlsPeer(context, _misbehave(chance, flaps=True)) as one,
        TlsPeer(context, _misbehave(chance, flaps=False)) as other,
        forwarder(
            tmp_path,
            _CONFIG.format(one=one.port, other=other.port, name=NAME, ca_file=authority.ca_file),
        ) as (process, address),
    ):
        memory: list[float] = []
        open_files: list[int] = []
        answered = servfail = lost = 0
        for _ in range(_ROUNDS):
            load = Load(address, in_flight=_IN_FLIGHT, seconds=_ROUND_SECONDS)
            answered, servfail, lost = (
                answered + load.answered,
                servfail + load.servfail,
                lost + load.lost,
            )
            memory.append(resident_mib(process))
            open_files.append(descriptors(process))
    tell(
        f"soak: {answered} answered, {servfail} SERVFAIL, {lost} lost; sessions "
        f"{one.accepts + other.accepts}; MiB {[round(each, 1) for each in memory]}; "
        f"descriptors {open_files}"
    )
    assert lost == 0
    assert answered > 10 * servfail
    assert memory[-1] - memory[1] < _MOST_GROWTH_MIB
    assert max(open_files[1:]) - min(open_files[1:]) <= 2 * 8
