"""Units of time. Inside, it is integer nanoseconds; gevent takes seconds, people give ms."""

from typing import Final

NS_PER_MS: Final = 1_000_000
NS_PER_SECOND: Final = 1_000_000_000
MS_PER_SECOND: Final = 1_000

# The shortest sleep in which the event loop looks at its sockets. One of 0 only lets greenlets run
# that are ready already, and queries that have come wait on.
TURN_SECONDS: Final = 1e-6
