"""Signals to ``nxdns serve``, as a process, and what its supervisor is told."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dns.message
import dns.rcode
import gevent
import pytest
from gevent.event import Event
from gevent.pool import Group

from nxdns.platform.address import ListenAddress
from tests.support.authority import NAME, Authority, Issued
from tests.support.fake_clients import tcp_asker
from tests.support.forwarder import ask_tcp, ask_udp
from tests.support.messages import make_query, make_response
from tests.support.process import Child, child, config_file
from tests.support.quiet_port import quiet_port
from tests.support.supervisor import Supervisor
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

# No end of a drain is waited for by the clock: what is in flight would be so for much longer
# than any of these tests.
_PATIENT = "[budgets]\nattempt_ms = 50000\ntotal_ms = 60000\n"
_QUERY = make_query()


def _answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def _upstream(peer: TlsPeer, name: str = "one") -> str:
    return f'name = "{name}"\nurl = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'


@pytest.fixture
def peer(certificate: Issued) -> Iterator[TlsPeer]:
    """An upstream that answers."""
    with TlsPeer(certificate.openssl_context(), answer_all(_answer)) as answering:
        yield answering


class Held:
    """A script that reads queries side by side and answers none before the gate opens."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = Event()

    def __call__(self, session: Session) -> None:
        writers = Group()
        try:
            while True:
                query = session.read_query()
                self.asked += 1
                writers.spawn(self._answer_later, session, query)
        finally:
            writers.kill()

    def _answer_later(self, session: Session, query: bytes) -> None:
        self.gate.wait()
        session.send_message(_answer(query))


def _reload(serve: Child, times: int = 1) -> None:
    """Send SIGHUP, ``times`` in all, each once the one before was obeyed."""

    def done() -> int:
        return serve.stderr.count("INFO reload: done\n")

    before = done()
    for obeyed in range(times):
        serve.send(signal.SIGHUP)
        eventually(partial(_at_least, done, before + obeyed + 1))


def _at_least(count: Callable[[], int], number: int) -> bool:
    return count() >= number


def _resident_mib(serve: Child) -> float:
    pages = int(Path(f"/proc/{serve.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _count(serve: Child, what: str) -> int:
    """Entries of a folder in /proc: ``fd``, ``task``."""
    return len(os.listdir(f"/proc/{serve.pid}/{what}"))


@contextmanager
def _load(address: ListenAddress, clients: int, answers: list[bytes]) -> Iterator[None]:
    """Clients that ask one query after another, and keep what they get."""
    stopping = False

    def client(ask: Callable[[ListenAddress, bytes], bytes]) -> None:
        while not stopping:
            answers.append(ask(address, _QUERY))

    asking = [gevent.spawn(client, (ask_udp, ask_tcp)[number % 2]) for number in range(clients)]
    yield
    stopping = True
    gevent.joinall(asking, raise_error=True)


def test_sighup_reads_the_file_again(tmp_path: Path, authority: Authority, peer: TlsPeer) -> None:
    dead = 'name = "dead"\nurl = "tls://127.0.0.1:1"'
    file = config_file(tmp_path, dead, ca_file=authority.ca_file)
    with child("serve", "--config", file) as serve:
        address = serve.listening()
        assert dns.message.from_wire(ask_udp(address, _QUERY)).rcode() == dns.rcode.SERVFAIL
        config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file)
        _reload(serve)
        assert ask_udp(address, _QUERY) == _answer(_QUERY)
        file.write_text("[[upstreams]]\nurl = 5\n")
        serve.send(signal.SIGHUP)
        eventually(lambda: "going on as before\n" in serve.stderr)
        assert ask_udp(address, _QUERY) == _answer(_QUERY)
        ended = serve.terminate()
    assert f"ERROR reload: {file}:2: upstreams[0].url: must be a string" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.status == 0


@pytest.mark.timeout(180)
def test_two_hundred_of_them_under_load_lose_no_query_and_hold_nothing(
    tmp_path: Path, authority: Authority, peer: TlsPeer
) -> None:
    file = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file)
    answers: list[bytes] = []
    with child("serve", "--config", file) as serve:
        address = serve.listening()
        with _load(address, 8, answers):
            _reload(serve, 50)
            memory, threads = _resident_mib(serve), _count(serve, "task")
            _reload(serve, 150)
            grown = _resident_mib(serve) - memory
            assert _count(serve, "task") == threads
        # Its listeners, its sessions, and what the interpreter has; not a hundred of anything.
        assert _count(serve, "fd") < 50
        ended = serve.terminate()
    assert set(answers) == {_answer(_QUERY)}
    assert len(answers) > 200
    assert grown < 4.0, "20 KiB for each reload, or more"
    assert (ended.status, "Warning" in ended.stderr) == (0, False)


