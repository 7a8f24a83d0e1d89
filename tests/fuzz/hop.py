"""What is rewritten hop by hop can be walked, has the OPT it should have, and all that it had."""

from nxdns.dns.edns import Opt, OptError, find_opt
from nxdns.dns.framing import MAX_MESSAGE
from nxdns.dns.header import WalkError
from nxdns.dns.hop import complete, idle_time, to_client, to_upstream
from nxdns.dns.packet import Packet, parse
from nxdns.dns.records import MoveError

SUBNET = b"\0\x08\0\x04\0\1\0\0"
CLIENTS = [None, Opt(1232, 0, 0, False, b""), Opt(4096, 0, 0, True, SUBNET)]


def target(data: bytes) -> None:
    if len(data) > MAX_MESSAGE:
        return
    complete(data, keepalive=True)
    try:
        message = parse(data)
    except WalkError:
        return
    idle_time(message)
    if message.qdcount != 1:  # neither we nor whoever validates a response let it come so far
        return
    for client in CLIENTS:
        _to_client(message, client)
    try:
        opt = find_opt(message)
    except OptError:
        return
    _to_upstream(message, opt)


def _to_client(message: Packet, client: Opt | None) -> None:
    try:
        reply = to_client(message, client)
    except MoveError:
        return
    given = _checked(message, reply, client is not None)
    assert to_client(given, client) == reply
    opt = find_opt(given)
    if opt is not None and client is not None:
        assert opt.dnssec_ok == client.dnssec_ok
        assert opt.version == 0


def _to_upstream(message: Packet, opt: Opt | None) -> None:
    try:
        query = to_upstream(message, opt)
    except MoveError:
        return
    sent = _checked(message, query, True)
    ours = find_opt(sent)
    if ours is None:
        return
    assert ours.dnssec_ok == (opt is not None and opt.dnssec_ok)
    assert to_upstream(sent, ours) == query
    for keepalive in (False, True):
        completed, question_end = complete(query, keepalive=keepalive)
        assert len(completed) <= MAX_MESSAGE
        assert len(completed) % 128 == 0 or len(completed) > MAX_MESSAGE - 128
        whole = parse(completed)
        assert question_end in (0, whole.question_end)
        options = find_opt(whole)
        assert options is not None
        assert options.options.startswith(ours.options)
        assert to_upstream(whole, options) == query


def _checked(before: Packet, wire: bytes, has_opt: bool) -> Packet:
    assert len(wire) <= MAX_MESSAGE
    after = parse(wire)
    if len(wire) <= MAX_MESSAGE - 11:
        assert after.opt_count == has_opt
    assert wire[:2] == before.wire[:2]
    assert wire[12 : before.question_end] == before.wire[12 : before.question_end]
    assert _others(after) == _others(before)
    return after


def _others(packet: Packet) -> int:
    return packet.ancount + packet.nscount + packet.arcount - packet.opt_count
