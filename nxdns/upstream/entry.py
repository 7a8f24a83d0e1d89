"""One upstream in the pool: what the configuration says of it, and what carries its exchanges."""

from nxdns.upstream.history import History
from nxdns.upstream.slots import Slots
from nxdns.upstream.transport import Endpoint


class Entry:
    """One upstream in the pool."""

    __slots__ = ("enabled", "endpoint", "health", "history", "label", "priority", "slots")

    def __init__(
        self,
        endpoint: Endpoint,
        label: str,
        slots: Slots,
        *,
        priority: int,
        enabled: bool,
        history: History,
    ) -> None:
        self.endpoint = endpoint
        self.label = label
        self.slots = slots
        self.priority = priority
        self.enabled = enabled
        #: Of the upstream and not of this entry: a reload hands it on.
        self.history = history
        self.health = history.health
