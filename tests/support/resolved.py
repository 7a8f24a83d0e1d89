"""systemd-resolved itself, which is told to ask us, in a network and with an /etc of its own."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gevent import subprocess

from tests.support.namespaces import Network
from tests.support.process import Child
from tests.support.served import PATIENCE_SECONDS, cannot
from tests.support.waiting import eventually

_FOLDER = "NXDNS_RESOLVED"
"""What its package and that of its library are unpacked in, where they are not installed."""

_STUB = "127.0.0.53"
_USER = "systemd-resolve"  # which it becomes; its package would have made it
_NOBODY = 65534
_SETTINGS = """[Resolve]
DNS={server}
FallbackDNS=
DNSSEC=no
DNSOverTLS=no
MulticastDNS=no
LLMNR=no
Cache=no
ReadEtcHosts=no
"""

# Where /etc/resolv.conf is a link into /run, what it leads to is written by resolved: /run is
# hidden last. Without the machine's /run there is no system bus, on which resolved would be found.
_SCRIPT = """
for each in resolv.conf nsswitch.conf passwd group; do
    [ ! -e /etc/$each ] || mount --bind "$1/$each" /etc/$each || exit
done
mount --bind "$1/systemd" /etc/systemd && mount -t tmpfs none /run && mkdir /run/systemd || exit
shift
exec "$@"
"""


@dataclass
class Told:
    """What resolved has said of its work, for those who debug it."""

    log: str = ""

    @property
    def levels(self) -> set[str]:
        """How it has asked us: with EDNS, if nothing speaks against it."""
        return set(re.findall(r"Using feature level (\S+) for transaction", self.log))


class Resolved:
    """One that runs."""

    def __init__(self, process: Child, where: Network) -> None:
        self._process = process
        self._inside = ["nsenter", f"--net={where.path}", f"--mount=/proc/{process.pid}/ns/mnt"]
        self._marks = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, *command: str) -> Any:
        """Run a command to its end where resolved is what /etc/resolv.conf names."""
        return subprocess.run(
            [*self._inside, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def dig(self, *words: str) -> str:
        """What dig prints when it asks resolved's own listener."""
        asked = self.run("dig", f"@{_STUB}", "+tries=1", f"+timeout={PATIENCE_SECONDS}", *words)
        assert asked.returncode == 0, asked.stdout + asked.stderr + self._process.stderr
        return str(asked.stdout)

    def getent(self, name: str) -> set[str] | None:
        """The addresses of both families that glibc has from resolved; None: no such name."""
        asked = self.run("getent", "ahosts", name)
        if asked.returncode == 2:
            return None
        assert asked.returncode == 0, asked.stderr + self._process.stderr
        return {line.split()[0] for line in asked.stdout.splitlines()}

    @contextmanager
    def trusting(self) -> Iterator[Told]:
        """What is asked in it leaves resolved with no doubt of what we can; see ``Told`` after."""
        told = Told()
        before = len(self._process.stderr)
        yield told
        # It answers for names below localhost by itself. Once it says so of this one, we have read
        # all that it has said before.
        self._marks += 1
        mark = f"mark{self._marks}.localhost"
        self.dig(mark)
        eventually(lambda: f"for {mark} " in self._process.stderr, seconds=PATIENCE_SECONDS)
        told.log = self._process.stderr[before:]
        for doubt in ("downgrad", "degraded feature set", "resetting all probed"):
            assert doubt not in told.log.lower(), told.log

    def wait_until_it_answers(self) -> None:
        def answers() -> bool:
            if not self._process.running:
                cannot(f"no systemd-resolved runs here: {self._process.wait().stderr}")
            return "127.0.0.1" in self.run("dig", f"@{_STUB}", "+short", "localhost").stdout

        eventually(answers, seconds=PATIENCE_SECONDS)


def _program() -> tuple[Path, dict[str, str]]:
    """Where it is, and the environment in which it finds its library."""
    if folder := os.environ.get(_FOLDER):
        libraries = {str(each.parent) for each in Path(folder).rglob("libsystemd-shared-*.so")}
        environment = {"LD_LIBRARY_PATH": ":".join(sorted(libraries))} if libraries else {}
        for program in Path(folder).rglob("systemd/systemd-resolved"):
            return program.absolute(), environment
    installed = Path("/lib/systemd/systemd-resolved")
    if not installed.exists():
        cannot(f"there is no {installed}; Debian has it, and {_FOLDER} may name where else")
    return installed, {}


def _etc(folder: Path, server: str) -> Path:
    etc = folder / "etc"
    (etc / "systemd").mkdir(parents=True)
    (etc / "systemd").chmod(0o755)  # whatever the umask: it reads its settings as _USER
    for name, text in {
        "systemd/resolved.conf": _SETTINGS.format(server=server),
        "resolv.conf": f"nameserver {_STUB}\noptions timeout:{PATIENCE_SECONDS} attempts:1\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: dns\n",
        "passwd": f"root:x:0:0::/:/bin/sh\n{_USER}:x:{_NOBODY}:{_NOBODY}::/:/bin/false\n",
        "group": f"root:x:0:\n{_USER}:x:{_NOBODY}:\n",
    }.items():
        (etc / name).write_text(text, encoding="ascii")
        (etc / name).chmod(0o644)
    return etc


@contextmanager
def resolved(folder: Path, where: Network, server: str) -> Iterator[Resolved]:
    """Running in ``where`` until the block ends, and asking ``server``, as ``192.0.2.1:53``.

    It asks nobody, not even on loopback, unless ``where`` has a link that is up and has an address.
    """
    program, environment = _program()
    process = Child(
        subprocess.Popen(
            [
                *("nsenter", f"--net={where.path}", "unshare", "--mount"),
                *("sh", "-c", _SCRIPT, "sh", str(_etc(folder, server)), str(program)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "SYSTEMD_LOG_LEVEL": "debug",
                "SYSTEMD_LOG_TARGET": "console",
                **environment,
            },
        )
    )
    try:
        running = Resolved(process, where)
        running.wait_until_it_answers()
        yield running
    finally:
        process.close()
