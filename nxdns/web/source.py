"""What the web surface asks of the rest."""

from typing import Protocol

from nxdns.snapshots import EpisodeSnapshot, FlightSnapshot, Overview


class Source(Protocol):
    """Everything that is shown, as frozen values."""

    def overview(self) -> Overview:
        """Everything, as it is now. Never waits."""

    def flight(self, index: int) -> tuple[FlightSnapshot, ...]:
        """The last exchanges of one upstream, the newest first. Never waits."""

    def episodes(self, limit: int) -> tuple[EpisodeSnapshot, ...]:
        """The open ones, then at most ``limit`` resolved ones. May wait for the disk."""
