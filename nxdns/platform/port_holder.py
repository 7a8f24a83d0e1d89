"""Who has a port that we would like to have, as far as /proc tells it.

To be asked only when something went wrong: it reads what every process has open.
"""

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nxdns.platform.address import ListenAddress

_RESOLVED = "systemd-resolve"  # a command's name has 15 characters in /proc; its user's is the same
_FREE_RESOLVED = (
    'to free it, put the lines "[Resolve]" and "DNSStubListener=no" into '
    "/etc/systemd/resolved.conf.d/nxdns.conf, then: systemctl restart systemd-resolved"
)

# proc(5): sl local remote st queues tr:when retrnsmt uid timeout inode
_LOCAL, _STATE, _UID, _INODE = 1, 3, 7, 9
_USERS = Path("/etc/passwd")
_LISTENING = "0A"  # TCP_LISTEN


class PortSocket(NamedTuple):
    """A socket of this machine."""

    inode: int
    uid: int


def in_the_way(address: ListenAddress, protocol: str) -> list[PortSocket]:
    """The sockets for which ``address`` cannot be bound; ``protocol`` is ``udp`` or ``tcp``.

    Of TCP those that listen. The most likely one comes first.
    """
    found = _near(address, protocol)
    return [socket for state, socket in found if protocol == "udp" or state == _LISTENING]


def _near(address: ListenAddress, protocol: str) -> list[tuple[str, PortSocket]]:
    found = [
        (state, socket)
        for host, state, socket in _sockets(protocol, address.port)
        if ListenAddress(address.host.partition("%")[0], address.port).overlaps(
            ListenAddress(host, address.port)
        )
    ]
    if not address.is_ipv6:
        # A socket of both families has IPv4 as well; which do is not told, so these come last.
        found += [
            (state, socket)
            for host, state, socket in _sockets(protocol, address.port)
            if host == "::" or host == f"::ffff:{address.host}"
        ]
    return found


def holder(address: ListenAddress, *protocols: str) -> str:
    """Whoever has the port of ``address``, such as ``dnsmasq (pid 812)``; others before ourselves.

    Of systemd-resolved, also how to make it let the port go.
    """
    own = _sockets_of("self")
    ours = False
    for protocol in protocols:
        # Those of TCP that do not listen may be what is left of a server that has ended.
        rest = [socket for _, socket in _near(address, protocol)]
        for socket in (*in_the_way(address, protocol), *rest):
            if not socket.inode:
                continue
            if socket.inode not in own:
                return _owner(socket, _process_with(socket.inode))
            ours = True
    return "nxdns itself" if ours else "another program"


def _owner(socket: PortSocket, pid: int | None) -> str:
    if pid is not None and (name := _command(pid)):
        if name == _RESOLVED:
            return f"systemd-resolved (pid {pid}); {_FREE_RESOLVED}"
        return f"{name} (pid {pid})"
    # Others' processes are hidden from those that are not root, and in a container.
    user = _user(socket.uid)
    if user == _RESOLVED:
        return f"systemd-resolved; {_FREE_RESOLVED}"
    return f"a program of user {user}"


def _sockets(protocol: str, port: int) -> Iterator[tuple[str, str, PortSocket]]:
    """The local host, the state and the socket of each that is bound to ``port``."""
    suffix = f":{port:04X}"
    for table in (f"/proc/net/{protocol}", f"/proc/net/{protocol}6"):
        try:
            text = Path(table).read_text(encoding="ascii")
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            if suffix not in line:
                continue
            fields = line.split()
            if len(fields) > _INODE and fields[_LOCAL].endswith(suffix):
                host = _host(fields[_LOCAL].removesuffix(suffix))
                yield host, fields[_STATE], PortSocket(int(fields[_INODE]), int(fields[_UID]))


def _host(digits: str) -> str:
    """Words of 32 bits, each as this machine has it in memory."""
    words = [int(digits[start : start + 8], 16) for start in range(0, len(digits), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = getattr(address, "ipv4_mapped", None)
    return f"::ffff:{mapped}" if mapped else str(address)


def _process_with(inode: int) -> int | None:
    """The process that has the socket open, if we may know."""
    # Services are started early, so they are found early.
    for pid in sorted(int(name) for name in _names("/proc") if name.isdecimal()):
        if inode in _sockets_of(str(pid)):
            return pid
    return None


def _sockets_of(process: str) -> set[int]:
    """The inodes of the sockets that it has open."""
    inodes = set()
    for descriptor in _names(f"/proc/{process}/fd"):
        try:
            target = os.readlink(f"/proc/{process}/fd/{descriptor}")
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(int(target[len("socket:[") : -1]))
    return inodes


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it has ended, or is not for us to see


def _command(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return ""
    # A process may call itself anything, and this becomes a part of one line.
    return "".join(each if each.isprintable() else "?" for each in name)


def _user(uid: int) -> str:
    """Not by getpwuid, which may ask the network."""
    try:
        lines = _USERS.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, *rest = line.split(":")
        if len(rest) > 1 and rest[1] == str(uid):
            return name
    return str(uid)
