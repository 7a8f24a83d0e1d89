"""Upstreams for ``nxdns check``: what they saw of it, and what they said."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import pytest
from OpenSSL import SSL

from nxdns.cli import main
from tests.support.authority import NAME, Authority
from tests.support.http_peer import read_request, reply
from tests.support.messages import make_response
from tests.support.process import config_file
from tests.support.tls_peer import Session, TlsPeer

Answer = Callable[[bytes], bytes]

SCHEMES = ["tls", "https"]


def resolved(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def servfail(query: bytes) -> bytes:
    message = dns.message.make_response(dns.message.from_wire(query))
    message.set_rcode(dns.rcode.SERVFAIL)
    return message.to_wire()


class Probed:
    """A script of a TlsPeer that answers over either protocol, and notes what it saw.

    ``answer`` makes a DNS message for ``tls``, a whole HTTP response for ``https``.
    """

    def __init__(self, scheme: str, answer: Answer | None) -> None:
        """Without an ``answer`` it stays silent."""
        self.queries: list[bytes] = []
        #: Sessions that the client has ended.
        self.ended = 0
        self._scheme = scheme
        self._answer = answer

    def __call__(self, session: Session) -> None:
        try:
            while True:
                over_tls = self._scheme == "tls"
                query = session.read_query() if over_tls else read_request(session).body
                self.queries.append(query)
                if self._answer is None:
                    session.wait_for_end()
                    break
                if over_tls:
                    session.send_message(self._answer(query))
                else:
                    session.send(self._answer(query))
        finally:
            self.ended += 1


class Upstream:
    """A peer with its script."""

    def __init__(self, scheme: str, peer: TlsPeer, probed: Probed) -> None:
        self.peer = peer
        self.probed = probed
        self.url = f"{scheme}://127.0.0.1:{peer.port}"
        #: As every surface shows it.
        self.shown = self.url if scheme == "tls" else f"{self.url}/dns-query"
        #: The body of its [[upstreams]] table.
        self.body = f'url = "{self.url}"\ntls_name = "{NAME}"'


@contextmanager
def upstream(scheme: str, context: SSL.Context, answer: Answer | None) -> Iterator[Upstream]:
    """``answer`` makes the DNS message; None is silence."""
    probed = Probed(scheme, _over(scheme, answer))
    with TlsPeer(context, probed) as peer:
        yield Upstream(scheme, peer, probed)


def _over(scheme: str, answer: Answer | None) -> Answer | None:
    if answer is None or scheme == "tls":
        return answer
    return lambda query: reply(answer(query))


class Check:
    """Runs ``nxdns check`` in this process."""

    def __init__(
        self, folder: Path, authority: Authority, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._folder = folder
        self._ca_file = authority.ca_file
        self._capsys = capsys

    def __call__(self, *upstreams: str, attempt_ms: int = 5000) -> tuple[int, list[str]]:
        """Status and the lines on stdout for these [[upstreams]] tables. Stderr must be empty."""
        extra = f"[budgets]\nattempt_ms = {attempt_ms}\ntotal_ms = {attempt_ms + 1000}\n"
        file = config_file(self._folder, *upstreams, ca_file=self._ca_file, extra=extra)
        status = main(["check", "--config", str(file)])
        captured = self._capsys.readouterr()
        assert captured.err == ""
        return status, captured.out.splitlines()
