"""Queries at a steady rate, whoever may have answered those before."""

import os
import time
from contextlib import suppress
from typing import Any

import gevent
from gevent import Timeout, socket

from nxdns.platform.address import ListenAddress
from tests.bench.rig import quantile
from tests.support.messages import make_query

_TICK_SECONDS = 0.001  # finer than that, the clients would take as long as what they ask
_MOST_BEHIND_SECONDS = 0.01
_PATIENCE_SECONDS = 2.0  # for the last answers
_BUFFER = 4 << 20  # octets; ours is the slower side, and what its kernel drops is not lost by nxdns
_LABEL = 13  # offset of the first label's text in a query, and its length
_DIGITS = 10
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h; beyond net.core.rmem_max, for root


class SteadyRate:
    """An open loop over UDP for some seconds; its figures are complete afterwards."""

    def __init__(self, server: ListenAddress, per_second: int, seconds: float) -> None:
        self.latencies_ms: list[float] = []
        self.sent = self.answered = self.servfail = 0
        self.seconds = 0.0
        self._asked: dict[int, float] = {}
        sock: Any
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
            sock.connect((server.host, server.port))
            reading = gevent.spawn(self._read, sock)
            try:
                self._send(sock, per_second, seconds)
                with Timeout(_PATIENCE_SECONDS, False):
                    while self._asked:
                        gevent.sleep(_TICK_SECONDS)
            finally:
                reading.kill()
        self.lost = self.sent - self.answered - self.servfail

    def _send(self, sock: Any, per_second: int, seconds: float) -> None:
        # A name of its own for each query of each load: others have a cache, and must not use it.
        name = f"0000000000.{os.urandom(8).hex()}.example"
        query = bytearray(make_query(name, payload=1232))
        asked = self._asked
        total = max(1, int(per_second * seconds))
        began = started = time.monotonic()
        while self.sent < total:
            due = started + self.sent / per_second
            now = time.monotonic()
            # This process was held up: to catch up at once would be a burst of our own making.
            if now - due > _MOST_BEHIND_SECONDS:
                started += now - due - _MOST_BEHIND_SECONDS
            for number in range(self.sent, min(total, int((now - started) * per_second) + 1)):
                message_id = number & 0xFFFF
                query[:2] = message_id.to_bytes(2, "big")
                query[_LABEL : _LABEL + _DIGITS] = b"%0*d" % (_DIGITS, number)
                asked[message_id] = time.monotonic()
                sock.send(query)
                self.sent += 1
            gevent.sleep(_TICK_SECONDS)
        #: Until the last one was sent; longer than wanted where this process was too slow.
        self.seconds = time.monotonic() - began

    def _read(self, sock: Any) -> None:
        while True:
            reply = sock.recv(4096)
            asked = self._asked.pop(reply[0] << 8 | reply[1], None)
            if asked is None:
                continue
            self.latencies_ms.append((time.monotonic() - asked) * 1000)
            if reply[3] & 0x0F == 2:
                self.servfail += 1
            else:
                self.answered += 1

    @property
    def p99_ms(self) -> float:
        return quantile(self.latencies_ms, 0.99)
