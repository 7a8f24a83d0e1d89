"""One DNS-over-TLS session (RFC 7858) and those who ride on it, from its dial to its end.

A greenlet of the session's own opens it, so that no rider's end is the end of the others'. From
then on the event loop reads it, and hands each answer to whom it belongs; what boards in one turn
of the loop leaves in one write. While nobody waits nobody reads: a session is not probed, and a
close that arrives meanwhile is found by the next query, as a stale session.
"""

from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

import gevent
from greenlet import GreenletExit, getcurrent

from nxdns.dns.hop import idle_time
from nxdns.dns.packet import Packet
from nxdns.platform.sockets import dial
from nxdns.platform.tls_client import open_session
from nxdns.platform.tls_events import TlsEvents
from nxdns.upstream.attempt import EXPIRED
from nxdns.upstream.blame import blame
from nxdns.upstream.dot_site import DotSite
from nxdns.upstream.exchange import FIRST_BYTE, SEND, TLS
from nxdns.upstream.pipeline import Pipeline
from nxdns.upstream.rider import Ending, Rider
from nxdns.upstream.transport import Cause, Fault, FaultKind, LocalResource

NOT_RESOLVED: Final = Fault(FaultKind.CONNECT_FAILED, Cause.NAME_NOT_RESOLVED)

Outcome = Packet | Fault | None
"""What :meth:`DotSession.carry` gives: the response, the fault, or None to ride on."""


