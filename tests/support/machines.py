"""Networks of a test's own: two machines and a cable between them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from tests.support.waiting import eventually

LINK = "lan"
"""What each of the two calls its end of the cable."""

_PROGRAMS = ("unshare", "nsenter", "ip", "dig")


class Machine:
    """A network namespace, which lasts as long as a process in it."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def inside(self) -> list[str]:
        """Before a command: runs it there."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net"]

    def try_run(self, *command: str) -> Any:
        """Run a command to its end; its output and status are for the test to judge."""
        return subprocess.run([*self.inside, *command], capture_output=True, text=True, check=False)

    def run(self, *command: str) -> str:
        """What the command prints; fails the test when it fails."""
        done = self.try_run(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return str(done.stdout)

    def ip(self, command: str) -> str:
        """ip(8), its words separated by blanks."""
        return self.run("ip", *command.split())

    @property
    def link_local(self) -> str:
        """The link-local address of its end of the cable."""
        words = self.ip(f"-6 -o addr show dev {LINK} scope link").split()
        return words[words.index("inet6") + 1].partition("/")[0]


def _namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


@contextmanager
def _machine() -> Iterator[Machine]:
    process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stderr=subprocess.PIPE)
    try:
        ours = _namespace_of(os.getpid())
        eventually(lambda: process.poll() is not None or _namespace_of(process.pid) != ours)
        if process.poll() is not None:
            _cannot(process.stderr.read().decode())
        machine = Machine(process)
        # Duplicates are not looked for, or each address would wait for a second or two.
        for which in ("default", "all"):
            machine.try_run("sh", "-c", f"echo 0 >/proc/sys/net/ipv6/conf/{which}/accept_dad")
        machine.ip("link set lo up")
        yield machine
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Joined by a cable. Skips the test where that is not allowed, or fails where it must be."""
    if os.geteuid():
        _cannot("only root may make networks")
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            _cannot(f"there is no {program}; Debian has it")
    if not Path("/proc/self/ns/net").exists():
        _cannot("this kernel has no network namespaces")
    with ExitStack() as both:
        one, two = both.enter_context(_machine()), both.enter_context(_machine())
        joined = one.try_run(
            *f"ip link add {LINK} type veth peer name {LINK} netns {two.pid}".split()
        )
        if joined.returncode:
            _cannot(f"no cable: {joined.stderr}")
        for each in (one, two):
            each.ip(f"link set {LINK} up")
        yield one, two


def _cannot(why: str) -> None:
    (pytest.fail if os.environ.get("NXDNS_NAMESPACE_REQUIRED") else pytest.skip)(why)
