"""A TLS stream that the event loop serves: nobody who uses it waits, and nothing is lost."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
import pytest
from gevent import socket
from OpenSSL import SSL

from nxdns.platform.tls_errors import TlsTruncated
from nxdns.platform.tls_events import TlsEvents
from tests.support.fake_clients import settle
from tests.support.leaks import no_descriptor_left
from tests.support.tls_pair import Pair, ciphertext_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LARGE = bytes(range(251)) * 16_000  # 4 MB: more than both sockets take


def nothing() -> None:
    pass


class Client:
    """The client's end of a pair behind its handshake, and what the loop has said of it."""

    def __init__(self, pair: Pair) -> None:
        self.heard: list[bytes] = []
        self.sent = 0
        self.ends: list[tuple[Exception, bool]] = []
        #: What it does, in the loop, behind each call of that kind.
        self.on_plaintext: Callable[[], None] = nothing
        self.on_sent: Callable[[], None] = nothing
        self.on_end: Callable[[], None] = nothing
        self.events = TlsEvents(
            pair.client, pair.client_sock, self._take, self._count_sent, self._end
        )

    def _take(self, plaintext: bytes) -> None:
        assert plaintext
        self.heard.append(plaintext)
        self.on_plaintext()

    def _count_sent(self) -> None:
        self.sent += 1
        self.on_sent()

    def _end(self, error: Exception, sending: bool) -> None:
        self.ends.append((error, sending))
        self.on_end()

    @property
    def all_heard(self) -> bytes:
        return b"".join(self.heard)


@pytest.fixture
def client(pair: Pair) -> Any:
    """Behind the handshake. Its callbacks close nothing by themselves."""
    pair.handshake()
    client = Client(pair)
    yield client
    client.events.close()


def read_all(pair: Pair, size: int) -> Any:
    """A greenlet that reads ``size`` bytes at the server."""

    def read() -> bytes:
        heard = bytearray()
        while len(heard) < size:
            heard.extend(pair.server.recv())
        return bytes(heard)

    return gevent.spawn(read)


def in_the_loop(run: Callable[[], None]) -> None:
    """Run it where whoever tries to wait gets an error."""
    ends: list[BaseException | None] = []

    def call() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - reported below
            ends.append(error)
        else:
            ends.append(None)

    gevent.get_hub().loop.run_callback(call)
    eventually(lambda: ends)
    assert ends == [None]


# Reading.


def test_whoever_listens_hears_what_comes(pair: Pair, client: Client) -> None:
    client.events.listen()
    client.events.listen()
    pair.server.send(b"one")
    eventually(lambda: client.heard == [b"one"])
    pair.server.send(b"two")
    eventually(lambda: len(client.heard) == 2)
    assert client.heard == [b"one", b"two"]
    assert client.ends == []


def test_all_records_that_have_arrived_are_heard_at_once(pair: Pair, client: Client) -> None:
    for word in (b"one ", b"two ", b"three"):
        pair.server.connection.send(word)
    pair.server_sock.sendall(ciphertext_of(pair.server.connection))
    client.events.listen()
    eventually(lambda: client.heard)
    assert client.heard == [b"one two three"]


def test_a_record_in_pieces_is_heard_when_it_is_whole(pair: Pair, client: Client) -> None:
    client.events.listen()
    pair.server.connection.send(b"answer")
    *most, last = (bytes([byte]) for byte in ciphertext_of(pair.server.connection))
    for byte in most:
        pair.server_sock.sendall(byte)
        gevent.idle()
    assert client.heard == []
    pair.server_sock.sendall(last)
    eventually(lambda: client.heard == [b"answer"])


def test_more_than_one_read_takes_comes_whole_and_in_order(pair: Pair, client: Client) -> None:
    client.events.listen()
    sending = gevent.spawn(pair.server.send, LARGE)
    eventually(lambda: sum(map(len, client.heard)) >= len(LARGE))
    sending.get()
    assert client.all_heard == LARGE


def test_whoever_pauses_hears_nothing_until_it_listens_again(pair: Pair, client: Client) -> None:
    client.events.listen()
    client.events.pause()
    client.events.pause()
    pair.server.send(b"answer")
    settle()
    assert client.heard == []
    client.events.listen()
    eventually(lambda: client.heard == [b"answer"])
    pair.server.send(b"and more")
    eventually(lambda: client.all_heard == b"answerand more")


