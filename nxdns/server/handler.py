"""From the bytes of a query to the bytes of a reply, or a counted drop.

::

    < 12 bytes, cut off      drop                         dropped_malformed
    QR set                   drop                         dropped_malformed
    walks wrongly            FORMERR                      formerr
    opcode not QUERY         NOTIMP                       notimp
    QDCOUNT not 1            FORMERR                      formerr
    OPT not as it must be    FORMERR, question            formerr
    EDNS version above 0     BADVERS, question            badvers
    QTYPE OPT                FORMERR, question            formerr
    a zone transfer          REFUSED, question            refused
    garbage behind the OPT   FORMERR, question            formerr
    answered                 the upstream's bytes         queries
      too long for UDP       TC, question, OPT            queries and truncated
      TC, and asked by TCP   the upstream's bytes         queries and upstream_truncated
    peer fault, local lack,
      garbage behind an OPT  SERVFAIL, question, OPT      servfail
    killed, or out of time   nothing; it propagates       cancelled

The rows are tried in this order. It owns no socket and reads no clock. An OPT is hop by hop: what
of it crosses is the business of :mod:`nxdns.dns.hop`. All replies of ours but those to a query that
does not walk, or whose own OPT is bad, have one if the client sent one.
"""

import enum
import logging
from typing import Final, Protocol

from dns.rcode import Rcode
from dns.rdatatype import RdataType
from gevent import Timeout
from greenlet import GreenletExit

from nxdns.dns import packet
from nxdns.dns.edns import MIN_PAYLOAD, Opt, OptError, find_opt, udp_limit
from nxdns.dns.header import HEADER_LENGTH, OPCODE_MASK, QR, TC, Header, Truncated, WalkError
from nxdns.dns.hop import to_client, to_upstream
from nxdns.dns.records import MoveError
from nxdns.dns.reply import ResponseBuilder
from nxdns.logs.bugs import log_bug_once
from nxdns.server.extended_error import UNEXPLAINED, extended_error
from nxdns.upstream.transport import Client, Group, LocalResource, PeerFault, Phase, group

_log: Final = logging.getLogger(__name__)

_QR_BYTE: Final = QR >> 8
_BADVERS: Final = 16  # RFC 6891 §9; its lower four bits are those of NOERROR
# A zone is no business of a forwarder's clients; an OPT is no type to ask for (RFC 6891 §6.1.1).
_SPECIAL_TYPES: Final = frozenset({packet.OPT, int(RdataType.AXFR), int(RdataType.IXFR)})


class Transport(enum.Enum):
    """How a query came."""

    UDP = "udp"
    TCP = "tcp"


_UDP: Final = Transport.UDP  # an enumeration's member is looked up each time


class HandlerStats:
    """What became of the queries that reached the handler; each counts once, ``truncated`` and
    ``upstream_truncated`` within ``queries``."""

    __slots__ = (
        "badvers",
        "cancelled",
        "dropped_malformed",
        "formerr",
        "notimp",
        "queries",
        "refused",
        "servfail",
        "servfail_phases",
        "truncated",
        "upstream_truncated",
    )

    def __init__(self) -> None:
        self.queries = 0
        self.dropped_malformed = 0
        self.formerr = 0
        self.notimp = 0
        self.badvers = 0
        self.refused = 0
        self.servfail = 0
        #: The same by the phase in which the query's time, or its last upstream, ran out.
        self.servfail_phases: dict[Phase | None, int] = dict.fromkeys([*Phase, None], 0)
        self.truncated = 0
        self.upstream_truncated = 0
        self.cancelled = 0


class Answerer(Protocol):
    """What listeners hand queries to."""

    stats: HandlerStats

    def handle(self, transport: Transport, query: bytes) -> bytes | None:
        """See :class:`Handler`, of which there is one in a process."""


