"""A process without descriptors: nobody is blamed, and service returns by itself."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import pytest
from gevent import socket

from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_tcp, ask_udp, running
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@contextmanager
def _no_descriptor_left() -> Iterator[None]:
    """Nothing can be opened inside the block but what is closed in it first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    filled: list[int] = []
    try:
        try:
            while True:
                filled.append(os.dup(0))
        except OSError:
            pass
        yield
    finally:
        for number in filled:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_no_upstream_is_blamed_and_service_returns_by_itself(
    tmp_path: Path,
    authority: Authority,
    certificate: Issued,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def answer_one(session: Session) -> None:
        session.send_message(make_response(session.read_query(), "192.0.2.1"))

    with (
        TlsPeer(certificate.openssl_context(), answer_one) as peer,
        running(
            tmp_path,
            authority.ca_file,
            [f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"'],
        ) as app,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
        socket.socket() as tcp_client,
    ):
        address = address_of(app)
        client.connect((address.host, address.port))
        assert dns.message.from_wire(ask_udp(address, make_query())).rcode() == dns.rcode.NOERROR
        with _no_descriptor_left():
            client.send(make_query())
            assert dns.message.from_wire(client.recv(4096)).rcode() == dns.rcode.SERVFAIL
            tcp_client.connect((address.host, address.port))
            tcp = app.listeners[0].tcp
            eventually(lambda: tcp.stats.accept_errors)
            snapshot = app.snapshot()[0]
            assert snapshot.failures_total == 0
            assert not snapshot.tripped
        assert dns.message.from_wire(ask_udp(address, make_query())).rcode() == dns.rcode.NOERROR
        assert dns.message.from_wire(ask_tcp(address, make_query())).rcode() == dns.rcode.NOERROR
        assert app.snapshot()[0].failures_total == 0
    assert "Traceback" not in capfd.readouterr().err
