"""Any bytes are walked or refused, and whatever was walked can be read."""

from nxdns.dns import packet
from nxdns.dns.edns import OptError, find_opt, parse_opt
from nxdns.dns.header import HEADER_LENGTH, QR, WalkError
from nxdns.dns.name import MAX_NAME, equal_names, expand_name, skip_name
from nxdns.dns.reply import ResponseBuilder
from nxdns.upstream.errors import Fault
from nxdns.upstream.validate import validate_response


def target(data: bytes) -> None:
    _name(data)
    outcome = validate_response(data, data)
    try:
        message = packet.parse(data)
    except WalkError:
        assert isinstance(outcome, Fault)
        return
    assert isinstance(outcome, packet.Packet) == (message.qdcount == 1 and bool(message.flags & QR))
    if message.qdcount:
        question = message.question()
        assert question.same_name(question)
        echo = question.echo()
        assert expand_name(data, HEADER_LENGTH) == echo[:-4]
        packet.parse(ResponseBuilder(message, echo).build())
    record = message.opt_record()
    try:
        opt = find_opt(message)
    except OptError:
        assert record is not None
        return
    assert (opt is None) == (record is None)
    if record is not None:
        assert parse_opt(record).options == record.rdata


def _name(data: bytes) -> None:
    """The same of a single name, behind what the first octet says to pass over."""
    start = data[0] if data else 0
    try:
        end = skip_name(data, start, {})
    except WalkError:
        return
    assert start < end <= len(data)
    name = expand_name(data, start)
    assert len(name) <= MAX_NAME
    assert expand_name(name, 0) == name
    assert skip_name(name, 0, {}) == len(name)
    assert equal_names(data, start, name.upper(), 0)
