"""Messages on both sides of the whole forwarder: what crosses it, and what its clients are told."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import gevent
import pytest
from gevent import socket
from gevent.event import Event

from nxdns.app import App
from nxdns.dns.framing import MAX_MESSAGE, Unframer, frame
from nxdns.web.metrics import Metrics
from tests.cli.ports import refusing_tcp
from tests.dns.wires import options_wire, raw_record
from tests.support.authority import NAME, Authority, Issued
from tests.support.exposition import Scrape
from tests.support.forwarder import address_of, ask_tcp, ask_udp, running
from tests.support.full_overview import NO_TROUBLE
from tests.support.http_peer import answering
from tests.support.http_peer import reply as http_reply
from tests.support.messages import big_response, make_query, make_response, with_our_opt
from tests.support.tls_peer import Script, Session, TlsPeer, answer_all

pytestmark = pytest.mark.integration

SESSIONS = 8  # of one upstream

Ask = Callable[[Any, bytes], bytes]
Respond = Callable[[bytes], bytes]

BOTH = pytest.mark.parametrize("ask", [ask_udp, ask_tcp], ids=["UDP", "TCP"])
SCHEMES = pytest.mark.parametrize("scheme", ["tls", "https"])


def option(code: int, data: bytes) -> dns.edns.Option:
    return dns.edns.GenericOption(dns.edns.OptionType.make(code), data)


SUBNET = dns.edns.ECSOption("192.0.2.0", 24)
COOKIE = dns.edns.CookieOption(b"clientck", b"")
BOTH_COOKIES = dns.edns.CookieOption(b"clientck", b"servercookie")
STALE = dns.edns.EDEOption(dns.edns.EDECode.STALE_ANSWER, "from yesterday")
NSID = dns.edns.NSIDOption(b"")
KEEPALIVE = option(11, b"")
STATED_KEEPALIVE = option(11, b"\0\x64")
PADDING = option(12, bytes(50))


def query_with(*options: dns.edns.Option, dnssec_ok: bool = False, name: str = "a.test") -> bytes:
    message = dns.message.make_query(name, "A", use_edns=0, payload=1232, options=list(options))
    message.want_dnssec(dnssec_ok)
    return message.to_wire()


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def ending_in(message: bytes, opt: bytes) -> bytes:
    """``message``, which ends in an OPT without options, with ``opt`` in its place."""
    return message[:-11] + opt


def script_of(scheme: str, respond: Respond) -> Script:
    if scheme == "tls":
        return answer_all(respond)
    return answering(lambda query: http_reply(respond(query)))


def upstream(port: int, scheme: str = "tls", **keys: str) -> str:
    named = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    return f'url = "{scheme}://127.0.0.1:{port}"\ntls_name = "{NAME}"\n{named}'


class Forwarder:
    """The whole of it, in front of one upstream that answers as ``respond`` does."""

    def __init__(self, folder: Path, authority: Authority, certificate: Issued) -> None:
        self._folder = folder
        self._authority = authority
        self._certificate = certificate
        #: Queries as they have reached the upstream.
        self.asked: list[bytes] = []

    @contextmanager
    def to(self, respond: Respond, scheme: str = "tls") -> Iterator[App]:
        def note(query: bytes) -> bytes:
            self.asked.append(query)
            return respond(query)

        with self.behind(script_of(scheme, note), scheme) as app:
            yield app

    @contextmanager
    def behind(self, script: Script, scheme: str = "tls", extra: str = "") -> Iterator[App]:
        with (
            TlsPeer(self._certificate.openssl_context(), script) as peer,
            self.of([upstream(peer.port, scheme)], extra) as app,
        ):
            yield app

    @contextmanager
    def of(self, upstreams: Sequence[str], extra: str = "") -> Iterator[App]:
        with running(self._folder, self._authority.ca_file, upstreams, extra) as app:
            yield app


@pytest.fixture
def forwarder(tmp_path: Path, authority: Authority, certificate: Issued) -> Forwarder:
    return Forwarder(tmp_path, authority, certificate)


# OPT is hop by hop.


@SCHEMES
@BOTH
@pytest.mark.parametrize(
    ("query", "dnssec_ok", "crossing"),
    [
        pytest.param(make_query("a.test"), False, [], id="no-OPT"),
        pytest.param(query_with(), False, [], id="OPT"),
        pytest.param(query_with(dnssec_ok=True), True, [], id="DO"),
        pytest.param(query_with(COOKIE, KEEPALIVE, PADDING, NSID), False, [], id="hop-by-hop"),
        pytest.param(query_with(COOKIE, SUBNET, PADDING), False, [8], id="Client-Subnet"),
    ],
)
def test_what_an_upstream_sees_of_a_client(
    query: bytes,
    dnssec_ok: bool,
    crossing: list[int],
    ask: Ask,
    scheme: str,
    forwarder: Forwarder,
) -> None:
    with forwarder.to(answer, scheme) as app:
        reply = dns.message.from_wire(ask(address_of(app), query))
    [sent] = forwarder.asked
    message, client = dns.message.from_wire(sent), dns.message.from_wire(query)
    assert (message.edns, message.payload) == (0, 4096)
    assert bool(message.ednsflags & dns.flags.DO) is dnssec_ok
    own = [11, 12] if scheme == "tls" else [12]
    assert [each.otype for each in message.options] == crossing + own
    assert [each for each in message.options if each.otype == 8] == [SUBNET] * len(crossing)
    assert len(sent) % 128 == 0
    assert (message.question, message.flags) == (client.question, client.flags)
    assert sent[12:].startswith(query[12 : 12 + len("\1a\4test\0") + 4])

    assert reply.id == client.id
    assert reply.edns == client.edns
    assert reply.ednsflags & dns.flags.DO == client.ednsflags & dns.flags.DO
    assert reply.options == ()


@SCHEMES
@BOTH
@pytest.mark.parametrize(
    ("query", "crossing"),
    [
        pytest.param(make_query("a.test"), None, id="no-OPT"),
        pytest.param(query_with(), [STALE], id="OPT"),
        pytest.param(query_with(COOKIE, KEEPALIVE, PADDING), [STALE], id="hop-by-hop"),
        pytest.param(query_with(SUBNET, COOKIE), [SUBNET, STALE], id="Client-Subnet"),
    ],
)
def test_what_a_client_sees_of_an_upstream(
    query: bytes,
    crossing: list[dns.edns.Option] | None,
    ask: Ask,
    scheme: str,
    forwarder: Forwarder,
) -> None:
    theirs = options_wire([BOTH_COOKIES, SUBNET, STATED_KEEPALIVE, STALE, PADDING])
    opt = raw_record(41, rclass=1232, ttl=0x8000, rdata=theirs)
    with forwarder.to(lambda asked: ending_in(answer(asked), opt), scheme) as app:
        reply = ask(address_of(app), query)
    if crossing is None:
        assert reply == answer(query)
    else:
        plain = query_with()
        expected = answer(query[:2] + plain[2:])
        assert reply == with_our_opt(expected, options=options_wire(crossing))


@BOTH
def test_an_opt_that_is_not_the_last_record_leaves_the_others_as_they_are(
    ask: Ask, forwarder: Forwarder
) -> None:
    owner = b"\3ns1\3net\0"

    def respond(query: bytes) -> bytes:
        """The OPT first, and behind it records that point at each other."""
        bare = ending_in(answer(query), b"")
        at = len(bare) + len(opt)
        to_owner = (0xC000 | at).to_bytes(2, "big")
        glue = raw_record(1, owner=owner, ttl=60, rdata=b"\xcb\0\x71\1")
        more = raw_record(28, owner=to_owner, ttl=60, rdata=b"\xc0" * 16)
        server = raw_record(2, owner=b"\xc0\x0c", ttl=60, rdata=to_owner)
        return bare[:10] + b"\0\4" + bare[12:] + opt + glue + more + server

    opt = raw_record(41, rclass=1232, rdata=options_wire([PADDING]))
    with forwarder.to(respond) as app:
        for query in (make_query("a.test"), query_with()):
            reply = dns.message.from_wire(ask(address_of(app), query))
            assert reply.edns == dns.message.from_wire(query).edns
            assert [rrset.to_text() for rrset in reply.additional] == [
                "ns1.net. 60 IN A 203.0.113.1",
                "ns1.net. 60 IN AAAA c0c0:c0c0:c0c0:c0c0:c0c0:c0c0:c0c0:c0c0",
                "a.test. 60 IN NS ns1.net.",
            ]
            assert [rrset.to_text() for rrset in reply.answer] == ["a.test. 300 IN A 192.0.2.1"]


@BOTH
def test_an_extended_rcode_reaches_who_can_read_it(ask: Ask, forwarder: Forwarder) -> None:
    def bad_cookie(query: bytes) -> bytes:
        reply = dns.message.make_response(dns.message.from_wire(query), pad=0)
        reply.set_rcode(dns.rcode.BADCOOKIE)
        return reply.to_wire()

    with forwarder.to(bad_cookie) as app:
        told = [
            dns.message.from_wire(ask(address_of(app), query)).rcode()
            for query in (query_with(), make_query())
        ]
    assert told == [dns.rcode.BADCOOKIE, dns.rcode.SERVFAIL]


def test_the_idle_time_that_a_dot_server_states_is_shown(forwarder: Forwarder) -> None:
    opt = raw_record(41, rclass=1232, rdata=options_wire([option(11, b"\0\x4b")]))
    with forwarder.to(lambda query: ending_in(answer(query), opt)) as app:
        [before] = app.snapshot()
        ask_udp(address_of(app), make_query())
        [after] = app.snapshot()
        scrape = Scrape(Metrics(app.surface, lambda: NO_TROUBLE).exposition("")[0])
    assert (before.idle_seconds, after.idle_seconds) == (None, 7.5)
    assert scrape.value("nxdns_upstream_stated_idle_seconds", index="0") == 7.5


def test_a_doh_server_has_no_say_in_how_long_a_connection_stays_idle(forwarder: Forwarder) -> None:
    opt = raw_record(41, rclass=1232, rdata=options_wire([STATED_KEEPALIVE]))
    with forwarder.to(lambda query: ending_in(answer(query), opt), "https") as app:
        ask_udp(address_of(app), make_query())
        assert app.snapshot()[0].idle_seconds is None


# Queries that no upstream sees.


def edns_version(version: int) -> bytes:
    message = dns.message.from_wire(query_with(dnssec_ok=True))
    message.ednsflags |= version << 16
    return message.to_wire()


def with_opcode(opcode: dns.opcode.Opcode) -> bytes:
    message = dns.message.from_wire(query_with())
    message.set_opcode(opcode)
    return message.to_wire()


def typed(rtype: str) -> bytes:
    return make_query("example.com", rtype, payload=1232)


@BOTH
@pytest.mark.parametrize(
    ("query", "rcode", "counter"),
    [
        pytest.param(edns_version(1), dns.rcode.BADVERS, "badvers", id="EDNS-1"),
        pytest.param(edns_version(255), dns.rcode.BADVERS, "badvers", id="EDNS-255"),
        pytest.param(typed("AXFR"), dns.rcode.REFUSED, "refused", id="AXFR"),
        pytest.param(typed("IXFR"), dns.rcode.REFUSED, "refused", id="IXFR"),
        pytest.param(typed("OPT"), dns.rcode.FORMERR, "formerr", id="QTYPE-OPT"),
        pytest.param(with_opcode(dns.opcode.NOTIFY), dns.rcode.NOTIMP, "notimp", id="NOTIFY"),
        pytest.param(with_opcode(dns.opcode.UPDATE), dns.rcode.NOTIMP, "notimp", id="UPDATE"),
        pytest.param(with_opcode(dns.opcode.STATUS), dns.rcode.NOTIMP, "notimp", id="STATUS"),
    ],
)
def test_what_no_upstream_is_asked_for_is_answered_with_an_opt_and_counted(
    query: bytes, rcode: dns.rcode.Rcode, counter: str, ask: Ask, forwarder: Forwarder
) -> None:
    with forwarder.to(answer) as app:
        reply = dns.message.from_wire(ask(address_of(app), query))
        assert getattr(app.handler.stats, counter) == 1
        assert app.handler.stats.queries == 0
    assert forwarder.asked == []
    assert reply.rcode() == rcode
    assert (reply.edns, reply.payload, reply.options) == (0, 4096, ())
    assert not reply.answer


@BOTH
@pytest.mark.parametrize("rtype", ["ANY", "HTTPS", "TYPE65280", "TYPE0"])
@pytest.mark.parametrize("rclass", ["IN", "CH", "CLASS65280"])
def test_other_types_and_classes_pass(
    rtype: str, rclass: str, ask: Ask, forwarder: Forwarder
) -> None:
    query = dns.message.make_query("a.test", rtype, rclass).to_wire()
    with forwarder.to(lambda asked: make_response(asked)) as app:
        assert ask(address_of(app), query) == make_response(query)
        assert app.handler.stats.queries == 1


# Long answers.


def test_an_answer_too_long_for_udp_leaves_question_and_opt_and_comes_whole_over_tcp(
    forwarder: Forwarder,
) -> None:
    query = make_query("a.test", payload=1400, dnssec_ok=True)
    with forwarder.to(lambda asked: big_response(asked, 1500)) as app:
        cut = ask_udp(address_of(app), query)
        whole = ask_tcp(address_of(app), query)
        stats = app.handler.stats
        assert (stats.queries, stats.truncated, stats.upstream_truncated) == (2, 1, 0)
    expected = query[:2] + b"\x83\x80\0\1\0\0\0\0\0\1" + query[12:]
    assert cut == with_our_opt(expected, dnssec_ok=True)
    assert whole == with_our_opt(big_response(query, 1500), dnssec_ok=True)


@SCHEMES
@pytest.mark.parametrize("payload", [None, 1232], ids=["no-OPT", "OPT"])
def test_an_answer_of_65535_octets_comes_whole_over_tcp(
    payload: int | None, scheme: str, forwarder: Forwarder
) -> None:
    sent: list[bytes] = []

    def respond(asked: bytes) -> bytes:
        sent.append(big_response(asked, MAX_MESSAGE))
        return sent[-1]

    query = make_query("a.test", payload=payload)
    with forwarder.to(respond, scheme) as app:
        reply = ask_tcp(address_of(app), query)
        assert app.snapshot()[0].failures_total == 0
    [whole] = sent
    bare = whole[:10] + b"\0\0" + whole[12:-11]
    assert reply[:2] == query[:2]
    assert reply[2:] == (bare if payload is None else with_our_opt(whole))[2:]


@SCHEMES
def test_an_answer_that_leaves_no_room_for_an_opt_comes_without_one(
    scheme: str, forwarder: Forwarder
) -> None:
    query = query_with(name="a.test")
    bare = make_query("a.test", id_=query[0] << 8 | query[1])

    def respond(asked: bytes) -> bytes:
        return big_response(asked[:2] + bare[2:], MAX_MESSAGE)

    with forwarder.to(respond, scheme) as app:
        assert ask_tcp(address_of(app), query) == respond(query)


@SCHEMES
def test_a_query_of_65535_octets_is_asked_without_an_opt(scheme: str, forwarder: Forwarder) -> None:
    query = big_response(make_query("a.test"), MAX_MESSAGE)
    query = query[:2] + b"\1\0" + query[4:]

    def respond(asked: bytes) -> bytes:
        return asked[:2] + answer(make_query("a.test"))[2:]

    with forwarder.to(respond, scheme) as app:
        assert ask_tcp(address_of(app), query) == respond(query)
    [sent] = forwarder.asked
    assert sent[2:] == query[2:]


@pytest.mark.parametrize(("ask", "counted"), [(ask_udp, 0), (ask_tcp, 1)], ids=["UDP", "TCP"])
def test_what_an_upstream_has_truncated_passes_and_is_counted_over_tcp(
    ask: Ask, counted: int, forwarder: Forwarder
) -> None:
    def truncated(query: bytes) -> bytes:
        reply = answer(query)
        return reply[:2] + bytes([reply[2] | 2]) + reply[3:]

    query = make_query("a.test")
    with forwarder.to(truncated) as app:
        assert ask(address_of(app), query) == truncated(query)
        stats = app.handler.stats
        assert (stats.queries, stats.truncated, stats.upstream_truncated) == (1, 0, counted)


# Answers that come otherwise than they should.


@SCHEMES
@BOTH
def test_another_case_is_the_same_question_and_passes_as_it_came(
    ask: Ask, scheme: str, forwarder: Forwarder
) -> None:
    def shouted(query: bytes) -> bytes:
        reply = answer(query)
        return reply[:12] + reply[12:20].upper() + reply[20:]

    query = make_query("a.test")
    with forwarder.to(shouted, scheme) as app:
        assert ask(address_of(app), query) == shouted(query)
        assert app.snapshot()[0].failures_total == 0


@SCHEMES
@BOTH
@pytest.mark.parametrize(
    "other",
    [make_query("b.test"), make_query("a.test", "AAAA"), make_query("a.test.test")],
    ids=["name", "type", "longer"],
)
def test_an_answer_to_another_question_is_no_answer(
    other: bytes, ask: Ask, scheme: str, forwarder: Forwarder
) -> None:
    def stray(query: bytes) -> bytes:
        return query[:2] + answer_to_other[2:]

    answer_to_other = make_response(other)
    with forwarder.to(stray, scheme) as app:
        reply = dns.message.from_wire(ask(address_of(app), query_with()))
        [seen] = app.snapshot()
    assert reply.rcode() == dns.rcode.SERVFAIL
    assert not reply.answer
    assert seen.failures_total == 1
    assert seen.last_error.startswith("ResponseMismatch (cause Wrong")


def test_an_answer_that_comes_twice_is_given_once_and_counted(forwarder: Forwarder) -> None:
    def twice(session: Session) -> None:
        while True:
            reply = frame(answer(session.read_query()))
            session.send(reply + reply)

    with forwarder.behind(twice) as app:
        queries = [make_query(f"n{number}.test") for number in range(20)]
        asking = [gevent.spawn(ask_udp, address_of(app), query) for query in queries]
        assert [each.get() for each in asking] == [answer(query) for query in queries]
        assert app.handler.stats.queries == 20
        assert app.snapshot()[0].failures_total == 0


def test_an_answer_that_comes_too_late_reaches_nobody(forwarder: Forwarder) -> None:
    given_up = Event()

    def late(session: Session) -> None:
        while True:
            query = session.read_query()
            if b"\4slow" in query:
                given_up.wait()
            session.send_message(answer(query))

    with forwarder.behind(late, extra="[budgets]\nattempt_ms = 1000\ntotal_ms = 1100\n") as app:
        address = address_of(app)
        slow, quick = make_query("slow.test"), make_query("quick.test")
        with socket.create_connection((address.host, address.port)) as sock:
            stream = Stream(sock)
            sock.sendall(frame(slow))
            assert dns.message.from_wire(stream.reply()).rcode() == dns.rcode.SERVFAIL
            given_up.set()
            sock.sendall(frame(quick))
            assert stream.reply() == answer(quick)
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""


# Prefixes and messages in pieces.


class Stream:
    """Replies on a TCP connection."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._unframer = Unframer()

    def reply(self) -> bytes:
        while (whole := self._unframer.next_message()) is None:
            data = self._sock.recv(65535)
            assert data, "the connection has ended"
            self._unframer.feed(data)
        return whole


