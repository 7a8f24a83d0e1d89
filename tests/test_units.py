"""A turn of the event loop: what comes over the network while it is given is served."""

import gevent
from gevent import socket

from nxdns.units import TURN_SECONDS


def _served_within_turns(seconds: float) -> bool:
    """Whether something that arrives is served while its loop gets twenty turns."""
    here, there = socket.socketpair()
    with here, there:
        served = gevent.spawn(there.recv, 1)
        gevent.idle()  # it waits
        here._sock.send(b"?")
        for _ in range(20):
            gevent.sleep(seconds)
        done = bool(served.ready())
        served.kill()
        return done


def test_what_arrives_is_served_while_turns_are_given() -> None:
    assert _served_within_turns(TURN_SECONDS)


def test_a_sleep_of_nothing_gives_no_turn() -> None:
    assert not _served_within_turns(0)
