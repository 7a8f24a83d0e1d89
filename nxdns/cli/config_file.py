"""The ``--config`` option: which file, where none is named."""

import argparse
import sys
from pathlib import Path

from nxdns.config import Config, ConfigError, load

SYSTEM_FILE = Path("/etc/nxdns/nxdns.toml")


def add_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"default: {SYSTEM_FILE}, else etc/nxdns.toml beside bin/",
    )


def load_from(options: argparse.Namespace) -> Config:
    """The configuration that the command line asks for. Raises ConfigError."""
    return load(path_of(options))


def path_of(options: argparse.Namespace) -> Path:
    """The file that the command line asks for. Raises ConfigError when there is none."""
    if options.config is not None:
        return Path(options.config)
    beside_bin = Path(sys.argv[0]).resolve().parent.parent / "etc" / "nxdns.toml"
    installed = Path(sys.prefix) / "etc" / "nxdns.toml"
    for candidate in (SYSTEM_FILE, beside_bin, installed):
        if candidate.is_file():
            return candidate
    raise ConfigError(
        [f"{SYSTEM_FILE}: does not exist, nor does {beside_bin}; name one with --config FILE"]
    )