def test_a_clients_messages_may_be_cut_anywhere(forwarder: Forwarder) -> None:
    query = make_query("a.test", payload=4096)
    message, expected = frame(query), with_our_opt(answer(query))
    with (
        forwarder.to(answer) as app,
        socket.create_connection((address_of(app).host, address_of(app).port)) as sock,
    ):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = Stream(sock)
        for at in range(1, len(message)):
            for piece in (message[:at], message[at:]):
                sock.sendall(piece)
                gevent.idle()  # what has been sent has been read when nothing is left to do
            assert stream.reply() == expected
        for octet in message:  # the prefix as 1 + 1, and so on
            sock.sendall(bytes([octet]))
            gevent.idle()
        assert stream.reply() == expected
        sock.sendall(message * 5 + message[:1])
        assert [stream.reply() for _ in range(5)] == [expected] * 5
        sock.sendall(message[1:])
        assert stream.reply() == expected


def test_an_upstreams_messages_may_be_cut_anywhere(forwarder: Forwarder) -> None:
    query = make_query("a.test")
    length = len(frame(answer(make_query("a.test", payload=4096))))

    def cut(session: Session) -> None:
        at = 0
        while True:
            message = frame(answer(session.read_query()))
            at += 1
            pieces = (
                [message[:at], message[at:]]
                if at < length
                else [message[place : place + 1] for place in range(length)]
            )
            for piece in pieces:
                session.send(piece)
                gevent.idle()

    with forwarder.behind(cut) as app:
        for _ in range(length):
            assert ask_udp(address_of(app), query) == answer(query)
        [seen] = app.snapshot()
        assert (seen.failures_total, seen.dials_total) == (0, 1)


