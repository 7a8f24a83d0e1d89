"""Say a thing once a minute, however often it happens; the counters tell how often."""

MINUTE_NS = 60_000_000_000
# A kind is a word of ours with at most an errno's name behind it, so there are few; the bound
# holds even if one day a kind is made of what a peer sends.
_MAX_KINDS = 256


class LogLimit:
    """Whether a kind of event may be logged now. Pure: the caller brings the time."""

    __slots__ = ("_interval_ns", "_last")

    def __init__(self, interval_ns: int = MINUTE_NS) -> None:
        self._interval_ns = interval_ns
        self._last: dict[str, int] = {}

    def allows(self, kind: str, now_ns: int) -> bool:
        """True for the first ``kind`` of each interval."""
        last = self._last.get(kind)
        if last is not None and now_ns - last < self._interval_ns:
            return False
        if len(self._last) >= _MAX_KINDS:
            self._last.clear()
        self._last[kind] = now_ns
        return True
