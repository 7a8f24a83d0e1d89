"""Networks of a test's own: addresses that come and go, links that nobody else is on."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gevent import subprocess

_CLONE_NEWNET = 0x40000000  # linux/sched.h; Python 3.11 has no os.unshare
_LIBC = ctypes.CDLL(None, use_errno=True)


class Network:
    """A network namespace with nothing but a loopback interface, which is up."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """Of the namespace, as ``ip`` takes it."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is in it, with all the sockets that it makes and processes that it starts."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(self._descriptor)
            yield
        finally:
            _enter(before)
            os.close(before)


@contextmanager
def network() -> Iterator[Network]:
    """A new one. Skips the test where that is not allowed."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if _LIBC.unshare(_CLONE_NEWNET):
            pytest.skip("no network namespaces here: they need root")
        descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            ip("link", "set", "lo", "up")
            _enter(before)
            yield Network(descriptor)
        finally:
            _enter(before)
            os.close(descriptor)
    finally:
        os.close(before)


def ip(*arguments: str) -> str:
    """What the command prints, in the network of this thread."""
    done = subprocess.run(["ip", *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return str(done.stdout.decode())


def link(one: Network, other: Network, name: str) -> None:
    """A cable between both; its ends are ``name`` here and there, and up."""
    with one.entered():
        ip("link", "add", name, "type", "veth", "peer", "name", name, "netns", other.path)
    for end in (one, other):
        with end.entered():
            ip("link", "set", name, "up")


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