def test_several_answers_may_come_in_one_segment(forwarder: Forwarder) -> None:
    def in_pairs(session: Session) -> None:
        while True:
            pair = [session.read_query(), session.read_query()]
            session.send(b"".join(frame(answer(query)) for query in reversed(pair)))

    # Two for each of the sessions, which share what comes evenly.
    queries = [make_query(f"n{number}.test") for number in range(2 * SESSIONS)]
    with forwarder.behind(in_pairs) as app:
        asking = [gevent.spawn(ask_udp, address_of(app), query) for query in queries]
        assert [each.get() for each in asking] == [answer(query) for query in queries]
        assert app.snapshot()[0].failures_total == 0


# Extended errors.


def hang_up(session: Session) -> None:
    session.read_query()


def stay_silent(session: Session) -> None:
    session.wait_for_end()


def explained(reply: bytes) -> tuple[int, str | None]:
    message = dns.message.from_wire(reply)
    assert message.rcode() == dns.rcode.SERVFAIL
    assert (message.edns, message.payload) == (0, 4096)
    [option] = message.options
    assert isinstance(option, dns.edns.EDEOption)
    return int(option.code), option.text


@BOTH
def test_when_every_upstream_failed_a_client_with_opt_is_told_how(
    ask: Ask, forwarder: Forwarder, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        TlsPeer(context, hang_up) as one,
        TlsPeer(context, answer_all(lambda query: query)) as other,
        forwarder.of(
            [upstream(one.port, name="cloudflare"), upstream(other.port, name="google")],
            "[health]\nfailure_threshold = 1\nbase_backoff_ms = 60000\n",
        ) as app,
    ):
        address = address_of(app)
        told = explained(ask(address, query_with(COOKIE, dnssec_ok=True)))
        assert told == (22, "1 cloudflare: EndOfStream; 2 google: NotAResponse")
        # Both are in backoff, and both are probed; whoever sent no OPT is not told.
        plain = make_query()
        assert ask(address, plain) == plain[:2] + b"\x81\x82\0\1\0\0\0\0\0\0" + plain[12:]


