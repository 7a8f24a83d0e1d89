"""Which addresses are listened on: those that are wanted, as soon as they can be had.

What is wanted may change at any time. Listeners that stay are not touched; those that go leave
their port at once, answer what they have under way, and end.
"""

import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gevent

from nxdns.platform.address import ListenAddress
from nxdns.platform.bind_errors import bind_reason, is_not_here
from nxdns.platform.port_holder import in_the_way
from nxdns.server.handler import Answerer
from nxdns.server.listener import Listener

_log = logging.getLogger(__name__)

# A bind that fails costs some microseconds, and an interface that comes up takes seconds itself.
RETRY_SECONDS = 1.0

_Key = tuple[ListenAddress, int]
"""A wanted address, and which one of its kind: port 0 may be wanted twice."""

OnChange = Callable[[Sequence[ListenAddress], Sequence[ListenAddress]], None]
"""Told the addresses, with their ports, that are listened on now and those that are no more."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An address that is wanted, and cannot be listened on now."""

    address: ListenAddress
    errno: int | None
    reason: str
    is_not_here: bool
    """This machine does not have it (yet)."""

    @property
    def is_awaited(self) -> bool:
        """Whether anybody could ask there. Where IPv6 is off, nobody misses its loopback address
        or its wildcard: a list that names them for both families suits any machine."""
        at_any_machine = self.address.is_loopback or self.address.is_wildcard
        return not (self.is_not_here and self.address.is_ipv6 and at_any_machine)

    def __str__(self) -> str:
        return f"cannot listen on {self.address}: {self.reason}"


