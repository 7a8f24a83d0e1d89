"""Where the episodes are kept."""

import os

FILE_NAME = "events.db"


def locate(configured: str) -> str:
    """The path of the file: the configured one, else in systemd's state directory, else "".

    "" is memory: the episodes are gone with the process.
    """
    if configured:
        return configured
    # systemd.exec(5): more than one are separated by colons.
    folder = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return os.path.join(folder, FILE_NAME) if folder else ""
