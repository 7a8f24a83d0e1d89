"""What a scrape says after real queries went through the whole forwarder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import pytest
from gevent import socket
from gevent.event import Event

from nxdns.app import App
from nxdns.config import Config, ConfigError, load
from nxdns.counters import counter_names
from nxdns.dns.framing import frame
from nxdns.server.datagrams import UdpStats
from nxdns.server.tcp_server import TcpStats
from nxdns.web.metrics import Metrics
from tests.cli.ports import refusing_tcp
from tests.support.authority import NAME, Authority, Issued
from tests.support.exposition import Scrape
from tests.support.forwarder import address_of, ask_tcp, ask_udp, running
from tests.support.full_overview import NO_TROUBLE
from tests.support.messages import big_response, make_query, make_response
from tests.support.promtool import needs_promtool, promtool
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

OUTCOMES = (
    "nxdns_handler_queries_total",
    "nxdns_handler_formerr_total",
    "nxdns_handler_notimp_total",
    "nxdns_handler_badvers_total",
    "nxdns_handler_refused_total",
    "nxdns_handler_servfail_total",
    "nxdns_handler_dropped_malformed_total",
    "nxdns_handler_cancelled_total",
    "nxdns_udp_dropped_oversize_total",
    "nxdns_udp_dropped_no_slot_total",
    "nxdns_udp_dropped_not_allowed_total",
    "nxdns_udp_dropped_duplicate_total",
)
"""What becomes of a message that was read; each has one of them."""

TC = 0x02  # in the third byte of a header
TAIL = bytes(5)
RESPONSE = make_response(make_query())
GARBAGE = make_query()[:12] + b"\x80" + make_query()[13:]
EDNS_1 = make_query(payload=1232)[:-5] + b"\1" + make_query(payload=1232)[-4:]
ZONE_TRANSFER = make_query("example.com", "AXFR")
NOTIFY = bytes([0x11, 0x11, 0x20, 0]) + make_query()[4:]
TWO_QUESTIONS = make_query()[:4] + bytes([0, 2]) + make_query()[6:] + make_query()[12:]


def scrape(app: App) -> Scrape:
    return Scrape(Metrics(app.surface, lambda: NO_TROUBLE).exposition("")[0])


@contextmanager
def udp_client(app: App, host: str = "127.0.0.1") -> Iterator[Any]:
    address = address_of(app)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        sock.connect((address.host, address.port))
        yield sock


def upstream(port: int) -> str:
    return f'url = "tls://127.0.0.1:{port}"\ntls_name = "{NAME}"'


def test_at_rest_every_message_that_was_read_has_exactly_one_outcome(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    gate = Event()

    def answer(session: Session) -> None:
        while True:
            query = session.read_query()
            name = str(dns.message.from_wire(query).question[0].name)
            if name == "hang.up.":
                return
            if name in ("hold.on.", "for.ever."):
                gate.wait()
            if name == "big.one.":
                session.send_message(big_response(query, 3000))
            elif name == "cut.off.":
                reply = make_response(query)
                session.send_message(reply[:2] + bytes([reply[2] | TC]) + reply[3:])
            elif name != "for.ever.":
                session.send_message(make_response(query, "192.0.2.1"))

    with (
        TlsPeer(certificate.openssl_context(), answer) as peer,
        running(tmp_path, authority.ca_file, [upstream(peer.port)], allow=["127.0.0.1"]) as app,
        udp_client(app) as udp,
    ):
        address = address_of(app)
        listener = app.listeners[0]
        ask_udp(address, make_query())
        ask_tcp(address, make_query())
        ask_udp(address, make_query("big.one"))
        for transport in (ask_udp, ask_tcp):
            transport(address, make_query("cut.off"))
        for refused in (GARBAGE, TWO_QUESTIONS, NOTIFY, EDNS_1, ZONE_TRANSFER):
            ask_udp(address, refused)
        ask_tcp(address, EDNS_1)
        ask_tcp(address, NOTIFY)
        ask_udp(address, make_query("hang.up"))
        for dropped in (TAIL, RESPONSE, bytes(5000)):
            udp.send(dropped)
        eventually(lambda: listener.udp.stats.received == 12)
        with socket.create_connection((address.host, address.port)) as tcp:
            tcp.sendall(frame(RESPONSE))
            assert tcp.recv(1) == b"", "a response deserves no reply"

        # More at once than are answered at once, then rest.
        sent = listener.udp.stats.received
        for number in range(listener.udp.capacity + 20):
            udp.send(make_query("hold.on", id_=number))
            eventually(lambda to=sent + number + 1: listener.udp.stats.received == to)  # type: ignore[misc]
        assert scrape(app).value("nxdns_udp_in_flight") == listener.udp.capacity
        # One that is sent again meanwhile, and one of somebody who may not ask.
        udp.send(make_query("hold.on", id_=0))
        with udp_client(app, "127.0.0.9") as stranger:
            stranger.send(make_query())
            eventually(lambda to=sent + number + 3: listener.udp.stats.received == to)  # type: ignore[misc]
        gate.set()
        eventually(lambda: app.in_flight == 0)

        # And two that a stop gives up.
        gate.clear()
        waiting: list[Any] = [socket.create_connection((address.host, address.port)) for _ in "12"]
        for each in waiting:
            each.sendall(frame(make_query("for.ever")))
        eventually(lambda: app.in_flight == 2)
        listener.tcp.stop(0)
        for each in waiting:
            each.close()
        seen = scrape(app)

    assert {name: seen.value(name) for name in OUTCOMES} == {
        "nxdns_handler_queries_total": 5 + 256,
        "nxdns_handler_formerr_total": 2,
        "nxdns_handler_notimp_total": 2,
        "nxdns_handler_badvers_total": 2,
        "nxdns_handler_refused_total": 1,
        "nxdns_handler_servfail_total": 1,
        "nxdns_handler_dropped_malformed_total": 3,
        "nxdns_handler_cancelled_total": 2,
        "nxdns_udp_dropped_oversize_total": 1,
        "nxdns_udp_dropped_no_slot_total": 20,
        "nxdns_udp_dropped_not_allowed_total": 1,
        "nxdns_udp_dropped_duplicate_total": 1,
    }
    read = seen.value("nxdns_udp_received_total") + seen.value("nxdns_tcp_messages_total")
    assert read == sum(seen.value(name) for name in OUTCOMES)
    assert seen.value("nxdns_handler_truncated_total") == 1
    assert seen.value("nxdns_handler_upstream_truncated_total") == 1
    assert seen.value("nxdns_udp_dropped_handler_total") == 2
    assert seen.value("nxdns_udp_in_flight") == 0
    assert seen.value("nxdns_tcp_accepted_total") == 7
    assert sum(seen.by("phase", "nxdns_servfail_phase_total").values()) == 1
    # The one that hung up, and what was cancelled, waited as well.
    assert seen.value("nxdns_query_wait_seconds_count") == 5 + 256 + 1 + 2


def test_no_counter_of_the_server_is_without_its_series(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    body = upstream(1)
    with running(tmp_path, authority.ca_file, [body]) as app:
        seen = scrape(app)
        overview = app.surface.overview()
    [listener] = overview.listeners
    assert set(listener.udp) == set(counter_names(UdpStats))
    assert set(listener.tcp) == set(counter_names(TcpStats)) - {"active"}
    wanted = {
        *(f"nxdns_udp_{name}_total" for name in listener.udp),
        *(f"nxdns_tcp_{name}_total" for name in listener.tcp),
        *(f"nxdns_handler_{name}_total" for name in overview.handler.totals),
    }
    assert wanted <= seen.types.keys()
    assert seen.value("nxdns_udp_kernel_drops_total", listener=listener.address) == 0
    phases = ["queue", "dial", "tls", "send", "first_byte", "rest"]
    assert list(seen.by("phase", "nxdns_exchange_phase_seconds_total")) == phases
    assert seen.by("phase", "nxdns_servfail_phase_total").keys() == {*phases, "none"}


def test_no_secret_no_fault_no_name_and_no_client_is_on_it(
    tmp_path: Path, authority: Authority
) -> None:
    with (
        refusing_tcp() as port,
        running(
            tmp_path,
            authority.ca_file,
            [f'url = "https://127.0.0.1:{port}/t0ken/dns-query"\ntls_name = "{NAME}"'],
        ) as app,
        udp_client(app, "127.0.0.77") as client,
    ):
        for _ in range(2):
            client.send(make_query("private.example"))
            assert dns.message.from_wire(client.recv(4096)).rcode() == dns.rcode.SERVFAIL
        assert app.snapshot()[0].last_error == "ConnectFailed (cause ConnectionRefused)"
        seen = scrape(app)
    assert seen.value("nxdns_upstream_failures_total") == 2
    assert seen.value("nxdns_upstream_tripped", url=f"https://127.0.0.1:{port}/…") == 1
    for text in ("t0ken", "ConnectFailed", "ConnectionRefused", "private", "127.0.0.77", NAME):
        assert text not in seen.text


def test_an_upstream_that_answers_servfail_to_everything_is_healthy_and_shows(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    def servfail(query: bytes) -> bytes:
        reply = dns.message.make_response(dns.message.from_wire(query))
        reply.set_rcode(dns.rcode.SERVFAIL)
        return reply.to_wire()

    with (
        TlsPeer(certificate.openssl_context(), answer_all(servfail)) as peer,
        running(tmp_path, authority.ca_file, [upstream(peer.port)]) as app,
    ):
        for _ in range(3):
            ask_udp(address_of(app), make_query())
        seen = scrape(app)
    assert seen.value("nxdns_upstream_responses_total", rcode="SERVFAIL") == 3
    assert seen.value("nxdns_upstream_responses_total", rcode="NOERROR") == 0
    assert seen.value("nxdns_upstream_tripped") == 0
    assert seen.value("nxdns_upstream_success_rate") == 1
    assert seen.value("nxdns_handler_servfail_total") == 0
    assert seen.value("nxdns_upstream_dials_total") == seen.value("nxdns_upstream_open_sessions")


def test_no_reload_makes_a_counter_fall_and_a_failed_one_shows(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    def broken() -> Config:
        raise ConfigError("line 1: this is not TOML")

    answer = answer_all(lambda query: make_response(query, "192.0.2.1"))
    with (
        TlsPeer(certificate.openssl_context(), answer) as kept,
        TlsPeer(certificate.openssl_context(), answer) as added,
        running(tmp_path, authority.ca_file, [upstream(kept.port)]) as app,
    ):
        metrics = Metrics(app.surface, lambda: NO_TROUBLE)
        for _ in range(3):
            ask_udp(address_of(app), make_query())
        file = tmp_path / "nxdns.toml"
        table = f"[[upstreams]]\n{upstream(added.port)}\npriority = 1\n"
        file.write_text(f"{file.read_text()}\n{table}")
        app.reload(lambda: load(file))
        for _ in range(2):
            ask_udp(address_of(app), make_query())
        good = Scrape(metrics.exposition("")[0])
        app.reload(broken)
        bad = Scrape(metrics.exposition("")[0])
    assert good.by("url", "nxdns_upstream_successes_total") == {
        f"tls://127.0.0.1:{added.port}": 2,
        f"tls://127.0.0.1:{kept.port}": 3,
    }
    assert good.value("nxdns_upstream_slots", index="1", url=f"tls://127.0.0.1:{kept.port}") == 256
    assert good.value("nxdns_handler_queries_total") == 5
    assert good.value("nxdns_query_wait_seconds_count") == 5
    assert good.by("result", "nxdns_reloads_total") == {"ok": 1, "failed": 0}
    assert good.value("nxdns_last_reload_success") == 1
    assert bad.by("result", "nxdns_reloads_total") == {"ok": 1, "failed": 1}
    assert bad.value("nxdns_last_reload_success") == 0
    assert bad.value("nxdns_last_reload_timestamp_seconds") > good.value(
        "nxdns_last_reload_timestamp_seconds"
    )
    assert "not TOML" not in bad.text


@needs_promtool
def test_promtool_has_nothing_to_say_of_a_forwarder_that_runs(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    answer = answer_all(lambda query: make_response(query, "192.0.2.1"))
    with (
        TlsPeer(certificate.openssl_context(), answer) as peer,
        running(tmp_path, authority.ca_file, [upstream(peer.port)]) as app,
    ):
        ask_udp(address_of(app), make_query())
        text = scrape(app).text
    assert promtool("check", "metrics", stdin=text.encode()) == (0, "")
