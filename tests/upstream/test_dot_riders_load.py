"""A thousand exchanges that share two leaves with a moody peer, killed and expired at random."""

import random
from time import monotonic_ns
from typing import Any

import gevent
import pytest
from gevent import Timeout
from gevent.pool import Pool
from greenlet import GreenletExit

from nxdns.upstream.dot_client import DotClient
from nxdns.upstream.transport import LocalResource, PeerFault
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import MS, SECOND, assert_all_free, entry_of, pool_of
from tests.support.leaks import greenlets_alive, no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.riders import answer, name_of, site_at
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

EXCHANGES = 1000


class Moody:
    """A script that answers most queries, some of them late, some badly, and some never."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, session: Session) -> None:
        held: list[bytes] = []
        while True:
            query = session.read_query()
            mood = self._chance.random()
            if mood < 0.70:
                session.send_message(answer(query))
            elif mood < 0.90:
                held.append(query)
            elif mood < 0.93:
                session.send_message(make_response(make_query("another.example.com")))
            elif mood < 0.95:
                session.send(answer(query)[:5])
                return
            if held and mood < 0.3:
                session.send_message(answer(held.pop(0)))


def test_a_thousand_kills_and_expiries_leave_nothing_behind(
    authority: Authority, certificate: Issued
) -> None:
    chance = random.Random(20240229)
    ends: list[type] = []
    gevent.idle()

    def exchange(number: int) -> None:
        query = make_query(name_of(number), id_=number)
        try:
            response = exchanged(pool, query)
        except (GreenletExit, Timeout, PeerFault, LocalResource) as end:
            ends.append(type(end))
        else:
            assert response == answer(query)
            ends.append(bytes)

    def kill_some(task: Any, turns: int, error: BaseException) -> None:
        for _ in range(turns):
            gevent.sleep(0)
        if not task.dead:
            task.kill(error, block=False)

    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), Moody(chance)) as peer,
    ):
        alive = greenlets_alive()
        site = site_at(peer.port, authority, attempt_ns=60 * MS)
        leaves = [DotClient(site), DotClient(site)]
        entry = entry_of(*leaves, clock=monotonic_ns, depth=32, sessions=site.stats)
        pool = pool_of(entry, clock=monotonic_ns, attempt_ns=60 * MS, total_ns=5 * SECOND)
        tasks, killers = Pool(80), Pool()
        for number in range(EXCHANGES):
            task = tasks.spawn(exchange, number)
            if chance.random() < 0.6:
                error = chance.choice((GreenletExit, Timeout))()
                killers.spawn(kill_some, task, chance.randrange(1, 40), error)
        tasks.join(raise_error=True)
        killers.join(raise_error=True)

        assert len(ends) == EXCHANGES
        assert {GreenletExit, Timeout, PeerFault, bytes} <= set(ends)
        assert entry.slots.in_flight == 0
        assert not any(leaf.is_stuck for leaf in leaves), "somebody still waits there"
        assert_all_free(entry.slots)
        pool.close()
        assert site.stats.open == 0
        del tasks, killers, task
        eventually(lambda: greenlets_alive() <= alive)
