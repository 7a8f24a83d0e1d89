"""The DoT leaf: at most one DNS-over-TLS session (RFC 7858) at a time, kept across exchanges.

An upstream may close an idle session whenever it likes, and it is not asked before use whether it
has. So whoever rides on a session that turns out to be dead before the first byte of its response
rides on, on one fresh dial, silently but for a counter; see :mod:`nxdns.upstream.pipeline`.
"""

import logging
from time import monotonic_ns
from typing import Final

from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.hop import complete
from nxdns.dns.packet import Packet
from nxdns.upstream.dot_session import DotSession
from nxdns.upstream.dot_site import DotSite
from nxdns.upstream.rider import Rider
from nxdns.upstream.transport import ExchangeInfo, Fault, LocalKind, LocalResource

_log: Final = logging.getLogger(__name__)


class DotClient:
    """A Leaf over at most one TLS session."""

    def __init__(self, site: DotSite) -> None:
        self.last = ExchangeInfo()
        self._site = site
        self._session: DotSession | None = None

    @property
    def is_open(self) -> bool:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        return self._session is not None and self._session.is_open

    @property
    def is_stuck(self) -> bool:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        return self._session is not None and self._session.stuck

    def exchange(self, query: bytes) -> Packet | Fault:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        completed, question_end = complete(query, keepalive=True)
        rider = Rider(completed, question_end)
        try:
            if not 0 < len(rider.query) <= MAX_MESSAGE:
                raise LocalResource(LocalKind.BUFFER_TOO_SMALL)
            # Ends: who rides on has been spared once, or has seen an answer to somebody else.
            while True:
                session = self._session
                if session is None:
                    session = self._session = DotSession(self._site, self._ended)
                outcome = session.carry(rider)
                if outcome is not None:
                    break
        finally:
            self.last = rider
        if rider.thrown_off_by is not None and isinstance(outcome, Packet):
            self._site.stats.recoveries += 1
            endpoint = self._site.endpoint.redacted
            _log.debug("%s: stale session redialled: %s", endpoint, rider.thrown_off_by)
        return outcome

    def _ended(self, session: DotSession, serial: bool) -> None:
        if self._session is session:
            self._session = None
        if serial:
            self._site.depth.be_serial(monotonic_ns())

    def close(self) -> None:
        """See :class:`~nxdns.upstream.transport.Leaf`."""
        if self._session is not None:
            self._session.close()
