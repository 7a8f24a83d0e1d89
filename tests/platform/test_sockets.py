"""Dialling IP literals: no lookup, no Nagle, no socket left behind."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
from gevent import Timeout, socket
from greenlet import GreenletExit

from nxdns.platform.sockets import dial, socket_address
from tests.support.leaks import no_descriptor_left

pytestmark = pytest.mark.integration


@contextmanager
def listener(family: int = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[Any]:
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        sock.listen(8)
        yield sock


@contextmanager
def full_listener() -> Iterator[int]:
    """A port where a connect waits: its backlog of one is taken, and the kernel drops the SYN."""
    with socket.socket() as sock, socket.socket() as first:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        first.connect(sock.getsockname())
        yield sock.getsockname()[1]


def loopback_interface() -> tuple[str, int]:
    index, name = socket.if_nameindex()[0]
    return name, index


@pytest.mark.parametrize(
    ("host", "family", "address"),
    [
        pytest.param("192.0.2.1", socket.AF_INET, ("192.0.2.1", 853), id="ipv4"),
        pytest.param("2001:db8::1", socket.AF_INET6, ("2001:db8::1", 853), id="ipv6"),
        pytest.param("fe80::1%7", socket.AF_INET6, ("fe80::1", 853, 0, 7), id="scope-number"),
    ],
)
def test_a_literal_has_a_socket_address(
    host: str, family: int, address: tuple[object, ...]
) -> None:
    assert socket_address(host, 853) == (family, address)


def test_a_scope_can_be_the_name_of_an_interface() -> None:
    name, index = loopback_interface()
    assert socket_address(f"fe80::1%{name}", 853) == (socket.AF_INET6, ("fe80::1", 853, 0, index))


def test_a_scope_that_names_no_interface_is_an_os_error() -> None:
    with pytest.raises(OSError, match="interface"):
        socket_address("fe80::1%nowhere0", 853)


def test_a_name_is_never_looked_up() -> None:
    with pytest.raises(ValueError, match="localhost"):
        dial("localhost", 853)


def test_a_dialled_socket_is_connected_patient_and_sends_at_once() -> None:
    with listener() as server, dial("127.0.0.1", server.getsockname()[1], 5.0) as sock:
        accepted, _ = server.accept()
        with accepted:
            assert sock.getpeername() == server.getsockname()
            assert sock.gettimeout() is None  # later waits have bounds of their own
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            sock.sendall(b"hello")
            assert accepted.recv(16) == b"hello"


def test_ipv6_is_dialled_too() -> None:
    try:
        probe = socket.socket(socket.AF_INET6)
        with probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with (
        listener(socket.AF_INET6, "::1") as server,
        dial("::1", server.getsockname()[1]) as sock,
    ):
        assert sock.getpeername()[0] == "::1"


def test_a_refused_connect_says_so_and_leaves_nothing() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with no_descriptor_left(), pytest.raises(OSError, match="refused") as refused:
            dial("127.0.0.1", bound.getsockname()[1])
    assert refused.value.errno == errno.ECONNREFUSED


def test_the_bound_of_the_connect_is_a_timeout_error_and_leaves_nothing() -> None:
    with full_listener() as port, no_descriptor_left(), pytest.raises(TimeoutError):
        dial("127.0.0.1", port, 0.02)


def test_a_timer_of_the_caller_ends_the_connect_and_leaves_nothing() -> None:
    with full_listener() as port, no_descriptor_left():
        with Timeout(0.02) as timer, pytest.raises(Timeout) as expired:
            dial("127.0.0.1", port)
        assert expired.value is timer


def test_a_kill_ends_the_connect_and_leaves_nothing() -> None:
    with full_listener() as port, no_descriptor_left():
        dialling = gevent.spawn(dial, "127.0.0.1", port)
        gevent.idle()
        assert not dialling.dead
        dialling.kill()
        assert isinstance(dialling.value, GreenletExit)
