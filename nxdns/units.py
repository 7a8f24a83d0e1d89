"""Units of time. Inside, it is integer nanoseconds; gevent takes seconds, people give ms."""

NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000
MS_PER_SECOND = 1_000
