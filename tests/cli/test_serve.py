"""``nxdns serve``, as a process: what it says, how it ends."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.opcode
import dns.rcode
import gevent
import pytest
from gevent.event import Event

from nxdns.platform.address import ListenAddress
from tests.support.authority import NAME, Authority, Issued
from tests.support.fake_clients import TcpAsker, tcp_asker
from tests.support.forwarder import ask_tcp, ask_udp
from tests.support.messages import make_query, make_response
from tests.support.process import child, config_file
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = pytest.mark.integration

# No end of a drain is waited for by the clock: what is in flight would be so for much longer
# than any of these tests.
_PATIENT = "[budgets]\nattempt_ms = 50000\ntotal_ms = 60000\n"


def _resolved(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def _upstream(peer: TlsPeer) -> str:
    return f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'


class Held:
    """A peer's script that answers nothing before its gate opens."""

    def __init__(self) -> None:
        self.asked = Event()
        self.gate = Event()

    def __call__(self, session: Session) -> None:
        query = session.read_query()
        self.asked.set()
        self.gate.wait()
        session.send_message(_resolved(query))
        session.wait_for_end()


@contextmanager
def _witness(address: ListenAddress) -> Iterator[TcpAsker]:
    """An idle connection that is being served; it is closed as soon as the server stops."""
    with tcp_asker(address) as asker:
        # NOTIFY, which no upstream is asked about.
        notify = bytearray(make_query())
        notify[2] |= dns.opcode.NOTIFY << 3
        assert dns.message.from_wire(asker.ask(bytes(notify))).rcode() == dns.rcode.NOTIMP
        yield asker


def test_it_says_what_it_serves_and_answers_there_over_udp_and_tcp(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(_resolved)) as peer:
        file = config_file(
            tmp_path,
            'name = "last"\npriority = 200\nurl = "https://127.0.0.1:1/s3cret"',
            _upstream(peer),
            'enabled = false\nurl = "tls://127.0.0.1:2"',
            ca_file=authority.ca_file,
            extra='[server]\nlisten = ["127.0.0.1:0", "127.0.0.2:0"]\n',
        )
        with child("serve", "--config", file) as serve:
            named = serve.wait_for_line("upstreams ")
            listening = serve.stdout.splitlines()[:-1]
            address = serve.listening()
            for ask in (ask_udp, ask_tcp):
                query = make_query()
                assert ask(address, query) == _resolved(query)
            ended = serve.terminate()
    assert named == f"upstreams tls://127.0.0.1:{peer.port}, last https://127.0.0.1:1/…"
    for host, line in zip(("127.0.0.1", "127.0.0.2"), listening, strict=True):
        assert re.fullmatch(rf"listening {re.escape(host)}:[1-9]\d* udp\+tcp", line)
    assert (ended.status, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("number", "ask"),
    [
        pytest.param(signal.SIGTERM, ask_udp, id="sigterm-udp"),
        pytest.param(signal.SIGTERM, ask_tcp, id="sigterm-tcp"),
        pytest.param(signal.SIGINT, ask_udp, id="sigint-udp"),
    ],
)
def test_a_query_in_flight_is_answered_before_it_ends(
    number: int,
    ask: Callable[[ListenAddress, bytes], bytes],
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
) -> None:
    held = Held()
    query = make_query()
    with TlsPeer(certificate.openssl_context(), held) as peer:
        file = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file, extra=_PATIENT)
        with child("serve", "--config", file) as serve:
            address = serve.listening()
            with _witness(address) as idle:
                asking = gevent.spawn(ask, address, query)
                assert held.asked.wait(10)
                serve.send(number)
                idle.wait_for_close()
            assert serve.running
            held.gate.set()
            assert asking.get(timeout=10) == _resolved(query)
            ended = serve.wait()
    assert ended.status == 0
    assert_only_says_what_it_waits_for(ended.stderr)


def assert_only_says_what_it_waits_for(stderr: str) -> None:
    [line] = stderr.splitlines()
    assert "INFO stopping: 1 in flight, at most 60 s; again to stop at once" in line


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        pytest.param(signal.SIGTERM, signal.SIGTERM, 143, id="sigterm-twice"),
        pytest.param(signal.SIGTERM, signal.SIGINT, 130, id="sigint-after-sigterm"),
    ],
)
def test_a_second_signal_ends_it_at_once(
    first: int, second: int, status: int, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    held = Held()
    with TlsPeer(certificate.openssl_context(), held) as peer:
        file = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file, extra=_PATIENT)
        with child("serve", "--config", file) as serve:
            address = serve.listening()
            with _witness(address) as idle:
                asking = gevent.spawn(ask_udp, address, make_query())
                assert held.asked.wait(10)
                serve.send(first)
                idle.wait_for_close()
            assert serve.running
            serve.send(second)
            ended = serve.wait()
            asking.kill()
    assert ended.status == status
    assert_only_says_what_it_waits_for(ended.stderr)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_trip_is_logged_once_as_a_warning_and_the_recovery_once_as_news(
    log_format: str, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    failing = True

    def script(session: Session) -> None:
        while True:
            query = session.read_query()
            if failing:
                return
            session.send_message(_resolved(query))

    with TlsPeer(certificate.openssl_context(), script) as peer:
        file = config_file(
            tmp_path,
            f'name = "one"\n{_upstream(peer)}',
            ca_file=authority.ca_file,
            extra=f'[health]\nbase_backoff_ms = 1\n[log]\nformat = "{log_format}"\n',
        )
        with child("serve", "--config", file) as serve:
            address = serve.listening()
            servfail = [dns.message.from_wire(ask_udp(address, make_query())) for _ in range(4)]
            failing = False
            for _ in range(3):
                query = make_query()
                assert ask_udp(address, query) == _resolved(query)
            ended = serve.terminate()
    assert [each.rcode() for each in servfail] == [dns.rcode.SERVFAIL] * 4
    trip = "upstream 'one' failed: ReceiveFailed (cause EndOfStream)"
    recovery = "upstream 'one' has recovered"
    if log_format == "json":
        entries = [json.loads(line) for line in ended.errors]
        told = [(entry["level"].upper(), entry["message"]) for entry in entries]
    else:
        told = [(level, message) for _, level, message in (x.split(" ", 2) for x in ended.errors)]
    assert told == [("WARNING", trip), ("INFO", recovery)]
    assert ended.status == 0


def test_an_address_this_machine_lacks_is_a_warning_and_the_others_are_served(
    tmp_path: Path,
) -> None:
    extra = '[server]\nlisten = ["192.0.2.1:0", "127.0.0.1:0"]\n'
    file = config_file(tmp_path, 'url = "tls://127.0.0.1:1"', extra=extra)
    with child("serve", "--config", file) as serve:
        address = serve.listening()
        with _witness(address):
            pass
        ended = serve.terminate()
    assert address.host == "127.0.0.1"
    [warning] = ended.errors
    assert re.fullmatch(r"\S+ WARNING not listening on 192\.0\.2\.1:0: .+", warning)
    assert ended.stdout.count("listening ") == 1
    assert ended.status == 0
