"""Riders on a session that is only bytes: what they ask, and what a server may send them."""

from collections.abc import Callable
from itertools import chain, repeat

from nxdns.dns.framing import frame
from nxdns.dns.hop import complete, to_upstream
from nxdns.dns.packet import parse
from nxdns.upstream.pipeline import Pipeline
from nxdns.upstream.rider import Rider
from tests.support.messages import make_query, make_response

CLIENT_ID = 0xC11E
"""What every client has chosen as the message ID: they do not know of each other."""


def drawing(*ids: int) -> Callable[[], int]:
    """Draws those in their order, and the last one ever after."""
    return chain(ids, repeat(ids[-1])).__next__


def pipeline_of(*ids: int, strict: bool = False) -> Pipeline:
    """A session that draws these message IDs, the last one again and again."""
    return Pipeline(drawing(*(ids or (4711,))), strict=strict)


def board(pipeline: Pipeline, name: str = "www.example.com", *, now: int = 0) -> Rider:
    """A rider that asks for ``name``, as a forwarder does."""
    query = to_upstream(parse(make_query(name, id_=CLIENT_ID)), None)
    completed, question_end = complete(query, keepalive=True)
    assert question_end
    rider = Rider(completed, question_end)
    pipeline.board(rider, now)
    return rider


def board_all(pipeline: Pipeline, number: int, *, now: int = 0) -> list[Rider]:
    """Riders that ask for a name each, the oldest first."""
    return [board(pipeline, f"{i}.example.com", now=now) for i in range(number)]


def reply_to(rider: Rider, address: str = "192.0.2.1") -> bytes:
    """The octets with which a server answers ``rider``."""
    return frame(make_response(rider.message, address))


def what_the_client_gets(rider: Rider, address: str = "192.0.2.1") -> bytes:
    """The same answer, as if the client itself had asked."""
    return make_response(rider.query, address)


def reply_with_id(message_id: int, name: str = "www.example.com") -> bytes:
    """The octets of a good answer under that message ID."""
    return frame(make_response(make_query(name, id_=message_id), "192.0.2.1"))
