"""The file of episodes, read by somebody else than the process that writes it. Blocking."""

import sqlite3
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

from nxdns.storage.database import Episode

_COLUMNS = ", ".join(field.name for field in fields(Episode))
# A writer does not keep a reader waiting, but at the very start and end of its life.
_BUSY_SECONDS = 2.0


def read_episodes(path: str, limit: int) -> list[Episode]:
    """The open episodes, then at most ``limit`` resolved ones, each the newest first.

    Changes nothing, whoever asks and whether or not nxdns runs. Raises OSError, sqlite3.Error.
    """
    Path(path).open("rb").close()  # it says what sqlite3 would not: is it absent, is it forbidden
    # Without its -wal nobody has the file open, or ever wrote to it. To read it in the usual way
    # would then leave files beside it, or fail where that is forbidden.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    uri = f"file:{quote(str(Path(path).absolute()))}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)
    try:
        return [
            Episode(*row)
            for clause, values in (
                ("WHERE resolved_at IS NULL ORDER BY opened_at DESC, id DESC", ()),
                (
                    "WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, id DESC LIMIT ?",
                    (limit,),
                ),
            )
            for row in connection.execute(f"SELECT {_COLUMNS} FROM episodes {clause}", values)
        ]
    finally:
        connection.close()
