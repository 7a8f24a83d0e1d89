"""The deadline of a message whose first bytes came along with the message before it."""

import gevent
import pytest

from nxdns.dns.framing import frame
from nxdns.server.handler import Handler
from nxdns.server.tcp_server import TcpServer
from tests.support.fake_clients import (
    LOOPBACK,
    GatedClient,
    answer,
    serving,
    settle,
    tcp_asker,
)
from tests.support.messages import make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

QUERY = make_query()
MESSAGE = frame(QUERY)
BEGUN = MESSAGE[:4]
SHORT = 0.05  # seconds: the deadline


@pytest.mark.parametrize("messages", [1, 3])
def test_what_came_along_has_its_deadline_from_then_and_not_from_the_answer(messages: int) -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client), idle_seconds=SHORT)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.sock.sendall(MESSAGE * messages + BEGUN)
        eventually(lambda: client.waiting == messages)
        gevent.sleep(SHORT)
        client.gate.set()
        assert [asker.reply() for _ in range(messages)] == [answer(QUERY)] * messages
        settle()  # nothing is waited for any more
        stats = server.stats
        assert (stats.messages, stats.connection_errors, stats.active) == (messages, 1, 0)


def test_what_has_come_whole_by_the_answer_is_answered_however_long_that_took() -> None:
    client = GatedClient()
    server = TcpServer(LOOPBACK, Handler(client), idle_seconds=SHORT)
    with serving(server), tcp_asker(server.bound) as asker:
        asker.sock.sendall(MESSAGE + BEGUN)
        eventually(lambda: client.waiting == 1)
        asker.sock.sendall(MESSAGE.removeprefix(BEGUN))
        gevent.sleep(SHORT)
        client.gate.set()
        assert asker.reply() == asker.reply() == answer(QUERY)
        assert server.stats.connection_errors == 0
