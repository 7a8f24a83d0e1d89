"""TLS over memory BIOs: whole messages, honest endings, and a close that never waits."""

from collections.abc import Callable

import gevent
import pytest
from gevent import socket
from gevent.event import Event
from OpenSSL import SSL

from nxdns.platform.tls_errors import TlsTruncated
from tests.support.tls_pair import Pair, ciphertext_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


# Whole messages.


def test_both_ends_agree_on_a_version_and_talk(pair: Pair) -> None:
    pair.handshake()
    assert pair.client.version == pair.server.version
    assert pair.client.version in ("TLSv1.2", "TLSv1.3")
    pair.client.send(b"question")
    assert pair.server.recv() == b"question"
    pair.server.send(b"answer")
    assert pair.client.recv() == b"answer"
    assert pair.client.failure is None


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(16384, id="one-full-record"),
        pytest.param(16385, id="one-byte-more"),
        pytest.param(65537, id="the-largest-framed-message"),
        pytest.param(3_000_000, id="more-than-the-window"),
    ],
)
def test_what_is_sent_arrives_whole(pair: Pair, size: int) -> None:
    pair.handshake()
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    heard = bytearray()

    def read() -> None:
        while len(heard) < size:
            heard.extend(pair.server.recv())

    reading = gevent.spawn(read)
    pair.client.send(data)
    reading.join(10)
    assert len(heard) == size
    assert heard == data


def test_the_handshake_may_come_one_byte_to_a_segment(pair: Pair) -> None:
    server = pair.server.connection

    def drip() -> None:
        while True:
            try:
                server.do_handshake()
            except SSL.WantReadError:
                finished = False
            else:
                finished = True
            for byte in ciphertext_of(server):
                pair.server_sock.sendall(bytes([byte]))
                gevent.idle()  # the client has read it
            if finished:
                return
            server.bio_write(pair.server_sock.recv(1 << 16))

    dripping = gevent.spawn(drip)
    pair.client.handshake()
    dripping.get()
    pair.client.send(b"question")
    assert pair.server.recv() == b"question"


def test_recv_returns_all_that_has_arrived(pair: Pair) -> None:
    pair.handshake()
    for word in (b"one ", b"two ", b"three"):
        pair.server.connection.send(word)
    pair.server_sock.sendall(ciphertext_of(pair.server.connection))
    assert pair.client.recv() == b"one two three"


def test_plaintext_that_came_with_the_end_of_the_handshake_is_not_waited_for(pair: Pair) -> None:
    server = pair.server.connection

    def shake() -> None:
        while True:
            try:
                server.do_handshake()
            except SSL.WantReadError:
                pair.server_sock.sendall(ciphertext_of(server))
                server.bio_write(pair.server_sock.recv(1 << 16))
            else:
                break
        # In TLS 1.2 the server's Finished is still unsent, and its first words go with it.
        server.send(b"welcome")
        pair.server_sock.sendall(ciphertext_of(server))

    shaking = gevent.spawn(shake)
    pair.client.handshake()
    assert pair.client.recv() == b"welcome"
    shaking.get()


# Endings.


def test_a_clean_close_is_no_truncation(pair: Pair) -> None:
    pair.handshake()
    pair.server.close()
    with pytest.raises(SSL.ZeroReturnError):
        pair.client.recv()


def test_a_bare_fin_is_a_truncation(pair: Pair) -> None:
    pair.handshake()
    pair.server_sock.close()
    with pytest.raises(TlsTruncated):
        pair.client.recv()


def test_a_fin_in_the_middle_of_a_record_is_a_truncation(pair: Pair) -> None:
    pair.handshake()
    pair.server.connection.send(b"answer")
    pair.server_sock.sendall(ciphertext_of(pair.server.connection)[:-1])
    pair.server_sock.close()
    with pytest.raises(TlsTruncated):
        pair.client.recv()


def test_a_fin_during_the_handshake_is_a_truncation(pair: Pair) -> None:
    pair.server_sock.shutdown(socket.SHUT_WR)
    with pytest.raises(TlsTruncated):
        pair.client.handshake()


def test_plaintext_before_a_close_in_the_same_segment_is_not_lost(pair: Pair) -> None:
    pair.handshake()
    pair.server.connection.send(b"answer")
    pair.server.connection.shutdown()
    pair.server_sock.sendall(ciphertext_of(pair.server.connection))
    assert pair.client.recv() == b"answer"
    assert pair.client.failure is not None
    for _ in range(2):
        with pytest.raises(SSL.ZeroReturnError):
            pair.client.recv()


def test_plaintext_before_garbage_in_the_same_segment_is_not_lost(pair: Pair) -> None:
    pair.handshake()
    pair.server.connection.send(b"answer")
    ciphertext = ciphertext_of(pair.server.connection)
    pair.server_sock.sendall(ciphertext + b"this is no record of TLS")
    assert pair.client.recv() == b"answer"
    assert pair.client.failure is not None
    with pytest.raises(SSL.Error):
        pair.client.recv()


def test_closing_behind_a_broken_record_tells_the_peer_why(pair: Pair) -> None:
    pair.handshake()
    pair.server_sock.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(SSL.Error, match="bad record mac"):
        pair.client.recv()
    pair.client.close()
    with pytest.raises(SSL.Error, match="alert"):
        pair.server.recv()


# Closing never waits.


def _before_the_handshake(_: Pair) -> None:
    pass


def _within_the_handshake(pair: Pair) -> None:
    gevent.spawn(pair.client.handshake).kill()


def _idle(pair: Pair) -> None:
    pair.handshake()


def _peer_has_reset(pair: Pair) -> None:
    pair.handshake()
    pair.server_sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.server_sock.close()
    gevent.idle()


def _window_is_full(pair: Pair) -> None:
    pair.handshake()
    sending = gevent.spawn(pair.client.send, bytes(8_000_000))
    gevent.idle()
    assert not sending.dead
    sending.kill()


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(_before_the_handshake, id="before-the-handshake"),
        pytest.param(_within_the_handshake, id="within-the-handshake"),
        pytest.param(_idle, id="idle"),
        pytest.param(_peer_has_reset, id="peer-has-reset"),
        pytest.param(_window_is_full, id="window-is-full"),
    ],
)
def test_close_never_switches_greenlets(pair: Pair, state: Callable[[Pair], None]) -> None:
    state(pair)
    others: list[str] = []
    gevent.spawn(others.append, "another greenlet ran")
    pair.client.close()
    pair.client.close()
    assert others == []
    gevent.idle()
    assert others == ["another greenlet ran"]
    assert pair.client_sock.fileno() == -1


def test_close_can_be_called_by_the_event_loop_itself(pair: Pair) -> None:
    pair.handshake()
    ends: list[BaseException | None] = []

    def close() -> None:
        try:
            pair.client.close()
        except BaseException as error:  # noqa: BLE001 - such as gevent's on a wait in the loop
            ends.append(error)
        else:
            ends.append(None)

    gevent.get_hub().loop.run_callback(close)
    eventually(lambda: ends)
    assert ends == [None]


def test_who_waits_for_plaintext_is_woken_by_a_close(pair: Pair) -> None:
    pair.handshake()
    waiting = Event()

    def read() -> Exception | None:
        waiting.set()
        try:
            pair.client.recv()
        except OSError as error:
            return error
        return None

    reading = gevent.spawn(read)
    waiting.wait()
    pair.client.close()
    assert isinstance(reading.get(), OSError)