class Listening:
    """All listeners of the process."""

    def __init__(
        self, handler: Answerer, on_change: OnChange, permits: Callable[[str], bool]
    ) -> None:
        """``on_change`` is not told of what is bound before ``start``. It must not wait.

        ``permits`` says whether a client's address may ask.
        """
        self._permits = permits
        self._handler = handler
        self._on_change = on_change
        self._wanted: tuple[_Key, ...] = ()
        self._have: dict[_Key, Listener] = {}
        self._leaving: dict[Listener, Any] = {}
        self._drain_seconds = 0.0
        self._retrying: Any = None
        self._started = False
        self._stopped = False
        #: Those that answer, in the order in which they are wanted. The list stays the same one.
        self.bound: list[Listener] = []
        #: What is wanted beside them. The list stays the same one.
        self.missing: list[Missing] = []

    def want(self, addresses: Sequence[ListenAddress], drain_seconds: float) -> None:
        """Listen on these and no others from now on. Never waits.

        What cannot be had is in ``missing``, and tried again. What was wanted before goes on while
        none at all can be had, or not the one that covers it. ``drain_seconds`` is what queries of
        those that go have left.
        """
        if self._stopped:
            return
        self._wanted = tuple(
            (address, addresses[:index].count(address)) for index, address in enumerate(addresses)
        )
        self._drain_seconds = drain_seconds
        self.missing.clear()
        self._reconcile()

    def start(self) -> None:
        """Begin to answer, and to try again what is missing."""
        self._started = True
        for listener in self.bound:
            listener.start()
        self._retry_if_missing()

    @property
    def awaited(self) -> list[Missing]:
        """Of what is missing, that which somebody could ask; all of it while there is nothing
        else of what is wanted."""
        if not any(key in self._have for key in self._wanted):
            return list(self.missing)
        return [each for each in self.missing if each.is_awaited]

    @property
    def in_flight(self) -> int:
        """Queries being answered, those of listeners that go included."""
        return sum(
            each.udp.in_flight + each.tcp.in_flight for each in (*self.bound, *self._leaving)
        )

    @property
    def unwanted(self) -> list[ListenAddress]:
        """Those that go on only until what is wanted in their place can be had."""
        return [each.bound for key, each in self._have.items() if key not in self._wanted]

    def stop(self, timeout_seconds: float) -> None:
        """Take no more queries, answer those in flight within the timeout, then close."""
        self._stopped = True
        if self._retrying is not None:
            self._retrying.kill()
        gevent.joinall(
            [
                *(gevent.spawn(each.stop, timeout_seconds) for each in self.bound),
                *self._leaving.values(),
            ]
        )

    def _reconcile(self) -> None:
        """Bind what is wanted and can be had, then let go what is not wanted."""
        before = {each.address: each for each in self.missing}
        bound_before = list(self.bound)
        self.missing.clear()
        for key in self._wanted:
            if key not in self._have:
                self._try(key, before.get(key[0]))
        for key in [key for key in self._have if not self._is_needed(key)]:
            self._let_go(key)
        ordered = [self._have[key] for key in self._wanted if key in self._have]
        ordered += [each for key, each in self._have.items() if key not in self._wanted]
        self.bound[:] = ordered
        self._retry_if_missing()
        if self._started and ordered != bound_before:
            self._on_change(
                [each.bound for each in ordered if each not in bound_before],
                [each.bound for each in bound_before if each not in ordered],
            )

    def _is_needed(self, key: _Key) -> bool:
        if key in self._wanted:
            return True
        bound = self._have[key].bound
        none_had = not any(wanted in self._have for wanted in self._wanted)
        return none_had or any(
            missing.address.overlaps(bound)
            and (missing.address.is_wildcard or missing.address.host == bound.host)
            for missing in self.missing
        )

    def _try(self, key: _Key, before: Missing | None) -> None:
        address = key[0]
        try:
            listener = self._bind(address)
        except OSError as exc:
            if before is not None and before.errno == exc.errno:
                # To find out who has a port is not for every second.
                self.missing.append(before)
                return
            reason = bind_reason(exc, address, "udp", "tcp")
            self.missing.append(Missing(address, exc.errno, reason, is_not_here(exc)))
            return
        if self._started:
            listener.start()
        self._have[key] = listener

    def _bind(self, address: ListenAddress) -> Listener:
        try:
            return Listener.bind(address, self._handler, self._permits)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            rivals = self._rivals(address)
            if rivals is None:
                raise
        for key in rivals:
            self._let_go(key)
        try:
            return Listener.bind(address, self._handler, self._permits, beside_left=True)
        except OSError:
            # Somebody else was in the way, whom /proc does not show: one that is bound and does not
            # listen, or what is left of a connection.
            for key, was in rivals.items():
                self._take_back(key, was)
            raise

    def _rivals(self, address: ListenAddress) -> dict[_Key, ListenAddress] | None:
        """Those that are not wanted and have the port; None if it would not help that they go."""
        going = {
            key: listener
            for key, listener in self._have.items()
            if key not in self._wanted and listener.bound.overlaps(address)
        }
        left = [each for each in self._leaving if each.bound.overlaps(address)]
        ours = set().union(*(each.inodes for each in (*going.values(), *left)))
        if not ours:
            return None
        others = {
            socket.inode for protocol in ("udp", "tcp") for socket in in_the_way(address, protocol)
        }
        if others - ours:
            return None
        return {key: listener.bound for key, listener in going.items()}

    def _take_back(self, key: _Key, address: ListenAddress) -> None:
        try:
            listener = Listener.bind(address, self._handler, self._permits, beside_left=True)
        except OSError as exc:
            _log.error("not listening on %s any longer: %s", address, exc.strerror)
            return
        listener.start()
        self._have[key] = listener

    def _let_go(self, key: _Key) -> None:
        listener = self._have.pop(key)
        listener.leave_port()
        self._leaving[listener] = leaving = gevent.spawn(listener.stop, self._drain_seconds)
        leaving.rawlink(lambda _: self._leaving.pop(listener, None))

    def _retry_if_missing(self) -> None:
        if self._started and self.missing and not self._stopped and not self._retrying:
            self._retrying = gevent.spawn(self._retry)

    def _retry(self) -> None:
        while self.missing:
            gevent.sleep(RETRY_SECONDS)
            before = list(self.missing)
            self._reconcile()
            for missing in self.awaited:
                if missing not in before:
                    _log.warning("%s", missing)
        self._retrying = None
