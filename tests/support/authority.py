"""A certificate authority made for one run, and what it issues."""

import datetime
from pathlib import Path
from typing import Any

import trustme
from gevent import ssl
from OpenSSL import SSL

from nxdns.platform import tls_client
from nxdns.upstream import doh_connection

NAME = "dot.test"
"""What the certificates of these tests are for, unless a test says otherwise."""


class Authority:
    """An authority that clients trust through ``ca_file``, and nothing on this machine else."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self._issued = 0
        self.ca_file = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca_file)

    def issue(
        self,
        *identities: str,
        common_name: str | None = None,
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> "Issued":
        """A server certificate with ``identities`` (names or IP literals) as its SANs."""
        leaf = self._ca.issue_cert(
            *identities, common_name=common_name, not_before=not_before, not_after=not_after
        )
        self._issued += 1
        return Issued(leaf, self._folder / f"server-{self._issued}.pem")

    def expired(self) -> "Issued":
        """A certificate for NAME whose time has passed."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        return self.issue(NAME, not_before=now - 9 * day, not_after=now - day)

    def not_yet_valid(self) -> "Issued":
        """A certificate for NAME whose time has not come."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        return self.issue(NAME, not_before=now + day, not_after=now + 9 * day)

    def dot_context(self) -> SSL.Context:
        """A DoT leaf's TLS context that trusts this authority."""
        return tls_client.client_context(self.ca_file)

    def doh_context(self) -> Any:
        """A DoH leaf's TLS context that trusts this authority."""
        return doh_connection.client_context(self.ca_file)


class Issued:
    """A certificate with its key."""

    def __init__(self, leaf: trustme.LeafCert, pem: Path) -> None:
        self._leaf = leaf
        leaf.private_key_and_cert_chain_pem.write_to_path(str(pem))
        #: Key and chain in one file.
        self.pem = str(pem)

    def openssl_context(self) -> SSL.Context:
        """A server's context for memory BIOs, TLS 1.2 and 1.3."""
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.use_certificate_chain_file(self.pem)
        context.use_privatekey_file(self.pem)
        return context

    def ssl_context(self) -> Any:
        """A server's context for gevent's TLS sockets."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._leaf.configure_cert(context)
        return context
