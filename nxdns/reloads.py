"""What became of the reloads."""

from collections.abc import Callable, Collection, Sequence

from nxdns.snapshots import ReloadSnapshot


class Reloads:
    """Counts them, and keeps the problems of the last one."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """``wall`` gives seconds since 1970; the start counts as a success, but not as a reload."""
        self._wall = wall
        self._ok = 0
        self._failed = 0
        self._last_ok = True
        self._last_at = wall()
        self._problems: tuple[str, ...] = ()

    def succeeded(self, wanting: Sequence[str]) -> None:
        """``wanting`` is what of the file does not apply now, and why; a line each."""
        self._ok += 1
        self._end(wanting, ok=True)

    def failed(self, problems: Sequence[str]) -> None:
        """``problems`` are a line each."""
        self._failed += 1
        self._end(problems, ok=False)

    def mended(self, problems: Collection[str]) -> None:
        """Some of the last one have gone away by themselves."""
        self._problems = tuple(each for each in self._problems if each not in problems)

    def _end(self, problems: Sequence[str], *, ok: bool) -> None:
        self._last_ok = ok
        self._last_at = self._wall()
        self._problems = tuple(problems)

    def snapshot(self) -> ReloadSnapshot:
        """A frozen copy."""
        return ReloadSnapshot(self._ok, self._failed, self._last_ok, self._last_at, self._problems)
