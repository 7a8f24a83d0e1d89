"""Sockets, addresses and TLS: what the operating system gives, shaped for gevent."""
