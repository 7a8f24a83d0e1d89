"""``nxdns check``: validate the configuration and probe each upstream once."""

import argparse
import dataclasses
import time

import dns.message
from dns.rcode import Rcode

from nxdns import logs
from nxdns.cli import config_file
from nxdns.config import Config, UpstreamConfig
from nxdns.dns import packet
from nxdns.dns.hop import to_upstream
from nxdns.units import NS_PER_MS
from nxdns.upstream.transport import LocalResource, PeerFault
from nxdns.upstreams import StartError, Upstreams

_PROBE_NAME = "example.com."  # RFC 2606 keeps it for such use, and it exists


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "check",
        help="validate the configuration and probe each upstream once",
        description="Validate the configuration, then ask each enabled upstream once for "
        "example.com. Exit status 0 when all answered, 1 when one did not, 2 when the file is "
        "wrong.",
        epilog="example: nxdns check --config /etc/nxdns/nxdns.toml",
    )
    config_file.add_option(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = config_file.load_from(options)
    logs.configure("error", config.log.format)
    status = 0
    for upstream in config.upstreams:
        if upstream.enabled and not _probe(config, upstream):
            status = 1
    return status


def _probe(config: Config, upstream: UpstreamConfig) -> bool:
    """Ask one upstream, print what came of it, and close its session, whatever did."""
    url = upstream.endpoint.redacted
    by_itself = dataclasses.replace(config, upstreams=(upstream,))
    try:
        upstreams = Upstreams.build(by_itself, alone=True)
    except StartError as exc:
        print(f"FAIL {url} {exc}", flush=True)
        return False
    pool = upstreams.pool
    leaf = pool.entries[0].slots.leaves[0]
    asked = packet.parse(dns.message.make_query(_PROBE_NAME, "A").to_wire())
    query = to_upstream(asked, None)
    started = time.monotonic_ns()
    name = upstream.tls_name or upstream.endpoint.host
    try:
        response = pool.exchange(query)
    except (PeerFault, LocalResource) as exc:
        print(f"FAIL {url} {exc}", flush=True)
        if leaf.last.hint:
            print(f"     {leaf.last.hint}", flush=True)
        return False
    finally:
        upstreams.close()
    took_ms = (time.monotonic_ns() - started) // NS_PER_MS
    rcode = Rcode(response.rcode)
    # Any validated response is a sign of health; but that it refuses everybody is worth a word.
    answered = "" if rcode in (Rcode.NOERROR, Rcode.NXDOMAIN) else f", answered {rcode.name}"
    verified = f"{leaf.last.tls_version} name verified ({name})"
    print(f"ok  {url} {took_ms} ms {verified}{answered}", flush=True)
    return True
