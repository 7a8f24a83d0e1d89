"""Who holds how many of a listener's connections, and who gives way when all are taken."""

from collections.abc import Iterator

from nxdns.server.tcp_connection import Connection


class Places:
    """A bounded number of connections, by the address of the client."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self._holders: dict[str, set[Connection]] = {}

    @property
    def full(self) -> bool:
        return self.taken >= self.size

    def __iter__(self) -> Iterator[Connection]:
        for held in self._holders.values():
            yield from held

    def take(self, connection: Connection) -> None:
        """The caller has seen that there is room."""
        self._holders.setdefault(connection.address, set()).add(connection)
        self.taken += 1

    def leave(self, connection: Connection) -> bool:
        """False when it had left before."""
        held = self._holders.get(connection.address, set())
        if connection not in held:
            return False
        held.remove(connection)
        if not held:
            del self._holders[connection.address]
        self.taken -= 1
        return True

    def to_give_way(self, newcomer: str) -> Connection | None:
        """Whose place a client at ``newcomer`` may have: of those that hold more than it, the one
        that holds most and has a connection that nothing is asked on; there the longest idle one.
        """
        own = len(self._holders.get(newcomer, ()))
        more = [held for held in self._holders.values() if len(held) > own]
        for held in sorted(more, key=len, reverse=True):
            # A message that has begun may be whole in a moment; it goes only if all have begun.
            quiet = [each for each in held if not each.busy]
            for each in sorted(quiet, key=lambda each: (each.begun, each.quiet_since())):
                if not each.has_unread():
                    return each
        return None
