"""The performance lab beside this tree, where there is one: an upstream and clients written in C,
and other forwarders with their configurations."""

import importlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gevent
from gevent import socket, subprocess

from nxdns.platform.address import ListenAddress
from tests.bench.measure import ROOT, cpu_seconds
from tests.bench.rig import Loaded, Upstream

LAB_VARIABLE = "NXDNS_LAB"
"""The environment variable that names the lab's folder, if it is not ``../shared/lab``."""

PEERS = ("unbound", "dnsdist", "smartdns", "stubby", "dnss")
FLOOR = "lean8"

_BASE_PORT = "31000"  # not the lab's own, so that both may run
_EXTRA_DOT = 860  # above the base port: further ports for DoT, 15 of them
_EXTRA_PORTS = 15
_CLIENT_SECONDS = 5.0  # a client's patience, as that of stub resolvers (resolv.conf(5))
_START_SECONDS = 5.0


class NoLab(Exception):
    """Why the lab cannot be used; one line."""


def find() -> Path:
    """Its folder. Raises NoLab."""
    folder = Path(os.environ.get(LAB_VARIABLE, ROOT.parent / "shared" / "lab"))
    if not (folder / "lablib.py").is_file():
        raise NoLab(f"no lab in {folder}; {LAB_VARIABLE} names another folder")
    if shutil.which("gcc") is None:
        raise NoLab("the lab needs gcc")
    return folder


class LabRig:
    """The lab's upstream and its load."""

    about = "the lab's upstream and clients, in C"
    tls_name = "dot.lab.test"

    def __init__(self, lab: Path, folder: Path, ending: ExitStack) -> None:
        """``folder`` is for what it builds. Raises NoLab."""
        os.environ.setdefault("LAB_BASE", _BASE_PORT)
        os.environ.setdefault("LAB_RUN", str(folder / "lab"))
        os.environ.setdefault("LAB_PYTHON", sys.executable)
        sys.path.insert(0, str(lab))
        try:
            self._lib: Any = importlib.import_module("lablib")
        finally:
            sys.path.remove(str(lab))
        try:
            self._lib.build()
        except Exception as exc:  # whatever gcc and openssl may lack
            raise NoLab(f"the lab cannot be built: {exc}") from exc
        self._folder = lab
        self.ca_file = str(self._lib.RUN / "tls" / "ca.pem")
        ending.enter_context(self._running())

    @contextmanager
    def _running(self) -> Iterator[None]:
        command = list(self._lib.upstream_cmd())
        if "127.0.53.1:853" in command:  # for a peer that is not among ours, and not twice
            at = command.index("127.0.53.1:853")
            del command[at - 1 : at + 1]
        for port in self._extra_ports():
            command += ["--dot", f"127.0.0.1:{port}"]
        log = self._lib.RUN / "labup.log"
        with log.open("wb") as out:
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            self._wait_for(child, log)
            yield
        finally:
            child.terminate()
            child.wait()

    def _wait_for(self, child: Any, log: Path) -> None:
        ending = time.monotonic() + _START_SECONDS
        while time.monotonic() < ending and child.poll() is None:
            try:
                self._control("stats")
            except OSError:
                gevent.sleep(0.05)
            else:
                return
        raise NoLab(f"the lab's upstream does not answer: {log.read_text().strip()}")

    def _control(self, command: str) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(2.0)
            sock.connect(("127.0.0.1", self._lib.CTL))
            sock.send(command.encode())
            sock.recv(65536)

    def _extra_ports(self) -> range:
        first = self._lib.BASE + _EXTRA_DOT
        return range(first, first + _EXTRA_PORTS)

    def upstream(self, latency_ms: float, *, serial: bool = False, ports: int = 1) -> Upstream:
        self._control("defaults")
        self._control(f"latency {latency_ms:.0f}")
        self._control(f"serial {int(serial)}")
        return Upstream((self._lib.DOT, *self._extra_ports())[:ports], self._lib.DOH)

    def loop(self, server: ListenAddress, in_flight: int, seconds: float) -> Loaded:
        loop = ("-m", "loop", "-c", in_flight, "-l", seconds, "-t", _CLIENT_SECONDS)
        return _loaded(self._lib.labload(server.host, server.port, *loop))

    def burst(self, server: ListenAddress, names: int) -> Loaded:
        return _loaded(self._lib.burst(server.host, server.port, names, timeout=_CLIENT_SECONDS))

    def cpu_seconds(self, process: int) -> float:
        return sum(cpu_seconds(each) for each in self._lib.tree(process))

    def peak_mib(self, process: int) -> float:
        return float(self._lib.rss_peak(process))

    @contextmanager
    def peer(self, name: str) -> Iterator[tuple[int, ListenAddress]]:
        """Another forwarder, or the floor, in front of the upstream: its process and address.

        Raises NoLab when it is not installed or does not start.
        """
        if name != FLOOR and shutil.which(name, path=_search_path()) is None:
            raise NoLab(f"{name} is not installed")
        script = self._folder / ("floors" if name == FLOOR else "peers") / name
        if not script.exists():
            raise NoLab(f"the lab does not know {name}")
        server = self._lib.Server(name, script)
        try:
            try:
                server.start()
            except RuntimeError as exc:
                raise NoLab(str(exc)) from exc
            yield server.pid, ListenAddress(server.host, server.port)
        finally:
            server.stop()


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def _loaded(report: dict[str, Any]) -> Loaded:
    return Loaded(
        answered=report["ok"] + report["other"],
        servfail=report["servfail"],
        lost=report["lost"],
        seconds=report["wall_s"],
        p50_ms=report["p50_ms"],
        p99_ms=report["p99_ms"],
    )
