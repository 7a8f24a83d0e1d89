"""DoH hosts that are names: looked up at each dial, their addresses tried in turn."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from gevent import socket

from nxdns.platform.resolver import Resolver
from nxdns.upstream.transport import Cause, Fault, FaultKind, LocalKind, LocalResource
from tests.support.authority import NAME, Authority, Issued
from tests.support.http_peer import FixedLookup, blackhole, leaves_at, promptly, well_behaved
from tests.support.lookups import let_lookups_fail, no_thread_to_start, nothing_told
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import TlsPeer

pytestmark = pytest.mark.integration

QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY, "192.0.2.1")

REFUSED = Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_REFUSED)
NOT_RESOLVED = Fault(FaultKind.CONNECT_FAILED, Cause.NAME_NOT_RESOLVED)


@contextmanager
def out_of_descriptors() -> Iterator[None]:
    """Nothing more can be opened inside the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_name_is_looked_up_at_each_dial_and_not_for_an_open_connection(
    authority: Authority, certificate: Issued
) -> None:
    resolver = FixedLookup(["127.0.0.1"])
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority, host=NAME, tls_name=None, resolver=resolver) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert resolver.asked == [(NAME, peer.port)]
        leaves.first.close()
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert resolver.asked == [(NAME, peer.port)] * 2


@pytest.mark.parametrize(
    "refusing",
    [
        pytest.param(["127.0.0.2"], id="one"),
        pytest.param(["127.0.0.2", "127.0.0.3"], id="two"),
        pytest.param(["::1"], id="ipv6"),
    ],
)
def test_an_address_that_refuses_gives_way_to_the_next(
    authority: Authority, certificate: Issued, refusing: list[str]
) -> None:
    resolver = FixedLookup([*refusing, "127.0.0.1"])
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority, host=NAME, tls_name=None, resolver=resolver) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert leaves.stats.recoveries == 0


def test_the_addresses_are_tried_in_the_order_of_the_system(
    authority: Authority, certificate: Issued
) -> None:
    resolver = FixedLookup(["127.0.0.1", "127.0.0.2"])
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        socket.socket() as second,
        leaves_at(peer.port, authority, host=NAME, tls_name=None, resolver=resolver) as leaves,
    ):
        second.bind(("127.0.0.2", peer.port))
        second.listen()
        second.setblocking(False)
        assert promptly(leaves.first, QUERY) == RESPONSE
        with pytest.raises(BlockingIOError):
            second.accept()


def test_when_all_addresses_refuse_the_fault_is_that_of_the_last(
    authority: Authority, certificate: Issued
) -> None:
    resolver = FixedLookup(["127.0.0.2", "127.0.0.3"])
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority, host=NAME, tls_name=None, resolver=resolver) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == REFUSED
        assert peer.accepts == 0


@contextmanager
def stalled(host: str, port: int) -> Iterator[None]:
    """A port that takes every connect, and never says a word."""
    with socket.socket() as listener:
        listener.bind((host, port))
        listener.listen()
        yield


@pytest.mark.parametrize(
    "unanswering",
    [pytest.param(blackhole, id="connect"), pytest.param(stalled, id="handshake")],
)
def test_an_address_that_does_not_answer_has_an_equal_part_of_the_time_and_no_more(
    authority: Authority,
    certificate: Issued,
    unanswering: Callable[[str, int], AbstractContextManager[object]],
) -> None:
    resolver = FixedLookup(["127.0.0.2", "127.0.0.1"])
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        unanswering("127.0.0.2", peer.port),
        leaves_at(
            peer.port,
            authority,
            host=NAME,
            tls_name=None,
            resolver=resolver,
            attempt_seconds=0.5,
        ) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE
        assert 0.2 < leaves.first.last.dial_ns / 1e9 < 0.5