def test_what_comes_while_nobody_listens_does_not_keep_the_loop_busy(
    pair: Pair, client: Client
) -> None:
    client.events.listen()
    client.events.pause()
    pair.server.send(b"answer")
    pair.server.close()
    loop = gevent.get_hub().loop
    settle()
    before = loop.iteration
    gevent.sleep(0.05)
    assert loop.iteration - before < 10
    assert (client.heard, client.ends) == ([], [])
    client.events.listen()
    eventually(lambda: client.heard == [b"answer"])


def test_whoever_pauses_in_its_own_callback_hears_no_more(pair: Pair, client: Client) -> None:
    client.on_plaintext = client.events.pause
    client.events.listen()
    pair.server.send(b"one")
    eventually(lambda: client.heard == [b"one"])
    pair.server.send(b"two")
    settle()
    assert client.heard == [b"one"]
    client.events.listen()
    eventually(lambda: client.heard == [b"one", b"two"])


def test_plaintext_that_came_with_the_handshake_is_heard_without_more_bytes(pair: Pair) -> None:
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
    shaking.get()
    client = Client(pair)
    client.events.listen()
    eventually(lambda: client.heard == [b"welcome"])
    client.events.close()


def test_whoever_closes_at_once_is_not_told_what_came_with_the_handshake(pair: Pair) -> None:
    pair.handshake()
    pair.server.send(b"welcome")
    pair.client.connection.bio_write(pair.client_sock.recv(1 << 16))
    client = Client(pair)
    client.events.close()
    gevent.idle()
    assert (client.heard, client.ends) == ([], [])


# Writing.


def test_what_fits_is_sent_at_once_and_told_at_once(pair: Pair, client: Client) -> None:
    in_the_loop(lambda: client.events.write(b"question"))
    assert client.sent == 1
    assert pair.server.recv() == b"question"


def test_what_does_not_fit_leaves_when_the_peer_reads_and_nobody_has_waited(
    pair: Pair, client: Client
) -> None:
    in_the_loop(lambda: client.events.write(LARGE))
    in_the_loop(lambda: client.events.write(b"and the end"))
    gevent.idle()
    assert client.sent == 0
    reading = read_all(pair, len(LARGE) + len(b"and the end"))
    eventually(lambda: client.sent)
    assert reading.get() == LARGE + b"and the end"
    assert client.sent == 1, "told once, when nothing is left"
    client.events.write(b"more")
    assert client.sent == 2
    assert pair.server.recv() == b"more"


def test_it_can_be_heard_what_the_peer_says_while_it_does_not_read(
    pair: Pair, client: Client
) -> None:
    client.events.write(LARGE)
    client.events.listen()
    pair.server.send(b"answer")
    eventually(lambda: client.heard == [b"answer"])
    assert client.sent == 0


def test_a_write_to_a_peer_that_has_reset_raises(pair: Pair, client: Client) -> None:
    _reset(pair)
    with pytest.raises(ConnectionError):
        client.events.write(b"question")
    assert client.ends == []


def test_a_reset_during_a_partial_write_is_told_as_an_end_while_sending(
    pair: Pair, client: Client
) -> None:
    client.on_end = client.events.close
    client.events.write(LARGE)
    _reset(pair)
    eventually(lambda: client.ends)
    ((error, sending),) = client.ends
    assert isinstance(error, ConnectionError)
    assert sending
    gevent.idle()
    assert len(client.ends) == 1
    assert client.sent == 0


def test_what_had_come_before_a_write_failed_can_still_be_heard(pair: Pair, client: Client) -> None:
    pair.server.send(b"one")
    pair.server.send(b"two")
    _reset(pair)
    with pytest.raises(ConnectionError):
        client.events.write(b"question")
    in_the_loop(client.events.read_rest)
    assert client.all_heard == b"onetwo"
    assert client.ends == []
    in_the_loop(client.events.read_rest)
    assert client.all_heard == b"onetwo"


def test_whoever_closes_while_it_hears_the_rest_hears_no_more(pair: Pair, client: Client) -> None:
    client.on_plaintext = client.events.close
    sending = gevent.spawn(pair.server.send, LARGE)
    gevent.idle()
    in_the_loop(client.events.read_rest)
    in_the_loop(client.events.read_rest)
    sending.kill()
    assert len(client.heard) == 1
    assert client.ends == []


