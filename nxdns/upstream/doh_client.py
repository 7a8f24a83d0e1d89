"""The DoH leaf: RFC 8484 POST over HTTP/1.1, on connections that an upstream's leaves share.

The message ID goes out unchanged. RFC 8484 §4.1 suggests 0 for the sake of HTTP caches; there is
none on this path, and the ID binds the response to its query.
"""

import logging
import re
from time import monotonic, monotonic_ns
from typing import Any
from urllib.parse import quote

from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.hop import complete
from nxdns.dns.packet import Packet
from nxdns.platform.resolver import Resolver
from nxdns.upstream.blame import blame, refuses_http1
from nxdns.upstream.doh_connection import DohPool, PhaseFailed, Posting, head_of
from nxdns.upstream.retry import Decision, retry_decision
from nxdns.upstream.transport import (
    Cause,
    Endpoint,
    ExchangeInfo,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    Scheme,
    SessionStats,
    validate_response,
)

_log = logging.getLogger(__name__)

MEDIA_TYPE = "application/dns-message"  # RFC 8484 §6
WANTS_HTTP2 = "the server wants HTTP/2, which nxdns does not speak; use its tls:// form"

_PATH_SAFE = "/:@!$&'()*+,;="  # RFC 3986 §3.3; letters, digits and "-._~" are always safe
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_OK = 200
_LENGTH_DIGITS = len(str(MAX_MESSAGE))
# RFC 9110 §15.6.6 and §15.5.22: how a server says that HTTP/1.1 is not enough.
_HTTP_VERSION_STATUSES = frozenset({505, 426})


class DohSite:
    """One DoH endpoint: its connections and what is known of it, shared by its leaves."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls_name: str | None,
        context: Any,
        resolver: Resolver,
        stats: SessionStats,
        *,
        attempt_seconds: float,
        leaves: int,
    ) -> None:
        """``tls_name`` is SNI, the name to verify and the Host header; default: the host.

        Raises ValueError for an endpoint that is not ``https://``.
        """
        if endpoint.scheme is not Scheme.DOH:
            raise ValueError(f"a DoH leaf cannot speak to {endpoint.redacted}")
        self.endpoint = endpoint
        self.attempt_seconds = attempt_seconds
        self.stats = stats
        self._warned = False
        self._pool: DohPool | None = None
        name = _name_of(endpoint, tls_name)
        self._size = leaves
        self._connection: dict[str, Any] = {
            "endpoint": endpoint,
            "verify_name": name,
            "context": context,
            "resolver": resolver,
            "stats": stats,
            "head": head_of(
                _target_of(endpoint.path),
                {
                    "Host": _host_header(name, endpoint.port),
                    "Content-Type": MEDIA_TYPE,
                    "Accept": MEDIA_TYPE,
                    "Accept-Encoding": "identity",
                    "User-Agent": "nxdns",
                },
            ),
        }

    def pool(self) -> DohPool:
        """The connections; new ones after a close."""
        if self._pool is None:
            self._pool = DohPool(self._size, **self._connection)
        return self._pool

    def warn_of_http2(self) -> None:
        """Tell the owner in the log, once."""
        if not self._warned:
            self._warned = True
            _log.warning("%s: %s", self.endpoint.redacted, WANTS_HTTP2)

    def close(self) -> None:
        """Close idle connections now, those in use when their exchange ends. Never waits."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _name_of(endpoint: Endpoint, tls_name: str | None) -> str:
    """Without what only our own machine and its resolver understand: a scope, the root's dot."""
    return (tls_name or endpoint.host).partition("%")[0].removesuffix(".")


def _target_of(path: str) -> str:
    """``path`` with what RFC 3986 does not allow in one escaped, and what is escaped left so."""
    path, escapes = _ESCAPE.subn(lambda match: match[0].upper(), path)
    return quote(path, safe=_PATH_SAFE + "%" * (escapes == path.count("%")))


def _host_header(name: str, port: int) -> str:
    host = f"[{name}]" if ":" in name else name
    return host if port == Scheme.DOH.default_port else f"{host}:{port}"


