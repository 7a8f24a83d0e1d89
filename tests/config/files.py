"""Configuration files for a test, and what is wrong with them."""

from pathlib import Path

from nxdns.config import Config, ConfigError, load

UPSTREAM = '[[upstreams]]\nurl = "tls://127.0.0.1"\n'
"""All that a file needs."""


def written(folder: Path, text: str) -> Path:
    """A file in ``folder`` that holds ``text``."""
    file = folder / "nxdns.toml"
    file.write_text(text, encoding="utf-8")
    return file


def loaded(folder: Path, text: str) -> Config:
    return load(written(folder, text))


def problems(folder: Path, text: str) -> list[str]:
    """The lines for its owner, none when the file is good."""
    try:
        loaded(folder, text)
    except ConfigError as error:
        return error.problems
    return []