@pytest.mark.parametrize("error", [BlockingIOError, ConnectionError, EOFError, SSL.Error])
def test_what_a_consumer_raises_is_not_taken_for_an_end_of_the_stream(
    pair: Pair, client: Client, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    escaped: list[Any] = []
    monkeypatch.setattr(
        gevent.get_hub(), "print_exception", lambda _context, kind, *_: escaped.append(kind)
    )

    def fail() -> None:
        raise error

    client.on_plaintext = fail
    client.events.listen()
    pair.server.send(b"one")
    eventually(lambda: escaped)
    assert escaped == [error]
    assert client.ends == []


def _reset(pair: Pair) -> None:
    pair.server_sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.server_sock.close()
    gevent.idle()


# Ends.


def _close_notify(pair: Pair) -> None:
    pair.server.close()


def _fin(pair: Pair) -> None:
    pair.server_sock.close()


def _fin_in_the_middle_of_a_record(pair: Pair) -> None:
    pair.server.connection.send(b"answer")
    pair.server_sock.sendall(ciphertext_of(pair.server.connection)[:-1])
    pair.server_sock.close()


def _garbage(pair: Pair) -> None:
    pair.server_sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        pytest.param(_close_notify, SSL.ZeroReturnError, id="close-notify"),
        pytest.param(_fin, TlsTruncated, id="fin"),
        pytest.param(_fin_in_the_middle_of_a_record, TlsTruncated, id="fin-in-a-record"),
        pytest.param(_reset, ConnectionResetError, id="reset"),
        pytest.param(_garbage, SSL.Error, id="garbage"),
    ],
)
def test_the_end_of_the_stream_is_told_as_what_it_was(
    pair: Pair, client: Client, ending: Callable[[Pair], None], kind: type[Exception]
) -> None:
    client.on_end = client.events.close
    client.events.listen()
    ending(pair)
    eventually(lambda: client.ends)
    gevent.idle()
    ((error, sending),) = client.ends
    assert isinstance(error, kind)
    assert not sending
    assert client.heard == []


def test_plaintext_before_an_end_in_the_same_segment_is_heard_with_its_failure(
    pair: Pair, client: Client
) -> None:
    failures: list[Exception | None] = []
    client.on_plaintext = lambda: failures.append(client.events.failure)
    client.events.listen()
    pair.server.send(b"one")
    eventually(lambda: failures)
    pair.server.connection.send(b"two")
    pair.server.connection.shutdown()
    pair.server_sock.sendall(ciphertext_of(pair.server.connection))
    eventually(lambda: len(failures) == 2)
    assert client.heard == [b"one", b"two"]
    assert failures[0] is None
    assert isinstance(failures[1], SSL.ZeroReturnError)


# Closing.


@pytest.mark.parametrize("within", ["on_plaintext", "on_sent", "on_end"])
def test_it_can_be_closed_within_each_of_its_callbacks_and_calls_none_afterwards(
    pair: Pair, within: str
) -> None:
    pair.handshake()
    calls: list[str] = []
    with no_descriptor_left():
        client = Client(pair)
        client.events.listen()

        def close() -> None:
            calls.append(within)
            client.events.close()

        setattr(client, within, close)
        if within == "on_plaintext":
            pair.server.send(b"one")
            pair.server.send(b"two")
        elif within == "on_sent":
            client.events.write(LARGE)
            read_all(pair, len(LARGE))
        else:
            pair.server_sock.shutdown(socket.SHUT_WR)
        eventually(lambda: calls)
        gevent.idle()
        assert calls == [within]
        assert client.ends == [] or within == "on_end"
        assert pair.client_sock.fileno() == -1


def test_closing_behind_a_partial_write_neither_waits_nor_leaves_a_watcher(
    pair: Pair,
) -> None:
    pair.handshake()
    client = Client(pair)
    client.events.listen()
    client.events.write(LARGE)
    in_the_loop(client.events.close)
    assert pair.client_sock.fileno() == -1
    with suppress(SSL.Error, EOFError, OSError):
        while True:
            pair.server.recv()
    gevent.idle()
    assert (client.sent, client.heard, client.ends) == (0, [], [])


def test_a_close_says_goodbye(pair: Pair) -> None:
    pair.handshake()
    client = Client(pair)
    client.events.close()
    with pytest.raises(SSL.ZeroReturnError):
        pair.server.recv()