class Handler:
    """Answers queries through one client."""

    def __init__(self, client: Client) -> None:
        self.stats = HandlerStats()
        self._client = client

    def handle(self, transport: Transport, query: bytes) -> bytes | None:
        """The reply to ``query``, or None for a drop, which is counted.

        Raises nothing but GreenletExit, and a gevent.Timeout that somebody else has set.
        """
        stats = self.stats
        if len(query) < HEADER_LENGTH or query[2] & _QR_BYTE:
            stats.dropped_malformed += 1
            return None
        try:
            asked = packet.parse(query)
        except Truncated:
            stats.dropped_malformed += 1
            return None
        except WalkError:
            return self._formerr(ResponseBuilder(Header.parse(query)))
        if asked.flags & OPCODE_MASK:  # QUERY is 0
            stats.notimp += 1
            return _with_opt(ResponseBuilder(asked), asked).set_rcode(Rcode.NOTIMP).build()
        if asked.qdcount != 1:
            return self._formerr(_with_opt(ResponseBuilder(asked), asked))
        try:
            opt = find_opt(asked) if asked.opt_count else None
        except OptError:
            return self._formerr(ResponseBuilder(asked, asked.question().echo()))
        qtype = query[asked.question_end - 4] << 8 | query[asked.question_end - 3]
        if (opt is not None and opt.version) or qtype in _SPECIAL_TYPES:
            return self._special(asked, opt, qtype)
        return self._forward(transport, asked, opt)

    def _special(self, asked: packet.Packet, opt: Opt | None, qtype: int) -> bytes:
        """What no upstream is asked for."""
        if opt is not None and opt.version:
            self.stats.badvers += 1
            reply = ResponseBuilder(asked, asked.question().echo())
            return reply.add_opt(opt, extended_rcode=_BADVERS >> 4).build()
        if qtype == packet.OPT:
            return self._formerr(_reply(asked, opt))
        self.stats.refused += 1
        return _reply(asked, opt).set_rcode(Rcode.REFUSED).build()

    def _forward(self, transport: Transport, asked: packet.Packet, opt: Opt | None) -> bytes:
        try:
            query = to_upstream(asked, opt)
        except MoveError:
            return self._formerr(_reply(asked, opt))
        try:
            reply = self._client.exchange(query)
            answer = to_client(reply, opt)
        except (PeerFault, LocalResource, GreenletExit) as error:
            if group(error) is Group.CANCELLATION:
                self.stats.cancelled += 1
                raise
            phase = None if isinstance(error, GreenletExit) else error.phase
            _log.debug("SERVFAIL: %s; phase %s", error, "none" if phase is None else phase.label)
            return self._servfail(asked, opt, phase, extended_error(error))
        except MoveError as why:  # an answer that nobody could read, or one that is made for this
            _log.debug("SERVFAIL: %s", why)
            return self._servfail(asked, opt, None, UNEXPLAINED)
        except Timeout:  # somebody else's deadline, passing through
            self.stats.cancelled += 1
            raise
        except Exception as exc:  # noqa: BLE001 - logged, and the client gets its SERVFAIL
            log_bug_once(_log, exc)
            return self._servfail(asked, opt, None, UNEXPLAINED)
        stats = self.stats
        stats.queries += 1
        if transport is _UDP:
            size = len(answer)
            if size > MIN_PAYLOAD and size > udp_limit(opt):
                stats.truncated += 1
                return _reply(asked, opt).set_truncated().build()
        elif reply.flags & TC:
            stats.upstream_truncated += 1
        return answer

    def _formerr(self, reply: ResponseBuilder) -> bytes:
        self.stats.formerr += 1
        return reply.set_rcode(Rcode.FORMERR).build()

    def _servfail(
        self, asked: packet.Packet, opt: Opt | None, phase: Phase | None, options: bytes
    ) -> bytes:
        self.stats.servfail += 1
        self.stats.servfail_phases[phase] += 1
        reply = ResponseBuilder(asked, asked.question().echo())
        if opt is not None:
            reply.add_opt(opt, options=options)
        return reply.set_rcode(Rcode.SERVFAIL).build()


def _reply(asked: packet.Packet, opt: Opt | None) -> ResponseBuilder:
    builder = ResponseBuilder(asked, asked.question().echo())
    return builder if opt is None else builder.add_opt_echo(opt)


def _with_opt(builder: ResponseBuilder, asked: packet.Packet) -> ResponseBuilder:
    """RFC 6891 §6.1.1: whoever sends an OPT gets one, if it was a valid one."""
    try:
        opt = find_opt(asked)
    except OptError:
        return builder
    return builder if opt is None else builder.add_opt_echo(opt)
