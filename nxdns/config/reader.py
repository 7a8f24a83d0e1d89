"""Read typed values out of a TOML document, and collect everything that is wrong with it."""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from nxdns.config.lines import Path, key_lines, line_of
from nxdns.upstream.endpoint import redact_text

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")  # what TOML lets stand without quotes
_MOST_BITS = 64  # what TOML promises for an integer; Python would print more, or refuse to
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
        except RecursionError as exc:
            raise ConfigError([f"{path}: is nested too deeply to be read"]) from exc
        except ValueError as exc:  # tomllib's own, and int's for numbers beyond all sense
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

    def take_tables(self, key: str) -> list["Table"] | None:
        """The array of tables at ``key``, empty when there is none; None when it is wrong."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.complain(key, f"must be tables, each of them under its own [[{key}]]")
            return None
        return [
            Table(self.document, (*self.path, key, index), item) for index, item in enumerate(value)
        ]

    def take_text(self, key: str, default: str) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            self.complain(key, "must be a string", show(value))
            return default
        return value

    def take_optional_text(
        self,
        key: str,
        *,
        empty: str = "must not be empty; leave the key out",
        secret: bool = False,
    ) -> str | None:
        """None when it is absent, empty or wrong; a ``secret`` of a wrong type is not shown."""
        value = self._take(key, None)
        if value == "":
            self.complain(key, empty, show(value))
            return None
        if value is not None and not isinstance(value, str):
            self.complain(key, "must be a string", None if secret else show(value))
            return None
        return value

    def take_texts(self, key: str, default: Sequence[str]) -> list[str]:
        value = self._take(key, list(default))
        if not isinstance(value, list):
            self.complain(key, "must be a list of strings", show(value))
            return list(default)
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) < len(value):
            self.complain(key, "must be a list of strings", show(value))
        return texts if texts or not value else list(default)

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
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _BARE_KEY.fullmatch(step) else show(step))
    return text


def show(value: object) -> str:
    """A value as a message quotes it: on one line, not too much of it, and no secret of a URL."""
    match value:
        case dict():
            return "a table"
        case list() if any(isinstance(item, dict | list) for item in value):
            return "a list"
        case list():
            text = "[" + ", ".join(map(show, value)) + "]"
        case str() if "://" in value:
            text = repr(redact_text(value))
        case int() if value.bit_length() > _MOST_BITS:
            return "a number beyond 64 bits"
        case _:
            text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
