"""The DoT leaf: one DNS-over-TLS session (RFC 7858), kept open across exchanges.

An upstream may close an idle session whenever it likes, and it is not asked before use whether it
has. So a reused session that turns out to be dead before the first byte of a response is replaced
by one fresh dial, silently but for a counter; see :mod:`nxdns.upstream.retry`.
"""

import logging
from time import monotonic_ns

from greenlet import GreenletExit
from OpenSSL import SSL

from nxdns.dns.framing import MAX_MESSAGE, EmptyFrame, Unframer, frame
from nxdns.platform.sockets import dial
from nxdns.platform.tls_client import open_session
from nxdns.platform.tls_stream import TlsStream
from nxdns.upstream.blame import blame
from nxdns.upstream.retry import Decision, retry_decision
from nxdns.upstream.transport import (
    Cause,
    Endpoint,
    ExchangeInfo,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    Recoveries,
    Scheme,
    validate_response,
)

_log = logging.getLogger(__name__)


class DotClient:
    """A Leaf over at most one TLS session."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls_name: str | None,
        context: SSL.Context,
        recoveries: Recoveries,
    ) -> None:
        """``tls_name`` is the name to verify and, if it is none, the SNI; default: the host.

        Raises ValueError for an endpoint that is not ``tls://``.
        """
        if endpoint.scheme is not Scheme.DOT:
            raise ValueError(f"a DoT leaf cannot speak to {endpoint.redacted}")
        self.last = ExchangeInfo()
        self._endpoint = endpoint
        self._tls_name = tls_name or endpoint.host
        self._context = context
        self._recoveries = recoveries
        self._session: TlsStream | None = None
        self._closes = 0

    def exchange(self, query: bytes) -> bytes | Fault:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        if not 0 < len(query) <= MAX_MESSAGE:
            raise LocalResource(LocalKind.BUFFER_TOO_SMALL)
        closes = self._closes
        try:
            outcome = self._exchange(query)
        except BaseException:
            self._drop()  # in the middle of a frame nobody knows where the next one starts
            raise
        if isinstance(outcome, Fault) and self._closes != closes:
            raise GreenletExit  # close() took the socket away under this exchange
        return outcome

    def _exchange(self, query: bytes) -> bytes | Fault:
        session = self._session
        if session is None:
            return self._exchange_on_fresh_dial(query)
        self.last.begin(reused=True, tls_version=self.last.tls_version)
        unframer = Unframer()
        outcome = self._transact(session, query, unframer)
        if isinstance(outcome, bytes):
            return outcome
        received = unframer.received
        if retry_decision(reused=True, bytes_received=received, cause=outcome.cause) is (
            Decision.FINAL
        ):
            return outcome
        stale = outcome
        outcome = self._exchange_on_fresh_dial(query)
        if isinstance(outcome, bytes):
            self._recoveries.total += 1
            _log.debug("%s: stale session redialled: %s", self._endpoint.redacted, stale)
        return outcome

    def _exchange_on_fresh_dial(self, query: bytes) -> bytes | Fault:
        self.last.begin(reused=False, tls_version="")
        session = self._dial()
        if isinstance(session, Fault):
            return session
        self._session = session
        return self._transact(session, query, Unframer())

    def _dial(self) -> TlsStream | Fault:
        """Connect, complete the handshake and verify; no half-built session survives."""
        endpoint, info = self._endpoint, self.last
        if not endpoint.is_literal:
            # Refused when the configuration is loaded; a lookup here could wait for ourselves.
            return Fault(FaultKind.CONNECT_FAILED, Cause.NAME_NOT_RESOLVED)
        closes = self._closes
        started = monotonic_ns()
        try:
            sock = dial(endpoint.host, endpoint.port)
        except Exception as exc:
            return blame(FaultKind.CONNECT_FAILED, exc)
        connected = monotonic_ns()
        info.dial_ns = connected - started
        try:
            session = open_session(sock, self._context, self._tls_name)
        except Exception as exc:
            return blame(FaultKind.TLS_FAILED, exc)
        info.tls_ns = monotonic_ns() - connected
        info.tls_version = session.version
        if self._closes != closes:
            session.close()
            raise GreenletExit
        return session

    def _transact(self, session: TlsStream, query: bytes, unframer: Unframer) -> bytes | Fault:
        """One query and its response. A session that cannot be trusted any more is dropped."""
        info = self.last
        started = monotonic_ns()
        try:
            session.send(frame(query))
        except Exception as exc:
            return self._failed(blame(FaultKind.SEND_FAILED, exc))
        sent = monotonic_ns()
        info.send_ns = sent - started
        first_byte = 0
        response = None
        while response is None:
            try:
                unframer.feed(session.recv())
            except Exception as exc:
                return self._failed(blame(FaultKind.RECEIVE_FAILED, exc))
            if not first_byte:
                first_byte = monotonic_ns()
                info.first_byte_ns = first_byte - sent
            try:
                response = unframer.next_message()
            except EmptyFrame as exc:
                return self._failed(blame(FaultKind.BAD_RESPONSE, exc))
        info.rest_ns = monotonic_ns() - first_byte
        fault = validate_response(query, response)
        if fault is not None:
            return self._failed(fault)
        if unframer.received or session.ended:
            # Bytes that nobody asked for, or a close that has arrived: not for the next query.
            self._drop()
        return response

    def _failed(self, fault: Fault) -> Fault:
        self._drop()
        return fault

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self) -> None:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        self._closes += 1
        self._drop()