def test_when_no_address_answers_the_connect_has_timed_out(authority: Authority) -> None:
    resolver = FixedLookup(["127.0.0.1", "127.0.0.1"])
    with (
        blackhole() as port,
        leaves_at(
            port, authority, host=NAME, tls_name=None, resolver=resolver, attempt_seconds=0.1
        ) as leaves,
    ):
        timed_out = Fault(FaultKind.CONNECT_FAILED, Cause.CONNECTION_TIMED_OUT)
        assert promptly(leaves.first, QUERY) == timed_out


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(socket.gaierror(socket.EAI_NONAME, "unknown"), id="no-such-name"),
        pytest.param(socket.gaierror(socket.EAI_AGAIN, "try again"), id="no-name-server"),
        pytest.param(socket.gaierror(socket.EAI_FAIL, "failure"), id="refused"),
    ],
)
def test_a_name_without_an_address_is_the_upstreams_fault(
    authority: Authority, error: socket.gaierror
) -> None:
    with leaves_at(443, authority, host="doh.test", resolver=FixedLookup(error)) as leaves:
        assert promptly(leaves.first, QUERY) == NOT_RESOLVED
        assert promptly(leaves.first, QUERY) == NOT_RESOLVED


@contextmanager
def real_resolver() -> Iterator[Resolver]:
    """The system's lookups, in threads."""
    resolver = Resolver()
    try:
        yield resolver
    finally:
        resolver.close()


def test_a_real_lookup_that_fails_is_the_upstreams_fault_and_nothing_to_tell(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    let_lookups_fail(monkeypatch)
    with (
        real_resolver() as resolver,
        leaves_at(443, authority, host="doh.test", resolver=resolver) as leaves,
        nothing_told(caplog, capfd),
    ):
        assert promptly(leaves.first, QUERY) == NOT_RESOLVED


def test_a_real_lookup_without_a_thread_is_nobodys_fault(
    authority: Authority, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        real_resolver() as resolver,
        leaves_at(443, authority, host="localhost", resolver=resolver) as leaves,
        nothing_told(caplog, capfd),
        no_thread_to_start(),
    ):
        with pytest.raises(LocalResource) as raised:
            promptly(leaves.first, QUERY)
        assert raised.value.kind is LocalKind.SYSTEM_RESOURCES


def test_a_real_lookup_of_localhost_finds_the_peer(authority: Authority) -> None:
    with (
        real_resolver() as resolver,
        TlsPeer(authority.issue("localhost").openssl_context(), well_behaved()) as peer,
        leaves_at(
            peer.port, authority, host="localhost", tls_name=None, resolver=resolver
        ) as leaves,
    ):
        assert promptly(leaves.first, QUERY) == RESPONSE


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(
            OSError(errno.EMFILE, "full"), LocalKind.PROCESS_FD_QUOTA_EXCEEDED, id="process"
        ),
        pytest.param(
            OSError(errno.ENFILE, "full"), LocalKind.SYSTEM_FD_QUOTA_EXCEEDED, id="system"
        ),
        pytest.param(
            socket.gaierror(socket.EAI_MEMORY, "memory"), LocalKind.OUT_OF_MEMORY, id="memory"
        ),
    ],
)
def test_what_a_lookup_lacks_on_this_machine_is_nobodys_fault(
    authority: Authority, error: OSError, kind: LocalKind
) -> None:
    with leaves_at(443, authority, host="doh.test", resolver=FixedLookup(error)) as leaves:
        with pytest.raises(LocalResource) as raised:
            promptly(leaves.first, QUERY)
        assert raised.value.kind is kind


@pytest.mark.parametrize("host", ["127.0.0.1", NAME], ids=["literal", "name"])
def test_a_dial_without_a_descriptor_is_nobodys_fault(
    authority: Authority, certificate: Issued, host: str
) -> None:
    resolver = FixedLookup(["127.0.0.1", "127.0.0.2"])
    with (
        TlsPeer(certificate.openssl_context(), well_behaved()) as peer,
        leaves_at(peer.port, authority, host=host, resolver=resolver) as leaves,
    ):
        with out_of_descriptors(), pytest.raises(LocalResource) as raised:
            promptly(leaves.first, QUERY)
        assert raised.value.kind is LocalKind.PROCESS_FD_QUOTA_EXCEEDED
        assert promptly(leaves.first, QUERY) == RESPONSE


def test_a_real_lookup_without_a_descriptor_is_nobodys_fault(authority: Authority) -> None:
    with (
        real_resolver() as resolver,
        leaves_at(443, authority, host="nxdns.invalid", resolver=resolver) as leaves,
    ):
        resolver.lookup("localhost", 443)  # its thread is there
        with out_of_descriptors(), pytest.raises(LocalResource) as raised:
            promptly(leaves.first, QUERY)
        assert raised.value.kind is LocalKind.PROCESS_FD_QUOTA_EXCEEDED
