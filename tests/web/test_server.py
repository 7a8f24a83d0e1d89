"""The web server on the wire: its bounds hold whatever a client does."""

import logging
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dns.message
import gevent
import pytest
from gevent import socket
from gevent.event import Event

from nxdns.web import server as web_server
from nxdns.web.application import SECURITY_HEADERS
from nxdns.web.head import MAX_HEAD_BYTES
from nxdns.web.server import MAX_CONNECTIONS, WebServer
from nxdns.web.troubles import Reason
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.overviews import ScriptedSource, overview_of, upstream_of
from tests.support.tls_peer import TlsPeer, answer_all
from tests.support.waiting import eventually
from tests.support.web_client import connected, get, parse, port_of, read_all, send, serving

pytestmark = pytest.mark.integration

PATHS = ("/", "/page.js", "/page.css", "/icon.svg", "/api/health", "/api/overview", "/nowhere")


def errors_of(server: WebServer) -> dict[str, int]:
    """Those that have occurred."""
    return {reason: count for reason, count in server.troubles.errors.items() if count}


def padded(size: int) -> bytes:
    """A good head of exactly so many bytes."""
    start, end = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nPadding: ", b"\r\n\r\n"
    return start + b"x" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("path", PATHS)
def test_every_response_says_what_a_browser_may_do_with_it(path: str) -> None:
    with serving() as server:
        fields = get(server, path).fields
    for name, value in SECURITY_HEADERS:
        assert fields[name.lower()] == value
    assert fields["cache-control"] == "no-store"
    policy = fields["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert fields["x-content-type-options"] == "nosniff"
    assert fields["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", PATHS)
def test_head_says_what_get_would_without_the_body(path: str) -> None:
    with serving() as server:
        told, shown = get(server, path, method="HEAD"), get(server, path)
        assert (told.status, told.body) == (shown.status, b"")
        assert int(told.fields["content-length"]) == len(shown.body)
        assert errors_of(server) == {}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get"])
def test_other_methods_are_told_which_are_answered(method: str) -> None:
    with serving() as server:
        answer = get(server, "/api/health", method=method)
        assert answer.status == 405
        assert answer.fields["allow"] == "GET, HEAD"
        assert errors_of(server) == {"bad_method": 1}


def test_a_post_with_a_body_reads_its_refusal() -> None:
    # More than the kernel holds of it: were the server to close at once, the client would be reset
    # while it sends, and never see why.
    size = 8_000_000
    with serving() as server:
        request = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
        assert send(server, request.encode() + b"x" * size).status == 405


@pytest.mark.parametrize("field", ["Content-Length: 3", "Transfer-Encoding: chunked"])
def test_a_get_with_a_body_is_refused(field: str) -> None:
    with serving() as server:
        request = f"GET / HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\nabc".encode()
        assert send(server, request).status == 413
        assert errors_of(server) == {"body": 1}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8053", "", "localhost.evil.example", "127.0.0.1.nip.example"],
)
@pytest.mark.parametrize("path", ["/", "/api/overview", "/metrics"])
def test_a_page_of_another_name_sees_nothing(host: str, path: str) -> None:
    with serving() as server:
        answer = get(server, path, host=host)
        assert answer.status == 400
        assert b"upstream" not in answer.body
        assert errors_of(server) == {"bad_host": 1}


def test_a_refusal_of_a_head_has_no_body() -> None:
    with serving() as server:
        answer = get(server, "/", method="HEAD", host="evil.example")
        assert (answer.status, answer.body) == (400, b"")
        assert int(answer.fields["content-length"]) > 0


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_without_a_host_is_refused(version: str) -> None:
    with serving() as server:
        assert send(server, f"GET / HTTP/{version}\r\n\r\n".encode()).status == 400
        assert errors_of(server) == {"bad_host": 1}


def test_a_refused_name_is_told_how_to_be_allowed_and_then_is() -> None:
    with serving() as server:
        assert b"allowed_hosts" in get(server, "/", host="dns.home.arpa").body
    with serving(allowed_hosts=("DNS.home.arpa",)) as server:
        assert get(server, "/", host="dns.home.arpa:8053").status == 200


