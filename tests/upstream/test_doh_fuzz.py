"""Whatever a server sends, a DoH leaf ends with an answer or with a fault of that server."""

import random
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from nxdns.upstream.transport import Fault, FaultKind
from tests.support.authority import Authority, Issued
from tests.support.http_peer import (
    CHUNKED,
    DNS_MESSAGE,
    TcpPeer,
    chunked,
    head,
    leaves_at,
    promptly,
    read_request,
    reply,
)
from tests.support.leaks import no_descriptor_left
from tests.support.messages import big_response, make_query, make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True, scope="module")
def _loop_has_its_descriptors() -> None:
    """Those of gevent's loop come with its first use, and are nobody's leak."""
    gevent.sleep(0)


QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY, "192.0.2.1")
VALID = [
    reply(RESPONSE),
    reply(RESPONSE, "Connection: close", "Server: test", "Date: Thu, 01 Jan 1970 00:00:00 GMT"),
    reply(make_response(QUERY, *(f"192.0.2.{n}" for n in range(30)))),
    head(DNS_MESSAGE, CHUNKED) + chunked(RESPONSE[:10], RESPONSE[10:]),
    head(DNS_MESSAGE, CHUNKED) + b"5;a=b\r\n12345\r\n0\r\nX-Trailer: 1\r\n\r\n",
    head("X: y", status="100 Continue") + reply(RESPONSE),
    reply(b"Moved", "Location: https://127.0.0.1:1/", status="301 Moved Permanently"),
    head(DNS_MESSAGE, "Content-Encoding: gzip", "Content-Length: 5") + b"12345",
    reply(big_response(QUERY, 3000)),
    reply(RESPONSE).replace(b"HTTP/1.1", b"HTTP/1.0"),
]
# What parsers of HTTP trip over.
TOKENS = [
    *[b"\r\n", b"\n", b"\r", b"\0", b"\xff", b":", b";", b",", b" ", b"\t", b"-", b"+", b"_"],
    *[b"-1", b"-5", b"0x10", b"1e9", b"99999999999999999999", b"ffffffffffffffff", b"00", b"0"],
    *[b"HTTP/1.1 ", b"HTTP/2.0 ", b"HTTP/0.9 ", b"100", b"204", b"304", b"505"],
    *[b"Content-Length: ", b"Transfer-Encoding: ", b"chunked", b"gzip", b"Content-Type: "],
    *[b"Content-Encoding: ", b"Connection: ", b"close", b"keep-alive", b"Keep-Alive: "],
    *["é\u2028".encode(), b"=?utf-8?q?=00?=", b"\x0b\x0c\x1c\x85"],
]


def garbage(rand: random.Random) -> bytes:
    """Bytes without any sense, some of them behind a good beginning."""
    begin = rand.choice([b"", b"", b"HTTP/1.1 ", head(DNS_MESSAGE), head(DNS_MESSAGE, CHUNKED)])
    if rand.random() < 0.5:
        return begin + rand.randbytes(rand.randrange(300))
    return begin + b"".join(rand.choices(TOKENS, k=rand.randrange(40)))


def mutated(rand: random.Random) -> bytes:
    """A valid response with a few bytes changed, doubled, dropped, or replaced by a token."""
    data = bytearray(rand.choice(VALID))
    # Most of what can be broken stands in the head, so most of the time break that.
    bound = data.find(b"\r\n\r\n") + 20 if rand.random() < 0.7 else len(data)
    for _ in range(rand.randint(1, 4)):
        at = rand.randrange(max(1, min(bound, len(data))))
        match rand.randrange(5):
            case 0:
                data[at : at + 1] = rand.randbytes(1)
            case 1:
                del data[at : at + rand.randint(1, 8)]
            case 2:
                data[at:at] = rand.choice(TOKENS)
            case 3:
                token = rand.choice(TOKENS)
                data[at : at + len(token)] = token
            case _:
                data[at:at] = data[at : at + rand.randint(1, 20)]
    return bytes(data)


class Served:
    """What the server does with the next request: ``data``, and then ``end`` if there is one."""

    data: bytes
    end: Callable[[Session], None] | None

    def script(self, session: Session) -> None:
        while True:
            read_request(session)
            if self.data:
                session.send(self.data)
            if self.end is not None:
                self.end(session)


ENDS = [Session.close_notify, Session.truncate, Session.reset]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [garbage, mutated])
def test_the_outcome_is_bytes_or_a_fault(
    authority: Authority,
    certificate: Issued,
    make: Callable[[random.Random], bytes],
    seed: int,
) -> None:
    rand = random.Random(seed)
    served = Served()
    with (
        no_descriptor_left(),
        TlsPeer(certificate.openssl_context(), served.script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        for _ in range(150):
            if rand.random() < 0.3:  # on a connection that was good once it is worth a try, too
                served.data, served.end = reply(RESPONSE), None
                assert promptly(leaves.first, QUERY) == RESPONSE
            served.data, served.end = make(rand), rand.choice(ENDS)
            try:
                outcome = promptly(leaves.first, QUERY)
            except (Exception, gevent.Timeout) as error:
                raise AssertionError(f"{served.data!r} made {error!r}") from error
            assert isinstance(outcome, bytes | Fault)


@pytest.mark.parametrize("seed", range(4))
def test_the_outcome_is_a_fault_whatever_comes_in_the_place_of_tls(
    authority: Authority, seed: int
) -> None:
    rand = random.Random(seed)

    def script(sock: Any) -> None:
        sock.recv(1 << 14)
        header = bytes([rand.choice([20, 21, 22, 23]), 3, rand.randrange(5)])
        data = rand.randbytes(rand.randrange(1, 200))
        sock.sendall(rand.choice([b"", header, header + b"\0\x40"]) + data)

    with (
        no_descriptor_left(),
        TcpPeer(script) as peer,
        leaves_at(peer.port, authority) as leaves,
    ):
        for _ in range(100):
            outcome = promptly(leaves.first, QUERY)
            assert isinstance(outcome, Fault)
            assert outcome.kind is FaultKind.TLS_FAILED
