"""The prefixes on link of this machine's interfaces, followed as they change."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import gevent
from gevent import socket

from nxdns.logs.rarely import Rarely
from nxdns.platform import rtnetlink
from nxdns.platform.rtnetlink import Message, Prefix

_log = logging.getLogger(__name__)

_GROUPS = 0x10 | 0x100 | 0x400  # RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE
_SOL_NETLINK, _NETLINK_GET_STRICT_CHK = 270, 12  # linux/netlink.h; Python does not name them
_BUFFER = 1 << 16  # the kernel answers in pieces of at most 32 KiB
_KERNEL = 0  # its address

# An interface that comes up brings several changes at once; and a flood of them is no reason to
# do nothing else.
_PAUSE_SECONDS = 0.1


class OnLink:
    """Asks the kernel once, and again whenever it says that something has changed."""

    def __init__(self) -> None:
        """Raises OSError where the kernel does not tell."""
        family = getattr(socket, "AF_NETLINK", None)
        if family is None:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        self._sequence = 0
        self._changed = False
        self._rarely = Rarely(_log)
        self._follower: gevent.Greenlet | None = None
        self._socket: Any = socket.socket(family, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        try:
            # Older kernels do not have it: they tell more than is asked for.
            with suppress(OSError):
                self._socket.setsockopt(_SOL_NETLINK, _NETLINK_GET_STRICT_CHK, 1)
            self._socket.bind((0, _GROUPS))
            #: As they were last.
            self.prefixes = self._ask()
        except BaseException:
            self._socket.close()
            raise

    def follow(self, changed: Callable[[frozenset[Prefix]], None]) -> None:
        """Call ``changed`` with all of them whenever they are others. Does not wait."""
        self._follower = gevent.spawn(self._follow, changed)

    def close(self) -> None:
        """Follow no more."""
        if self._follower is not None:
            self._follower.kill(block=False)
        self._rarely.close()
        self._socket.close()

    def _follow(self, changed: Callable[[frozenset[Prefix]], None]) -> None:
        while True:
            try:
                self._wait()
                prefixes = self._ask()
            except OSError as exc:
                if self._socket.closed:
                    return
                # ENOBUFS: more has happened than could be told. Whatever it was, ask again.
                self._changed = True
                if exc.errno != errno.ENOBUFS:
                    self._rarely.warning(
                        "on-link",
                        "cannot follow the prefixes of our interfaces: %s",
                        exc.strerror,
                    )
            else:
                if prefixes != self.prefixes:
                    self.prefixes = prefixes
                    changed(prefixes)
            gevent.sleep(_PAUSE_SECONDS)

    def _wait(self) -> None:
        """Until something has changed since it was last asked."""
        while not self._changed:
            for message in self._receive():
                self._notice(message)

    def _ask(self) -> frozenset[Prefix]:
        self._changed = False
        found = self._dump(rtnetlink.request_addresses)
        for protocol in rtnetlink.ANNOUNCED:
            found |= self._dump(partial(rtnetlink.request_routes, protocol))
        return frozenset(found)

    def _dump(self, request: Callable[[int], bytes]) -> set[Prefix]:
        self._sequence += 1
        self._socket.sendto(request(self._sequence), (_KERNEL, 0))
        found: set[Prefix] = set()
        while True:
            for message in self._receive():
                if message.sequence != self._sequence:
                    self._notice(message)
                    continue
                if message.flags & rtnetlink.DUMP_INTERRUPTED:
                    self._changed = True
                if message.kind in (rtnetlink.DONE, rtnetlink.ERROR):
                    number = rtnetlink.error_of(message)
                    if number:
                        raise OSError(number, os.strerror(number))
                    return found
                found |= rtnetlink.prefixes_of(message)

    def _notice(self, message: Message) -> None:
        # Its contents do not matter: several may say different things of one prefix.
        if rtnetlink.prefixes_of(message):
            self._changed = True

    def _receive(self) -> Iterator[Message]:
        data, sender = self._socket.recvfrom(_BUFFER)
        if sender[0] != _KERNEL:
            return iter(())
        return rtnetlink.messages(data)