def test_a_head_may_have_8_kib_and_not_a_byte_more() -> None:
    assert MAX_HEAD_BYTES == 8192
    with serving() as server:
        assert send(server, padded(MAX_HEAD_BYTES)).status == 200
        assert send(server, padded(MAX_HEAD_BYTES + 1)).status == 431
        assert errors_of(server) == {"head_too_large": 1}


def test_a_head_that_is_too_long_is_refused_however_it_is_cut() -> None:
    request = padded(MAX_HEAD_BYTES + 100)
    with serving() as server, connected(server) as sock:
        sock.sendall(request[:-200])
        gevent.idle()  # the server reads that
        sock.sendall(request[-200:])
        assert parse(read_all(sock)).status == 431


def test_a_head_without_end_is_refused_when_it_is_too_long_and_not_read_further() -> None:
    with serving() as server, connected(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000)
        assert parse(read_all(sock)).status == 431


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", id="tls"),
        pytest.param(b"GET /\r\n\r\n", id="http-0.9"),
        pytest.param(b"GET http://evil.example/ HTTP/1.1\r\nHost: ::1\r\n\r\n", id="proxy"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", id="space"),
    ],
)
def test_what_is_no_request_is_refused_and_counted(request_: bytes) -> None:
    with serving() as server:
        answer = send(server, request_)
        assert answer.status == 400
        assert errors_of(server) == {"bad_head": 1}


def test_a_head_that_ends_early_is_counted_and_a_client_without_a_word_is_not() -> None:
    with serving() as server:
        with connected(server) as sock:
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == b""
        assert errors_of(server) == {}
        with connected(server) as sock:
            sock.sendall(b"GET / HT")
            sock.shutdown(socket.SHUT_WR)
            assert parse(read_all(sock)).status == 400
        assert errors_of(server) == {"bad_head": 1}


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_head_that_does_not_come_in_time_is_refused(said: bytes) -> None:
    with serving(head_seconds=0.05) as server, connected(server) as sock:
        sock.sendall(said)
        assert parse(read_all(sock)).status == 408
        assert errors_of(server) == {"head_timeout": 1}


def test_a_head_that_trickles_does_not_win_time_with_each_byte() -> None:
    with serving(head_seconds=0.1) as server, connected(server) as sock:

        def trickle() -> None:
            while True:
                sock.sendall(b"a")
                gevent.sleep(0.01)

        trickling = gevent.spawn(trickle)
        try:
            eventually(lambda: errors_of(server) == {"head_timeout": 1})
        finally:
            trickling.kill()


class Huge(ScriptedSource):
    """Its page is more than the kernel takes for a client that does not read."""

    def __init__(self) -> None:
        super().__init__(overview_of(upstream_of(label="x" * 30_000_000)))


