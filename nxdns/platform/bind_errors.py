"""Why an address cannot be bound, in words for its owner."""

import errno
import os

from nxdns.platform.address import ListenAddress
from nxdns.platform.port_holder import holder

# What bind says of an address, a family or an interface that this machine does not have (yet).
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENODEV, errno.ENXIO})


def is_not_here(exc: OSError) -> bool:
    """Whether this machine lacks the address, so that there is nothing to bind."""
    return exc.errno in _NOT_HERE


def bind_reason(exc: OSError, address: ListenAddress, *protocols: str) -> str:
    """Half a line that ends ``cannot listen on ADDRESS: ``; protocols are ``udp`` and ``tcp``."""
    match exc.errno:
        case errno.EADDRINUSE:
            return f"the port is in use by {holder(address, *protocols)}"
        case errno.EACCES:
            return "ports below 1024 need root or CAP_NET_BIND_SERVICE"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address"
        case errno.EAFNOSUPPORT:
            return f"this machine has no {'IPv6' if address.is_ipv6 else 'IPv4'}"
        case _:
            return exc.strerror or os.strerror(exc.errno or 0)
