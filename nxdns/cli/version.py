"""``nxdns version``: what is running."""

import argparse
import platform
import ssl

import gevent
from OpenSSL import SSL

import nxdns
from nxdns.dns import packet


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "version",
        help="print the versions of nxdns and what it runs on",
        description="Print the versions of nxdns, which is compiled or interpreted, and of what it "
        "runs on. There are two OpenSSLs in the process: DoT uses that of pyOpenSSL, DoH that of "
        "Python.",
        epilog="example: nxdns version",
    )
    verb.set_defaults(run=run)


def run(_options: argparse.Namespace) -> int:
    dot_openssl = SSL.SSLeay_version(SSL.SSLEAY_VERSION).decode()
    # A compiled module is a library beside its source, and is the one that is taken.
    compiled = not str(packet.__file__).endswith(".py")
    print(f"nxdns {nxdns.__version__} ({'compiled' if compiled else 'interpreted'})")
    print(f"Python {platform.python_version()}")
    print(f"gevent {gevent.__version__}")
    print(f"OpenSSL {dot_openssl.removeprefix('OpenSSL ')} (DoT)")
    print(f"OpenSSL {ssl.OPENSSL_VERSION.removeprefix('OpenSSL ')} (DoH)")
    return 0
