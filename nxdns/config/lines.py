"""On which line of a TOML text each key stands. Pure.

tomllib says where a text is no TOML, but not where a key of a good one is, which is what the
owner of a wrong value needs. This reads only texts that tomllib has accepted, so it need not
refuse anything; what it cannot place (keys of inline tables) has the line of the key around it.
"""

import re
import tomllib
from collections.abc import Iterator

Path = tuple[str | int, ...]

_BARE_OR_QUOTED = r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'"""
_KEYS = rf"(?:{_BARE_OR_QUOTED})(?:\s*\.\s*(?:{_BARE_OR_QUOTED}))*"
_ARRAY_HEADER = re.compile(rf"\s*\[\[\s*({_KEYS})\s*\]\]")
_TABLE_HEADER = re.compile(rf"\s*\[\s*({_KEYS})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_KEYS})\s*=")
_DELIMITERS = ('"""', "'''", '"', "'")


def key_lines(text: str) -> dict[Path, int]:
    """The line, from 1, of every key and table header: ``("upstreams", 0, "url")`` is on line 9."""
    lines: dict[Path, int] = {}
    tables_of: dict[Path, int] = {}
    table: Path = ()
    value = _OpenValue()
    for number, line in enumerate(text.split("\n"), start=1):
        if value.is_open:
            value.scan(line)
        elif match := _ARRAY_HEADER.match(line):
            array = _inside_arrays(_keys(match[1]), tables_of)
            tables_of[array] = tables_of.get(array, 0) + 1
            table = (*array, tables_of[array] - 1)
            lines.setdefault(array, number)
            lines[table] = number
        elif match := _TABLE_HEADER.match(line):
            table = _inside_arrays(_keys(match[1]), tables_of)
            lines[table] = number
        elif match := _ASSIGNMENT.match(line):
            lines[(*table, *_keys(match[1]))] = number
            value.scan(line[match.end() :])
    return lines


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """The line of ``path``, or of the nearest key around it that has one."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _keys(dotted: str) -> Path:
    return tuple(map(_unquoted, re.findall(_BARE_OR_QUOTED, dotted)))


def _unquoted(key: str) -> str:
    if key[0] == '"':
        return str(tomllib.loads(f"key = {key}")["key"])  # with its escapes
    return key[1:-1] if key[0] == "'" else key


def _inside_arrays(keys: Path, tables_of: dict[Path, int]) -> Path:
    """``keys`` of a header; those before the last are in the newest table of their array."""
    path: Path = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if path in tables_of and position < len(keys) - 1:
            path = (*path, tables_of[path] - 1)
    return path


class _OpenValue:
    """Whether a value goes on in the next line: a multi-line string, or an array."""

    def __init__(self) -> None:
        self._depth = 0
        self._delimiter = ""

    @property
    def is_open(self) -> bool:
        return self._depth > 0 or len(self._delimiter) == 3

    def scan(self, line: str) -> None:
        for token in self._tokens(line):
            if self._delimiter:
                if token == self._delimiter:
                    self._delimiter = ""
            elif token in _DELIMITERS:
                self._delimiter = token
            elif token == "#":
                break
            else:
                self._depth += 1 if token in "[{" else -1
        if len(self._delimiter) == 1:
            self._delimiter = ""

    def _tokens(self, line: str) -> Iterator[str]:
        position = 0
        while position < len(line):
            if line[position] == "\\" and self._delimiter in ('"', '"""'):
                position += 2
                continue
            token = next((d for d in _DELIMITERS if line.startswith(d, position)), line[position])
            if self._delimiter and token != self._delimiter:
                token = line[position]
                if token == self._delimiter:
                    yield token
            elif token in _DELIMITERS or token in "[]{}#":
                yield token
            position += len(token)
            if self._delimiter == "" and len(token) == 3:
                # A multi-line string may end in up to two quotes of its own.
                quotes = line[position : position + 2]
                position += len(quotes) - len(quotes.lstrip(token[0]))
