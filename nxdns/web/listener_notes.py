"""What a listener has dropped, or the kernel before it. Pure."""

from nxdns.snapshots import ListenerSnapshot
from nxdns.web.notes import Note, Severity

_DROPPED_MUCH = 0.001  # of what was received


def notes_on_listener(listener: ListenerSnapshot) -> list[Note]:
    """All of it is counted since the start."""
    return [*_drops(listener), *_refused(listener)]


def _drops(listener: ListenerSnapshot) -> list[Note]:
    received = listener.udp.get("received", 0)
    kernel = listener.udp_kernel_drops or 0
    no_slot = listener.udp.get("dropped_no_slot", 0)
    rejected = listener.tcp.get("rejected_at_capacity", 0)
    notes = []
    if kernel:
        notes.append(
            Note(
                f"kernel-drops {listener.address}",
                _much(kernel, received + kernel),
                f"The kernel dropped {kernel} queries to {listener.address}",
                "They came faster than this machine could read them, and its buffer was full. "
                "Clients that got no answer ask again. Counted since the start.",
                "If it grows: allow a larger buffer (sysctl net.core.rmem_max=1048576, and restart "
                "nxdns), and look what else keeps this machine busy.",
            )
        )
    if no_slot:
        notes.append(
            Note(
                f"no-slot {listener.address}",
                _much(no_slot, received),
                f"{no_slot} queries to {listener.address} were dropped",
                f"{listener.udp_capacity} were being answered already. Clients that got no answer "
                "ask again. Counted since the start.",
                "If it grows, the upstreams are slow, see there, or one device asks without end.",
            )
        )
    if rejected:
        accepted = listener.tcp.get("accepted", 0)
        notes.append(
            Note(
                f"tcp-capacity {listener.address}",
                _much(rejected, accepted + rejected),
                f"{rejected} TCP connections to {listener.address} were closed",
                f"{listener.tcp_capacity} were open already. Counted since the start.",
                "If it grows, find the device that opens so many.",
            )
        )
    return notes


def _refused(listener: ListenerSnapshot) -> list[Note]:
    queries = listener.udp.get("dropped_not_allowed", 0)
    connections = listener.tcp.get("rejected_not_allowed", 0)
    if not queries and not connections:
        return []
    received = listener.udp.get("received", 0)
    accepted = listener.tcp.get("accepted", 0)
    shown = " and ".join(
        _plural(count, what)
        for count, what in ((queries, "UDP query"), (connections, "TCP connection"))
        if count
    )
    return [
        Note(
            f"not-allowed {listener.address}",
            _much(queries + connections, received + accepted + connections),
            f"{shown} to {listener.address} came from clients that may not ask",
            "Their addresses are not in allow under [server], so they get no answer. Whose they "
            "were is not kept. Counted since the start.",
            "If a device of yours gets no answer, add the prefix of its network to allow under "
            '[server], beside "private" and "on-link", and reload: these do not mean a public '
            "network behind another router, nor 100.64.0.0/10, which some VPNs use. If all of them "
            "get answers, it was strangers: let a firewall keep them away from this port.",
        )
    ]


def _plural(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"


def _much(count: int, of: int) -> Severity:
    return "warning" if count > _DROPPED_MUCH * of else "info"