class DohClient:
    """A Leaf over the shared connections of a site."""

    #: As far as can be told: the connections are the site's, the most recently used one first.
    is_open = True
    #: Never: nobody joins an exchange under way.
    is_stuck = False

    def __init__(self, site: DohSite) -> None:
        self.last = ExchangeInfo()
        self._site = site

    def exchange(self, query: bytes) -> Packet | Fault:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        if not 0 < len(query) <= MAX_MESSAGE:
            self.last.begin(reused=False, tls_version="")
            raise LocalResource(LocalKind.BUFFER_TOO_SMALL)
        query, question_end = complete(query, keepalive=False)
        deadline_seconds = monotonic() + self._site.attempt_seconds
        posting = Posting(self.last, deadline_seconds, fresh=False)
        outcome = self._post(posting, query, question_end)
        if isinstance(outcome, Packet):
            return outcome
        if (
            retry_decision(
                reused=self.last.reused, bytes_received=posting.received, cause=outcome.cause
            )
            is Decision.FINAL
        ):
            return self._with_hint(outcome)
        stale = outcome
        outcome = self._post(Posting(self.last, deadline_seconds, fresh=True), query, question_end)
        if isinstance(outcome, Fault):
            return self._with_hint(outcome)
        self._site.stats.recoveries += 1
        _log.debug("%s: stale connection redialled: %s", self._site.endpoint.redacted, stale)
        return outcome

    def _post(self, posting: Posting, query: bytes, question_end: int) -> Packet | Fault:
        """One POST. A connection whose exchange did not end cleanly never serves another."""
        pool = self._site.pool()
        clean = False
        try:
            outcome = self._transact(pool, posting, query, question_end)
            clean = isinstance(outcome, Packet)
        finally:
            if clean:
                pool.put_back(posting)
            else:
                posting.discard()
        return outcome

    def _transact(
        self, pool: DohPool, posting: Posting, query: bytes, question_end: int
    ) -> Packet | Fault:
        try:
            response = pool.post(posting, query)
        except PhaseFailed as failed:
            reason = failed.__cause__
            if not isinstance(reason, Exception):
                raise
            if refuses_http1(reason):
                self.last.hint = WANTS_HTTP2
            return blame(failed.kind, reason)
        except Exception as exc:
            return blame(FaultKind.RECEIVE_FAILED, exc)
        outcome = _judge_head(response) or self._read_body(response)
        if isinstance(outcome, Fault):
            if outcome.cause == Cause.HTTP_VERSION_NOT_SUPPORTED:
                self.last.hint = WANTS_HTTP2
            return outcome
        return validate_response(query, outcome, question_end)

    def _read_body(self, response: Any) -> bytes | Fault:
        """The whole body, in pieces: one read may come back short without an error."""
        started = monotonic_ns()
        body = b""
        try:
            while piece := response.read(MAX_MESSAGE + 1 - len(body)):
                body += piece
                if len(body) > MAX_MESSAGE:
                    return Fault(FaultKind.RESPONSE_TOO_LARGE, Cause.BODY_LENGTH)
                if response.length_remaining == 0:
                    break  # the declared length is there: to read on would only say so
        except Exception as exc:
            return blame(FaultKind.RECEIVE_FAILED, exc)
        self.last.rest_ns = monotonic_ns() - started
        return body

    def _with_hint(self, fault: Fault) -> Fault:
        if self.last.hint:
            self._site.warn_of_http2()
        return fault

    def close(self) -> None:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        self._site.close()


def _judge_head(response: Any) -> Fault | None:
    """Status, content type, encoding and declared length, in this order."""
    if response.status != _OK:
        return Fault(FaultKind.HTTP_STATUS, _status_cause(response.status))
    media_type = response.headers.get("Content-Type")
    if media_type is None:
        return Fault(FaultKind.HTTP_CONTENT_TYPE, Cause.MISSING_TYPE)
    if not is_dns_message(media_type):
        return Fault(FaultKind.HTTP_CONTENT_TYPE, Cause.WRONG_TYPE)
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        return Fault(FaultKind.HTTP_CONTENT_TYPE, Cause.ENCODED_BODY)
    # Digits alone, as StrictResponse has seen to; there may be more of them than int() takes.
    declared = response.headers.get("Content-Length", "0").lstrip("0")
    if len(declared) > _LENGTH_DIGITS or int(declared or "0") > MAX_MESSAGE:
        return Fault(FaultKind.RESPONSE_TOO_LARGE, Cause.DECLARED_LENGTH)
    return None


def is_dns_message(media_type: str) -> bool:
    """Whether a Content-Type is RFC 8484's, whatever its case and parameters."""
    return media_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def _status_cause(status: int) -> Cause:
    if status in _HTTP_VERSION_STATUSES:
        return Cause.HTTP_VERSION_NOT_SUPPORTED
    match status // 100:
        case 3:
            return Cause.REDIRECT
        case 4:
            return Cause.CLIENT_ERROR
        case 5:
            return Cause.SERVER_ERROR
        case _:
            return Cause.UNEXPECTED_STATUS