def test_an_upstream_that_was_passed_over_is_told_with_its_backoff(
    forwarder: Forwarder, certificate: Issued
) -> None:
    context = certificate.openssl_context()

    def once(session: Session) -> None:
        if session.number == 1:
            session.send_message(answer(session.read_query()))

    with (
        TlsPeer(context, hang_up) as one,
        TlsPeer(context, once) as other,
        forwarder.of(
            [upstream(one.port, name="cloudflare"), upstream(other.port, name="google")],
            "[health]\nfailure_threshold = 1\nbase_backoff_ms = 60000\n",
        ) as app,
    ):
        assert dns.message.from_wire(ask_udp(address_of(app), query_with())).answer
        code, text = explained(ask_udp(address_of(app), query_with()))
    assert code == 22
    assert text is not None
    assert re.fullmatch(r"1 cloudflare: backoff \d+s; 2 google: EndOfStream", text)


@BOTH
@SCHEMES
def test_when_all_failed_at_connect_it_is_a_network_error(
    scheme: str, ask: Ask, forwarder: Forwarder
) -> None:
    with (
        refusing_tcp() as one,
        refusing_tcp() as other,
        forwarder.of(
            [upstream(one, scheme, name="first"), upstream(other, scheme, name="second")]
        ) as app,
    ):
        told = explained(ask(address_of(app), query_with()))
    assert told == (23, "1 first: ConnectionRefused; 2 second: ConnectionRefused")


@BOTH
def test_when_the_time_ran_out_before_every_upstream_had_its_own_it_is_another_error(
    ask: Ask, forwarder: Forwarder, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        TlsPeer(context, stay_silent) as one,
        TlsPeer(context, stay_silent) as other,
        forwarder.of(
            [upstream(one.port, name="first"), upstream(other.port, name="second")],
            "[budgets]\nattempt_ms = 200\ntotal_ms = 300\n",
        ) as app,
    ):
        told = explained(ask(address_of(app), query_with()))
    assert told == (0, "1 first: Timeout; 2 second: BudgetExhausted")


def test_no_secret_of_an_endpoint_is_told(forwarder: Forwarder) -> None:
    with refusing_tcp() as port:
        secret = f'url = "https://127.0.0.1:{port}/t0ken/dns-query"\ntls_name = "{NAME}"'
        with forwarder.of([secret]) as app:
            told = explained(ask_udp(address_of(app), query_with()))
    assert told == (23, f"1 https://127.0.0.1:{port}/…: ConnectionRefused")
