"""``python -m nxdns``: the same as bin/nxdns."""

from nxdns.cli import run

run()
