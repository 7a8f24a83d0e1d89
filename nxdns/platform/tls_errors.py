"""Ends of a TLS stream that OpenSSL has no name for."""


class TlsTruncated(EOFError):
    """The peer ended the connection without close_notify (RFC 8446 §6.1)."""