def test_a_sighup_before_it_has_started_is_obeyed_once_it_has(
    tmp_path: Path, authority: Authority, peer: TlsPeer
) -> None:
    good = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file)
    text = good.read_bytes()
    # The file is a pipe at first: who reads it waits until something is written to it.
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with child("serve", "--config", pipe) as serve:
        writing: list[int] = []

        def is_being_read() -> bool:
            try:
                writing.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        eventually(is_being_read, seconds=20)
        serve.send(signal.SIGHUP)
        good.replace(pipe)  # what the reload reads
        os.write(writing[0], text)
        os.close(writing[0])
        address = serve.listening()
        eventually(lambda: "INFO reload: done\n" in serve.stderr)
        assert ask_udp(address, _QUERY) == _answer(_QUERY)
        ended = serve.terminate()
    assert ended.status == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_that_is_in_flight_is_answered_before_it_ends(
    number: int, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    held = Held()
    with TlsPeer(certificate.openssl_context(), held) as peer:
        file = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file, extra=_PATIENT)
        with child("serve", "--config", file) as serve:
            address = serve.listening()
            asking = [
                gevent.spawn((ask_udp, ask_tcp)[number % 2], address, _QUERY)
                for number in range(60)
            ]
            eventually(lambda: held.asked == 60)
            with tcp_asker(address) as idle:
                serve.send(number)
                idle.wait_for_close()
            # A reload has no place in an end; systemd would be told that it is ready again.
            serve.send(signal.SIGHUP)
            held.gate.set()
            gevent.joinall(asking, timeout=10, raise_error=True)
            ended = serve.wait()
    assert {each.value for each in asking} == {_answer(_QUERY)}
    assert ended.status == 0
    [line] = ended.errors
    assert "INFO stopping: 60 in flight, at most 60 s" in line


def test_a_second_signal_after_a_reload_still_ends_it_at_once(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    held = Held()
    with TlsPeer(certificate.openssl_context(), held) as peer:
        file = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file, extra=_PATIENT)
        with child("serve", "--config", file) as serve:
            address = serve.listening()
            asking = gevent.spawn(ask_udp, address, _QUERY)
            eventually(lambda: held.asked == 1)
            _reload(serve)
            with tcp_asker(address) as idle:
                serve.send(signal.SIGINT)
                idle.wait_for_close()
            assert serve.running
            serve.send(signal.SIGTERM)
            assert serve.wait().status == 128 + signal.SIGTERM
            asking.kill()


def test_the_supervisor_is_told_of_each_step_in_its_turn(
    tmp_path: Path, authority: Authority, peer: TlsPeer
) -> None:
    file = config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file)
    with (
        Supervisor() as supervisor,
        child(
            "serve", "--config", file, environment={"NOTIFY_SOCKET": supervisor.address}
        ) as serve,
    ):
        [ready] = supervisor.wait_for(1)
        address = serve.listening()
        # Ready is who answers.
        assert ask_udp(address, _QUERY) == _answer(_QUERY)
        config_file(tmp_path, _upstream(peer, "two"), ca_file=authority.ca_file)
        serve.send(signal.SIGHUP)
        supervisor.wait_for(3)
        file.write_text("nothing")
        serve.send(signal.SIGHUP)
        supervisor.wait_for(5)
        assert serve.terminate().status == 0
        told = supervisor.wait_for(6)
    status = f"STATUS=serving {address}; upstreams"
    assert ready == ["READY=1", f"{status} one"]
    for at, name in ((1, "two"), (3, "two; the last reload failed")):
        began, done = told[at : at + 2]
        assert began[0] == "RELOADING=1"
        assert began[1].startswith("MONOTONIC_USEC=")
        assert done == ["READY=1", f"{status} {name}"]
    assert told[5:] == [["STOPPING=1", "STATUS=stopping"]]


@pytest.mark.parametrize("listen", ["127.0.0.1:{port}", "192.0.2.1:0"])
def test_who_cannot_listen_is_never_ready(
    listen: str, tmp_path: Path, authority: Authority, peer: TlsPeer
) -> None:
    taken = listen.format(port=peer.port)  # for TCP
    file = config_file(
        tmp_path,
        _upstream(peer),
        ca_file=authority.ca_file,
        extra=f'[server]\nlisten = ["{taken}"]\n',
    )
    with (
        Supervisor() as supervisor,
        child(
            "serve", "--config", file, environment={"NOTIFY_SOCKET": supervisor.address}
        ) as serve,
    ):
        ended = serve.wait()
        gevent.idle()
        assert supervisor.told == []
    assert ended.status == 1


def test_other_addresses_by_sighup_under_load_lose_no_query_and_are_announced(
    tmp_path: Path, authority: Authority, peer: TlsPeer
) -> None:
    def listen_on(*addresses: object) -> None:
        quoted = ", ".join(f'"{address}"' for address in addresses)
        server = f"[server]\nlisten = [{quoted}]\n"
        config_file(tmp_path, _upstream(peer), ca_file=authority.ca_file, extra=server)

    other = ListenAddress("127.0.0.2", quiet_port())
    wildcard = ListenAddress("0.0.0.0", other.port)
    listen_on("127.0.0.1:0", other)
    answers: list[bytes] = []
    with (
        Supervisor() as supervisor,
        child(
            "serve",
            *("--config", tmp_path / "nxdns.toml"),
            environment={"NOTIFY_SOCKET": supervisor.address},
        ) as serve,
    ):
        stays = serve.listening()
        serve.wait_for_line("upstreams ")
        with _load(stays, 4, answers), _load(other, 4, answers):
            for number in range(20):
                listen_on("127.0.0.1:0", (wildcard, other)[number % 2])
                _reload(serve)
        told = supervisor.wait_for(2 * 20)
        ended = serve.terminate()
    assert set(answers) == {_answer(_QUERY)}
    assert _lines(serve, "listening ")[2:] == [
        f"listening {address} udp+tcp" for address in (wildcard, other) * 10
    ]
    assert _lines(serve, "no longer") == [
        f"no longer listening {address}" for address in (other, wildcard) * 10
    ]
    ready = [lines[1] for lines in told if lines[0] == "READY=1"]
    assert ready[1:3] == [
        f"STATUS=serving {stays}, {address}; upstreams one" for address in (wildcard, other)
    ]
    assert (ended.status, "Warning" in ended.stderr) == (0, False)


def _lines(serve: Child, start: str) -> list[str]:
    return [line for line in serve.stdout.splitlines() if line.startswith(start)]
