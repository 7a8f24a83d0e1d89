"""The server side of DNS over TLS: a loopback upstream for the demo and for tests."""

from typing import Any

import gevent
from gevent import Timeout, socket
from gevent.lock import RLock
from gevent.pool import Pool
from gevent.server import StreamServer
from OpenSSL import SSL

from nxdns.dns import packet
from nxdns.dns.framing import Unframer, frame
from nxdns.dns.header import WalkError
from nxdns.dns.reply import ResponseBuilder
from nxdns.platform.tls_stream import TlsStream

_TTL_SECONDS = 60
_ANSWERS = {
    1: bytes([192, 0, 2, 1]),  # A, from RFC 5737's addresses for documentation
    28: bytes.fromhex("20010db8000000000000000000000001"),  # AAAA, from RFC 3849's
}
_CLASS_IN = 1

_IDLE_SECONDS = 60.0  # longer than any demo or test is idle
_REPLIES = 1024  # of one session at a time; beyond it nothing more is read from it


def server_context(chain_file: str, key_file: str) -> SSL.Context:
    """A server's side of TLS 1.2 or newer. Raises SSL.Error for files that do not fit."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.use_certificate_chain_file(chain_file)
    context.use_privatekey_file(key_file)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    return context


def accept_session(sock: Any, context: SSL.Context) -> TlsStream:
    """Take over the accepted ``sock`` and complete the handshake; ``sock`` is closed if it fails.

    Raises TlsTruncated, SSL.Error, OSError.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = SSL.Connection(context, None)
    connection.set_accept_state()
    stream = TlsStream(sock, connection)
    try:
        stream.handshake()
    except BaseException:
        stream.close()
        raise
    return stream


class LoopbackUpstream(StreamServer):  # type: ignore[misc]  # gevent ships no types
    """Answers any name over DoT on 127.0.0.1, each query after the same latency.

    As good public resolvers do, it answers the queries of one session side by side.
    """

    def __init__(self, context: SSL.Context, latency_seconds: float) -> None:
        self.handshakes = 0
        self.queries = 0
        self._context = context
        self._latency_seconds = latency_seconds
        super().__init__(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """The port that the kernel chose, once started."""
        return int(self.address[1])

    def handle(self, sock: Any, _client: Any) -> None:
        """Serve one session until its client ends it, or has been idle for too long."""
        try:
            with Timeout(_IDLE_SECONDS, TimeoutError):
                stream = accept_session(sock, self._context)
        except (OSError, EOFError, SSL.Error):
            return  # a client that will not have us; it knows why
        self.handshakes += 1
        writing = RLock()
        unframer = Unframer()
        replies = Pool(_REPLIES)
        try:
            while True:
                with Timeout(_IDLE_SECONDS, TimeoutError):
                    unframer.feed(stream.recv())
                while (query := unframer.next_message()) is not None:
                    self.queries += 1
                    replies.spawn(self._reply, stream, writing, query)
        except (OSError, EOFError, SSL.Error, ValueError):
            pass  # the client has ended the session, or has sent what is no DNS
        finally:
            replies.kill(block=False)
            stream.close()

    def _reply(self, stream: TlsStream, writing: Any, query: bytes) -> None:
        gevent.sleep(self._latency_seconds)
        try:
            answer = frame(_answer(query))
            with Timeout(_IDLE_SECONDS, TimeoutError), writing:
                stream.send(answer)
        except (OSError, SSL.Error, WalkError):
            stream.close()


def _answer(query: bytes) -> bytes:
    asked = packet.parse(query)
    question = asked.question()
    reply = ResponseBuilder(asked, question.echo())
    rdata = _ANSWERS.get(question.qtype)
    if rdata is not None:
        reply.add_answer(question.qtype, _CLASS_IN, _TTL_SECONDS, rdata)
    return reply.build()
