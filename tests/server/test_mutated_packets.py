"""Thousands of broken packets over real sockets: each is answered or counted, none is felt."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from nxdns.dns.framing import MAX_MESSAGE, frame
from nxdns.platform.address import ListenAddress
from nxdns.server.handler import Handler
from nxdns.server.tcp_server import TcpServer
from nxdns.server.udp_server import UdpServer
from tests.support.fake_clients import (
    LOOPBACK,
    EchoingClient,
    TcpAsker,
    accounted,
    answer,
    arrived,
    replied,
    serving,
    settle,
    tcp_asker,
    udp_asker,
)
from tests.support.messages import big_response, make_query
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SEED = 20260403
QUERY = make_query()
SEEDLINGS = (
    QUERY,
    make_query("a.very.long.name.below.example.com", "AAAA", payload=1232, dnssec_ok=True),
    make_query("example.com", "MX", payload=4096),
    big_response(QUERY, 400),
)


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No greenlet has died with a traceback."""
    yield
    assert capfd.readouterr().err == ""


def packets(dice: random.Random, how_many: int) -> Iterator[bytes]:
    """Valid messages with bytes flipped, cut off, grown or replaced by noise; few stay valid."""
    for _ in range(how_many):
        packet = bytearray(dice.choice(SEEDLINGS))
        match dice.randrange(6):
            case 0:
                packet[dice.randrange(len(packet))] = dice.randrange(256)
            case 1:
                for _ in range(dice.randint(2, 10)):
                    packet[dice.randrange(len(packet))] ^= 1 << dice.randrange(8)
            case 2:
                del packet[dice.randrange(len(packet)) :]
            case 3:
                packet += dice.randbytes(dice.randrange(200))
            case 4:
                packet[:] = dice.randbytes(dice.randrange(6000))
            case _:
                packet[2] &= 0x7F  # a query; what is behind the header is noise
                packet[12:] = dice.randbytes(dice.randrange(300))
        yield bytes(packet)


def drain(sock: Any) -> int:
    """Replies that have come, each of at least a header."""
    replies = 0
    sock.setblocking(False)
    try:
        while True:
            assert len(sock.recv(65535)) >= 12
            replies += 1
    except BlockingIOError:
        return replies


@pytest.mark.parametrize(
    ("address", "how_many"),
    [
        pytest.param(LOOPBACK, 10_000, id="specific"),
        pytest.param(ListenAddress("0.0.0.0", 0), 2_000, id="wildcard"),
    ],
)
def test_every_mutated_datagram_is_answered_or_counted(
    address: ListenAddress, how_many: int, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler(EchoingClient())
    server = UdpServer(address, handler)
    replies = 0
    with serving(server), udp_asker(server.bound, "127.0.0.1") as sock:
        for number, packet in enumerate(packets(random.Random(SEED), how_many), 1):
            sock.send(packet)
            # No more at once than the kernel keeps, in either direction.
            if number % 16 == 0:
                settle()
                replies += drain(sock)
        eventually(lambda: server.stats.received == how_many and server.in_flight == 0)
        replies += drain(sock)

        assert arrived(server) == accounted(handler, server) == how_many
        assert replies == replied(handler.stats)
        assert server.stats.send_errors == server.stats.receive_errors == 0
        assert server.stats.dropped_handler == handler.stats.dropped_malformed
        for count in (replies, server.stats.dropped_oversize, server.stats.dropped_handler):
            assert count > how_many / 50, "each way out is taken often"

        with udp_asker(server.bound, "127.0.0.1") as another:
            another.send(QUERY)
            assert another.recv(512) == answer(QUERY)
    assert caplog.records == []


def read_to_the_end(asker: TcpAsker) -> int:
    """Whole replies until the server has closed."""
    replies, rest = 0, asker.wait_for_close()
    while rest:
        length = int.from_bytes(rest[:2], "big")
        assert 12 <= length <= len(rest) - 2
        rest = rest[2 + length :]
        replies += 1
    return replies


def test_every_mutated_message_is_answered_or_counted(caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(SEED)
    handler = Handler(EchoingClient())
    server = TcpServer(LOOPBACK, handler)
    replies = connections = 0
    with serving(server):
        for packet in packets(dice, 1000):
            with tcp_asker(server.bound) as asker:
                connections += 1
                match dice.randrange(5):
                    case 0:  # a prefix that does not fit
                        prefix = dice.randrange(MAX_MESSAGE + 1).to_bytes(2, "big")
                        asker.sock.sendall(prefix + packet)
                    case 1:  # no prefix at all
                        asker.sock.sendall(packet)
                    case 2:  # an answer in between
                        asker.sock.sendall(frame(QUERY) + frame(packet or QUERY))
                    case _:
                        asker.sock.sendall(frame(packet or QUERY))
                asker.finish()
                replies += read_to_the_end(asker)
        eventually(lambda: server.stats.active == 0)

        assert server.stats.accepted == connections
        assert arrived(server) == accounted(handler, server)
        assert replies == replied(handler.stats)
        assert server.stats.rejected_at_capacity == server.stats.accept_errors == 0
        for count in (replies, handler.stats.dropped_malformed, server.stats.connection_errors):
            assert count > connections / 20, "each way out is taken often"

        with tcp_asker(server.bound) as asker:
            assert asker.ask(QUERY) == answer(QUERY)
    assert caplog.records == []
