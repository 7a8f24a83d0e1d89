"""Read typed values out of a TOML document, and collect everything that is wrong with it."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from nxdns.config.lines import Path, key_lines, line_of

_SHOWN = 80  # characters of a value in a message: a line must stay a line


class ConfigError(Exception):
    """A configuration that cannot be used; ``problems`` are lines for its owner."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class Document:
    """One file, and the problems found in it so far."""

    def __init__(self, path: FilePath) -> None:
        """Read and parse the file. Raises ConfigError when there is none, or no TOML in it."""
        self.path = path
        self.problems: list[tuple[int, str]] = []
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as exc:
            raise ConfigError([f"{path}: cannot be read: {exc.strerror}"]) from exc
        except UnicodeDecodeError as exc:
            raise ConfigError([f"{path}: is not UTF-8 text"]) from exc
        try:
            self._values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as exc:
            raise ConfigError([f"{path}: is not TOML: {exc}"]) from exc
        self._lines = key_lines(text)

    def root(self) -> "Table":
        return Table(self, (), self._values)

    def complain(self, path: Path, what: str, shown: str | None = None) -> None:
        """Note what is wrong with the value at ``path``; ``shown`` quotes it, if it may be."""
        line = line_of(path, self._lines)
        where = f"{self.path}:{line}" if line else str(self.path)
        quoted = "" if shown is None else f"{shown}: "
        self.problems.append((line or 0, f"{where}: {dotted(path)}: {quoted}{what}"))

    def raise_problems(self) -> None:
        """Raise ConfigError with every problem noted, in the order of their lines."""
        if self.problems:
            raise ConfigError([text for _, text in sorted(self.problems, key=lambda p: p[0])])


class Table:
    """One table of a document. Each key is taken once; ``finish`` complains of those left."""

    def __init__(self, document: Document, path: Path, values: Mapping[str, Any]) -> None:
        self.document = document
        self.path = path
        self._values = values
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        """Whether the file has it, whatever its value."""
        return key in self._values

    def take_table(self, key: str) -> "Table":
        """The table at ``key``, an empty one when there is none."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            self.complain(key, f"must be a table: write [{key}]", show(value))
            value = {}
        return Table(self.document, (*self.path, key), value)

    def take_tables(self, key: str) -> list["Table"]:
        """The array of tables at ``key``."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.complain(key, f"must be tables, each of them under its own [[{key}]]")
            return []
        return [
            Table(self.document, (*self.path, key, index), item) for index, item in enumerate(value)
        ]

    def take_text(self, key: str, default: str) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            self.complain(key, "must be a string", show(value))
            return default
        return value

    def take_optional_text(self, key: str, *, secret: bool = False) -> str | None:
        """None when it is absent or wrong; a ``secret`` value of a wrong type is not shown."""
        value = self._take(key, None)
        if value is not None and not isinstance(value, str):
            self.complain(key, "must be a string", None if secret else show(value))
            return None
        if value == "":
            self.complain(key, "must not be empty; leave the key out", "''")
        return value or None

    def take_texts(self, key: str, default: Sequence[str]) -> list[str]:
        value = self._take(key, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.complain(key, "must be a list of strings", show(value))
            return list(default)
        return list(value)

    def take_integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.complain(key, f"must be a whole number from {low} to {high}", show(value))
            return default
        if not low <= value <= high:
            self.complain(key, f"must be from {low} to {high}", show(value))
            return default
        return value

    def take_flag(self, key: str, *, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            self.complain(key, "must be true or false", show(value))
            return default
        return value

    def take_choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        value = self._take(key, default)
        if value not in choices:
            self.complain(key, f"must be one of {', '.join(choices)}", show(value))
            return default
        return str(value)

    def finish(self) -> None:
        """Complain of keys that nobody has taken; their values are not shown, as secrets may be."""
        for key in self._values:
            if key in self._known:
                continue
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self._known)}"
            self.complain(key, f"unknown key; {hint}")

    def complain(self, key: str, what: str, shown: str | None = None) -> None:
        self.document.complain((*self.path, key), what, shown)

    def _take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        return self._values.get(key, default)


def dotted(path: Path) -> str:
    """``("upstreams", 0, "url")`` as ``upstreams[0].url``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def show(value: object) -> str:
    """A value as a message quotes it: on one line, and not too much of it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
