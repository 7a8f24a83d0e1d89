"""What went wrong between the web server and its clients, by reason."""

import enum

from nxdns.snapshots import HttpSnapshot


class Reason(enum.Enum):
    """Why a connection came to nothing. The value is the label on every surface: keep it stable."""

    BAD_HOST = "bad_host"  # neither an address nor localhost nor an allowed name, or none at all
    BAD_HEAD = "bad_head"  # not HTTP, or ended within
    HEAD_TOO_LARGE = "head_too_large"
    HEAD_TIMEOUT = "head_timeout"
    BAD_METHOD = "bad_method"
    BODY = "body"  # a request that has one
    RESPONSE_TIMEOUT = "response_timeout"  # made, or taken, too slowly
    CONNECTION = "connection"  # reset, or closed before the response was taken
    ACCEPT = "accept"
    INTERNAL = "internal"  # a bug of ours; it is in the log


class Troubles:
    """Counts them."""

    def __init__(self) -> None:
        self.rejected_at_capacity = 0
        self._errors = dict.fromkeys(Reason, 0)

    def count(self, reason: Reason) -> None:
        self._errors[reason] += 1

    def snapshot(self) -> HttpSnapshot:
        """A frozen copy; every reason is in it."""
        errors = {reason.value: count for reason, count in self._errors.items()}
        return HttpSnapshot(self.rejected_at_capacity, errors)
