"""``nxdns episodes``: what is wrong, and what was."""

import argparse
import http.client
import json
import shutil
import sqlite3
import sys
import textwrap
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nxdns.cli import config_file
from nxdns.config import Config
from nxdns.platform.address import ListenAddress
from nxdns.storage.database import Episode
from nxdns.storage.location import FILE_NAME, locate
from nxdns.storage.reading import read_episodes
from nxdns.upstream.exchange import Phase
from nxdns.upstreams import StartError

_RESOLVED = 50  # two screens; --json and a database browser are for those who want more
_WEB_SECONDS = 5.0
# systemd gives a service with DynamicUser the second; for it, and for root, the first leads there.
_STATE_DIRECTORIES = (Path("/var/lib/nxdns"), Path("/var/lib/private/nxdns"))

_HEADER = ("STATE", "OPENED", "LASTED", "TIMES", "WHAT")
_WIDTHS = (8, 20, 7, 5)
_GAP = "  "
_WHAT_COLUMN = sum(_WIDTHS) + len(_GAP) * len(_WIDTHS)
_LEAST_WHAT = 20  # columns; on a terminal that has no room even for these, lines wrap


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "episodes",
        help="show what is wrong, and what was",
        description="Show the episodes: while one is open, an upstream is not trusted. They are "
        "read from the store, else asked of the nxdns that runs, at its web address.",
        epilog="example: nxdns episodes --config /etc/nxdns/nxdns.toml",
    )
    config_file.add_option(verb)
    verb.add_argument("--json", action="store_true", help="for programs, with the flight records")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = config_file.load_from(options)
    episodes, source = _read(config)
    if options.json:
        print(json.dumps({"episodes": [_as_json(each) for each in episodes]}, indent=2))
        return 0
    # What is piped to another program is a line for each episode.
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table(episodes, time.time(), columns):
        print(line)
    still_open = sum(each.resolved_at is None for each in episodes)
    print(f"{still_open} open, {len(episodes) - still_open} resolved; from {source}")
    return 0


def table(episodes: Sequence[Episode], now: float, columns: int | None) -> list[str]:
    """Lines of at most ``columns``, in the order given; nothing for no episode."""
    if not episodes:
        return []
    lines = _row(_HEADER, columns)
    for episode in episodes:
        end = now if episode.resolved_at is None else episode.resolved_at
        cells = (
            "open" if episode.resolved_at is None else "resolved",
            _time(episode.opened_at),
            _duration(end - episode.opened_at),
            str(episode.occurrences),
            _printable(episode.detail),
        )
        lines += _row(cells, columns)
    return lines


def _row(cells: Sequence[str], columns: int | None) -> list[str]:
    *facts, what = cells
    wrapped = [what]
    if columns is not None:
        wrapped = textwrap.wrap(what, max(columns - _WHAT_COLUMN, _LEAST_WHAT)) or [""]
    # Numbers to the right, so that a long one is seen to be so.
    aligned = [
        fact.rjust(width) if number >= 2 else fact.ljust(width)
        for number, (fact, width) in enumerate(zip(facts, _WIDTHS, strict=True))
    ]
    head = _GAP.join(aligned) + _GAP
    return [(head if not i else " " * len(head)) + part for i, part in enumerate(wrapped)]


def _duration(seconds: float) -> str:
    """The two units that matter: ``4.2 s``, ``2m 13s``, ``3h 05m``, ``12d 4h``."""
    rounded = round(max(seconds, 0.0), 1)
    if rounded < 60:
        return f"{rounded:.1f} s"
    minutes, rest = divmod(int(rounded), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02}m"
    days, hours = divmod(hours, 24)
    # A clock that was wrong can make it decades, which still have to fit their column.
    return f"{days}d {hours}h" if days < 1000 else f"{days}d"


def _printable(text: str) -> str:
    """A terminal does as control characters say."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _time(seconds: float) -> str:
    """As in the log."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rfc3339(seconds: float) -> str:
    exact = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return exact.replace("+00:00", "Z")


def _as_json(episode: Episode) -> dict[str, object]:
    resolved = episode.resolved_at
    return {
        "code": episode.code,
        "subject": episode.subject,
        "detail": episode.detail,
        "opened_at": _rfc3339(episode.opened_at),
        "last_seen": _rfc3339(episode.last_seen),
        "resolved_at": None if resolved is None else _rfc3339(resolved),
        "occurrences": episode.occurrences,
        "flight": [_record(each) for each in json.loads(episode.flight or "[]")],
    }


def _record(flight: dict[str, Any]) -> dict[str, Any]:
    """As the API has it: the store keeps the phases in their order, without their names."""
    phases = flight["phase_seconds"]
    if not isinstance(phases, list):
        return flight
    names = [phase.label for phase in Phase]
    return flight | {"phase_seconds": dict(zip(names, phases, strict=True))}


def _read(config: Config) -> tuple[list[Episode], str]:
    """The episodes, the open ones first, and where they are from.

    Raises StartError when there are none to be had anywhere.
    """
    in_vain: list[str] = []
    for path in _stores(config):
        try:
            return read_episodes(path, _RESOLVED), path
        except (OSError, sqlite3.Error) as exc:
            in_vain.append(f"{path}: {_reason(exc)}")
    if config.web.listen is None:
        in_vain.append("[web] listen is empty")
    elif not config.web.listen.port:
        in_vain.append("[web] listen has port 0, which may be any")
    else:
        url = f"http://{_reachable(config.web.listen)}/api/diagnostics"
        try:
            return _ask(config.web.listen), url
        except (OSError, http.client.HTTPException, ValueError) as exc:
            in_vain.append(f"{url}: {_reason(exc)}")
    raise StartError(f"no episodes to read: {'; '.join(in_vain)}")


def _stores(config: Config) -> list[str]:
    """Where the store may be; the one that the configuration names, or systemd, is the one."""
    path = locate(config.storage_path)
    return [path] if path else [str(folder / FILE_NAME) for folder in _STATE_DIRECTORIES]


def _reason(exc: Exception) -> str:
    text = (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
    return text[:1].lower() + text[1:]


def _reachable(listen: ListenAddress) -> ListenAddress:
    """Where a server that listens on all addresses can be asked."""
    if not listen.is_wildcard:
        return listen
    return ListenAddress("::1" if listen.is_ipv6 else "127.0.0.1", listen.port)


def _ask(listen: ListenAddress) -> list[Episode]:
    """Those of the nxdns that runs. Raises OSError, HTTPException, ValueError."""
    address = _reachable(listen)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_WEB_SECONDS)
    try:
        connection.request("GET", "/api/diagnostics", headers={"Host": str(address)})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise ValueError(f"it answers {response.status} {response.reason}")
    try:
        return [_of_api(each) for each in json.loads(body)["episodes"]]
    except (KeyError, TypeError, ValueError) as exc:
        raise ValueError("its answer is not that of nxdns") from exc


def _of_api(episode: dict[str, Any]) -> Episode:
    resolved = episode["resolved_at"]
    return Episode(
        code=str(episode["code"]),
        subject=str(episode["subject"]),
        detail=str(episode["detail"]),
        opened_at=_seconds(episode["opened_at"]),
        last_seen=_seconds(episode["last_seen"]),
        resolved_at=None if resolved is None else _seconds(resolved),
        occurrences=int(episode["occurrences"]),
        flight=json.dumps(episode.get("flight", [])),
    )


def _seconds(rfc3339: str) -> float:
    return datetime.fromisoformat(rfc3339).timestamp()
