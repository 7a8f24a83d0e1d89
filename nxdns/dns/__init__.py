"""The pure DNS wire core: walks messages by offset, decodes no RDATA, does no I/O.

Whatever bytes come in, what comes out is a value or a :class:`~nxdns.dns.header.WalkError`.
The name of this package collides with dnspython's inside it: use absolute imports only, and
never run a file of this folder as a script.
"""