def test_a_response_that_is_not_taken_in_time_is_given_up() -> None:
    with serving(Huge(), response_seconds=0.2) as server, connected(server) as sock:
        sock.sendall(b"GET /api/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(lambda: errors_of(server) == {"response_timeout": 1})
        taken = parse(read_all(sock))
        assert len(taken.body) < int(taken.fields["content-length"])


def test_a_response_that_is_not_made_in_time_is_given_up_and_reported_as_no_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = ScriptedSource()
    source.on_episodes = Event().wait
    with serving(source, response_seconds=0.1) as server, connected(server) as sock:
        sock.sendall(b"GET /api/diagnostics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(sock) == b""
        assert errors_of(server) == {"response_timeout": 1}
        # And nothing is held by what was given up.
        assert get(server, "/api/overview").status == 200
    assert caplog.records == []


def test_a_client_that_leaves_within_its_response_is_counted() -> None:
    with serving(Huge()) as server:
        with connected(server) as sock:
            sock.sendall(b"GET /api/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.recv(1)
        eventually(lambda: errors_of(server) == {"connection": 1})


def test_a_bug_is_logged_and_the_client_sees_nothing_of_it(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    source = ScriptedSource()

    def fail() -> None:
        raise ZeroDivisionError("the secret")

    source.on_episodes = fail
    with serving(source) as server:
        answer = get(server, "/api/diagnostics")
        assert errors_of(server) == {"internal": 1}
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    assert [record.name for record in caplog.records] == ["nxdns.web.server"]
    assert capfd.readouterr().err == ""


def test_the_33rd_connection_is_closed_and_counted_and_a_place_comes_back() -> None:
    assert MAX_CONNECTIONS == 32
    with serving() as server:
        held = [
            socket.create_connection(("127.0.0.1", port_of(server))) for _ in range(MAX_CONNECTIONS)
        ]
        with connected(server) as sock:
            assert read_all(sock) == b""
        assert server.troubles.rejected_at_capacity_total == 1
        held.pop().close()
        eventually(lambda: not connects_in_vain(server))
        for sock in held:
            sock.close()


def connects_in_vain(server: WebServer) -> bool:
    with connected(server) as sock:
        try:
            sock.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        except OSError:
            return True
        return read_all(sock) == b""


def test_a_connection_carries_one_request() -> None:
    once = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
    with serving() as server:
        answer = send(server, once)
        assert answer.fields["connection"] == "close"
        assert len(answer.body) == int(answer.fields["content-length"])


def test_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # gevent's own asks for the name of its address, and the resolver may be ourselves.
    def fail(*_: Any) -> None:
        raise AssertionError("a name was looked up")

    for name in ("getfqdn", "gethostbyaddr", "getnameinfo"):
        monkeypatch.setattr(socket, name, fail)
    with serving() as server:
        assert get(server, "/").status == 200


def test_descriptors_that_run_out_are_counted_and_it_goes_on() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving() as server, socket.socket() as sock:
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, limits[1]))
        try:
            with filled_descriptors(sock.fileno()):
                sock.connect(("127.0.0.1", port_of(server)))
                eventually(lambda: errors_of(server).get("accept"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        sock.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert parse(read_all(sock)).status == 200


@contextmanager
def filled_descriptors(highest: int) -> Iterator[None]:
    """Every descriptor up to ``highest`` is in use."""
    taken: list[int] = []
    with suppress(OSError):  # EMFILE: there is none left
        while not taken or taken[-1] < highest:
            taken.append(os.dup(1))
    yield
    for descriptor in taken:
        os.close(descriptor)


def test_a_stop_leaves_nothing_open_behind_whoever_is_connected() -> None:
    source = ScriptedSource()
    source.on_episodes = Event().wait
    with no_descriptor_left():
        with serving(source) as server:
            silent = socket.create_connection(("127.0.0.1", port_of(server)))
            waiting = socket.create_connection(("127.0.0.1", port_of(server)))
            waiting.sendall(b"GET /api/diagnostics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            gevent.idle()
        assert read_all(silent) == read_all(waiting) == b""
        silent.close()
        waiting.close()
        del silent, waiting


def test_a_port_in_use_is_an_error_of_the_system() -> None:
    with serving() as server, pytest.raises(OSError, match="in use"):
        WebServer("127.0.0.1", port_of(server), ScriptedSource(), ())


def test_200_slow_clients_delay_no_query(
    tmp_path: Path, authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    context = certificate.openssl_context()
    with (
        TlsPeer(context, answer_all(lambda query: make_response(query, "192.0.2.1"))) as peer,
        running(
            tmp_path,
            authority.ca_file,
            [f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'],
        ) as app,
        serving(app.surface) as server,
    ):
        slow: list[Any] = []
        for number in range(200):
            sock = socket.create_connection(("127.0.0.1", port_of(server)))
            slow.append(sock)
            with suppress(OSError):  # it is closed already
                # Some say nothing, some begin a head, some ask for much and read nothing.
                sock.sendall((b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: ::1\r\n")[number % 3])
        eventually(lambda: server.troubles.rejected_at_capacity_total == 200 - MAX_CONNECTIONS)
        # Each within one attempt, which no wait for the deadline of a head would fit in.
        with gevent.Timeout(web_server.HEAD_SECONDS / 2):
            for _ in range(50):
                reply = dns.message.from_wire(ask_udp(address_of(app), make_query()))
                assert reply.answer
        assert errors_of(server) == {}  # they are all still waited for
        for sock in slow:
            sock.close()


def test_reasons_are_labels_and_each_is_counted_from_the_start() -> None:
    with serving() as server:
        assert server.troubles.errors == {reason.value: 0 for reason in Reason}
    for reason in Reason:
        assert re.fullmatch(r"[a-z_]+", reason.value)