class DotSession:
    """A session that is being opened, is open, or has ended."""

    __slots__ = (
        "_boarding",
        "_connected",
        "_events",
        "_hub",
        "_leaving",
        "_on_end",
        "_opened_at",
        "_opener",
        "_opening_since",
        "_pipeline",
        "_site",
        "_unsent",
        "_version",
        "ended",
        "stuck",
    )

    def __init__(self, site: DotSite, on_end: Callable[["DotSession", bool], None]) -> None:
        """Begin to dial. ``on_end`` is called once, when nobody can board any more, and is told
        whether the server has shown that it closes behind its answers. It must not switch."""
        self._site = site
        self._on_end = on_end
        self._pipeline = Pipeline(site.draw_id, strict=site.depth.limit == 1)
        #: Those who wait for the handshake to end.
        self._boarding: list[Rider] = []
        #: Those of whose frame the kernel may not have taken everything yet.
        self._leaving: list[Rider] = []
        #: Those whose frame leaves at the end of this turn of the loop.
        self._unsent: list[Rider] = []
        self._events: TlsEvents | None = None
        self._hub = gevent.get_hub()
        self._version = ""
        self._opening_since = monotonic_ns()
        self._connected = False
        self._opened_at = 0
        self.ended = False
        #: Whether somebody has given up, and nobody was answered for an attempt budget.
        self.stuck = False
        site.stats.dials += 1
        self._opener: Any = gevent.spawn(self._open)

    @property
    def is_open(self) -> bool:
        return self._events is not None

    def carry(self, rider: Rider) -> Outcome:
        """Carry one exchange, and wait for what comes of it. None: ride on, on another session.

        Raises LocalResource, GreenletExit, and whatever is thrown into the caller meanwhile, who
        then waits no longer. Only to be called before the end.
        """
        rider.waiter = getcurrent()
        if rider.boarded_at:
            rider.begin(reused=False, tls_version="")  # of a session before
        if self._events is None:
            rider.boarded_at = monotonic_ns()
            if self._connected:
                rider.phase = TLS
            self._boarding.append(rider)
        else:
            rider.reused = self._pipeline.answered > 0
            self._board(rider)
        try:
            outcome: Outcome = self._hub.switch()
        except BaseException:
            rider.waiter = None
            self._abandon(rider)
            raise
        return outcome

    def _board(self, rider: Rider) -> None:
        rider.phase = SEND
        rider.tls_version = self._version
        rider.opened_at = self._opened_at
        self._pipeline.board(rider, monotonic_ns())
        if not self._unsent:
            self._hub.loop.run_callback(self._send)
        self._unsent.append(rider)

    def _send(self) -> None:
        """Send the frames of all that have boarded in this turn of the loop. Runs in it."""
        unsent, self._unsent = self._unsent, []
        events = self._events
        if events is None:
            return
        frames = b"".join([rider.frame for rider in unsent])
        self._leaving += unsent
        try:
            events.write(frames)
        except Exception as exc:  # noqa: BLE001 - judged by blame
            self._failed(exc, sending=True)
            return
        events.listen()

    # What the event loop calls.

    def _take(self, plaintext: bytes) -> None:
        """Hand each answer to whom it belongs, who runs at once until it waits again."""
        events, pipeline = self._events, self._pipeline
        if events is None:
            return
        late = pipeline.late
        answers, ending = pipeline.feed(plaintext, monotonic_ns())
        self._site.stats.late_answers += pipeline.late - late
        failure = events.failure
        if answers:
            self.stuck = False
            if pipeline.answered == len(answers):  # the first: a server says it once and again
                self._hear_idle_time(answers[0][1])
        if ending is None and failure is None and not pipeline.surplus:
            if not pipeline.waiting:
                events.pause()
        elif ending is not None:
            self._end(ending)
        elif failure is not None and pipeline.waiting:
            self._broke(FaultKind.RECEIVE_FAILED, failure)
        else:
            # Bytes that nobody asked for, or a close that has arrived: not for the next query.
            self._finish()
        for rider, response in answers:
            waiter, rider.waiter = rider.waiter, None
            if waiter is not None:
                waiter.switch(response)

    def _hear_idle_time(self, answer: Packet) -> None:
        stated = idle_time(answer)
        if stated is not None:
            self._site.stats.idle_seconds = stated

    def _sent(self) -> None:
        """Nothing that was written is left here."""
        now = monotonic_ns()
        for rider in self._leaving:
            if rider.phase == SEND:  # an answer may have begun before the last frame has left
                rider.send_ns = now - rider.boarded_at
                rider.phase = FIRST_BYTE
        self._leaving.clear()

    def _failed(self, exc: Exception, sending: bool) -> None:
        if not sending:
            self._broke(FaultKind.RECEIVE_FAILED, exc)
            return
        # A server may have answered some and hung up: their answers are still in the kernel.
        events, leaving = self._events, self._leaving
        if events is not None and any(r not in leaving for r in self._pipeline.waiting.values()):
            events.read_rest()
        if not self.ended:
            self._broke(FaultKind.SEND_FAILED, exc)

    # The opening.

    def _open(self) -> None:
        """Connect, complete the handshake and verify; no half-built session survives."""
        site = self._site
        endpoint = site.endpoint
        if not endpoint.is_literal:
            # Refused when the configuration is loaded; a lookup here could wait for ourselves.
            self._end(Ending(NOT_RESOLVED, by_peer=True))
            return
        kind = FaultKind.CONNECT_FAILED
        try:
            sock = dial(endpoint.host, endpoint.port)
            connected = monotonic_ns()
            self._connected = True
            for rider in self._boarding:
                rider.dial_ns = connected - rider.boarded_at
                rider.phase = TLS
            kind = FaultKind.TLS_FAILED
            stream = open_session(sock, site.context, site.tls_name)
        except Exception as exc:  # noqa: BLE001 - judged by blame, like every foreign exception
            if not self.ended:
                self._broke(kind, exc)
            return
        # Nothing from here on waits, so no kill can come in between; but one may be under way.
        if self.ended:
            stream.close()
            return
        self._version = stream.version
        self._events = TlsEvents(stream, sock, self._take, self._sent, self._failed)
        site.stats.open += 1
        self._admit(connected)

    def _admit(self, connected: int) -> None:
        """Let those who have waited for the handshake board."""
        opened = self._opened_at = monotonic_ns()
        boarding, self._boarding = self._boarding, []
        for rider in boarding:
            rider.tls_ns = opened - max(connected, rider.boarded_at)
            self._board(rider)

    # Ends.

    def _abandon(self, rider: Rider) -> None:
        """``rider`` has been killed, or its time is up. The session ends if nobody else waits, or
        if it has been dead silent for an attempt budget; otherwise it stays."""
        if self.ended:
            return
        now = monotonic_ns()
        if rider in self._boarding:
            self._boarding.remove(rider)
            if not self._boarding:
                self._finish()
            elif now - self._opening_since >= self._site.attempt_ns:
                self._end(Ending(EXPIRED, by_peer=True))
            return
        pipeline = self._pipeline
        silent_for = pipeline.silent_for(now)
        self.stuck = pipeline.unanswered_for(now) >= self._site.attempt_ns
        pipeline.abandon(rider, now)
        if not pipeline.waiting:
            self._finish()
        elif silent_for >= self._site.attempt_ns:
            self._end(Ending(EXPIRED, by_peer=True))

    def _broke(self, kind: FaultKind, exc: Exception) -> None:
        """The peer has ended the session, or has broken it; or this machine lacks something."""
        try:
            fault = blame(kind, exc)
        except LocalResource as local:
            lack = local.kind
            self._throw(lambda: LocalResource(lack))
            return
        self._end(Ending(fault, by_peer=True))

    def _end(self, ending: Ending) -> None:
        boarding = self._boarding
        verdicts = self._pipeline.verdicts(ending)
        self._finish(serial=verdicts.serial)
        # A session that never opened has answered nobody: final.
        outcomes: list[tuple[Rider, Outcome]] = [(r, ending.fault) for r in boarding]
        outcomes += [(r, ending.fault) for r in verdicts.final]
        outcomes += [(r, None) for r in verdicts.riding_on]
        # Not at once: whoever has found the end may itself be somebody who must not be left.
        self._hub.loop.run_callback(_tell, outcomes)

    def close(self) -> None:
        """End the session under whoever rides on it: GreenletExit. Never waits."""
        if not self.ended:
            self._throw(GreenletExit)

    def _throw(self, error: Callable[[], BaseException]) -> None:
        riders = [*self._boarding, *self._pipeline.waiting.values()]
        self._pipeline.waiting.clear()
        self._finish()
        self._hub.loop.run_callback(_throw_into, riders, error)

    def _finish(self, *, serial: bool = False) -> None:
        """Nobody can board any more; what is open is closed. Never waits."""
        self.ended = True
        self._boarding = []
        events, self._events = self._events, None
        if events is not None:
            self._site.stats.open -= 1
            events.close()
        elif self._opener is not getcurrent():
            self._opener.kill(block=False)
        self._on_end(self, serial)


def _tell(outcomes: list[tuple[Rider, Outcome]]) -> None:
    """Runs in the event loop."""
    for rider, outcome in outcomes:
        waiter, rider.waiter = rider.waiter, None
        if waiter is not None:
            waiter.switch(outcome)


def _throw_into(riders: list[Rider], error: Callable[[], BaseException]) -> None:
    """Runs in the event loop."""
    for rider in riders:
        waiter, rider.waiter = rider.waiter, None
        if waiter is not None:
            waiter.throw(error())
