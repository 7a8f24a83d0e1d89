"""nxdns: a DNS forwarder that encrypts what it forwards, quickly, safely and visibly."""

__version__ = "0.1.0"
