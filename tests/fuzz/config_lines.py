"""Of any TOML text, each key that is given a line is there, and none at the top is without."""

import tomllib
from typing import Any

from nxdns.config.lines import key_lines, line_of


def target(data: bytes) -> None:
    text = data.decode("utf-8", "ignore")
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError):  # what it refuses is no business of the target
        return
    lines = key_lines(text)
    last = text.count("\n") + 1
    for path, line in lines.items():
        assert 1 <= line <= last
        value: Any = values
        for step in path:
            value = value[step]
        assert line_of((*path, "below"), lines) == line
    assert {path[0] for path in lines} == values.keys()
