"""Python's cyclic garbage collector, for a process that has started and now serves."""

import gc


def settle() -> None:
    """Let the collector not look again at what there is now, which stays.

    The path of a query makes no cycles and hardly ever wakes the collector. Scrapes and pages do,
    and a full collection over all modules would hold every query up for as long as it takes.
    """
    gc.collect()
    gc.freeze()
