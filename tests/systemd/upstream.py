"""An upstream for a machine with no network: DNS over TLS on loopback. Not a test.

Run by the Python that nxdns is installed in: ``upstream.py FOLDER``. What it is reached by is then
in FOLDER, a port and the authority that issued its certificate; it answers until it is killed.
"""

import sys
from pathlib import Path

from gevent.event import Event

from nxdns.cli.demo_authority import issue
from nxdns.platform.tls_server import LoopbackUpstream, server_context


def main(folder: Path) -> None:
    """Serve."""
    folder.mkdir()
    folder.chmod(0o755)
    _, chain_file, key_file = issue(folder, "dot.test", "127.0.0.1")
    upstream = LoopbackUpstream(server_context(str(chain_file), str(key_file)), 0.0)
    upstream.start()
    unfinished = folder / "port.new"
    unfinished.write_text(str(upstream.port))
    unfinished.rename(folder / "port")
    Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
