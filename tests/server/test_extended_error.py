"""Why there was no answer, as an extended error (RFC 8914)."""

import dns.edns
import dns.message
import pytest

from nxdns.server.handler import Handler, Transport
from nxdns.upstream.transport import (
    Cause,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    PeerFault,
    Phase,
    Tried,
)
from tests.support.fake_clients import RaisingClient, counted
from tests.support.messages import make_query

TIMEOUT = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)
LONGEST_NAME = ".".join(["a" * 63] * 3 + ["b" * 61])


def failed(*tried: Tried) -> PeerFault:
    return PeerFault(TIMEOUT, Phase.FIRST_BYTE, tried)


def lacking(kind: LocalKind, *tried: Tried) -> LocalResource:
    error = LocalResource(kind)
    error.tried = tried
    return error


def explained(error: BaseException, query: bytes | None = None) -> dns.edns.EDEOption:
    """The one option of our SERVFAIL."""
    handler = Handler(RaisingClient(error))
    reply = handler.handle(Transport.UDP, query or make_query(payload=1232))
    assert counted(handler.stats) == {"servfail": 1}
    assert reply is not None
    assert len(reply) <= 512
    [option] = dns.message.from_wire(reply).options
    assert isinstance(option, dns.edns.EDEOption)
    return option


SLOW = Tried(1, "cloudflare", "Timeout", at_connect=False)
WAITING = Tried(2, "google", "backoff 12s", at_connect=False)
DOWN = Tried(2, "google", "NetworkUnreachable", at_connect=True)
DOWN_TOO = Tried(3, "quad9", "ConnectionRefused", at_connect=True)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        pytest.param(
            failed(SLOW, WAITING), 22, "1 cloudflare: Timeout; 2 google: backoff 12s", id="all"
        ),
        pytest.param(
            failed(DOWN, DOWN_TOO),
            23,
            "2 google: NetworkUnreachable; 3 quad9: ConnectionRefused",
            id="all-at-connect",
        ),
        pytest.param(
            failed(SLOW, DOWN),
            22,
            "1 cloudflare: Timeout; 2 google: NetworkUnreachable",
            id="one-at-connect",
        ),
        pytest.param(
            lacking(LocalKind.BUDGET_EXHAUSTED, SLOW, DOWN),
            0,
            "1 cloudflare: Timeout; 2 google: NetworkUnreachable",
            id="out-of-time",
        ),
        pytest.param(lacking(LocalKind.OUT_OF_MEMORY), 0, None, id="nobody-was-asked"),
        pytest.param(failed(), 0, None, id="nobody-may-be-asked"),
        pytest.param(ValueError("a bug"), 0, None, id="bug"),
    ],
)
def test_a_server_failure_says_why(error: BaseException, code: int, text: str | None) -> None:
    option = explained(error)
    assert (option.code, option.text) == (code, text)


def test_a_client_without_opt_is_told_nothing() -> None:
    query = make_query()
    reply = Handler(RaisingClient(failed(SLOW))).handle(Transport.UDP, query)
    assert reply == query[:2] + b"\x81\x82\0\1\0\0\0\0\0\0" + query[12:]


@pytest.mark.parametrize("letter", ["x", "ü", "網"])
def test_a_long_chain_is_cut_so_that_the_reply_fits_the_smallest_datagram(letter: str) -> None:
    chain = [Tried(number, letter * 30, "Timeout", at_connect=False) for number in range(1, 40)]
    query = make_query(LONGEST_NAME, payload=512, dnssec_ok=True)
    option = explained(failed(*chain), query)
    assert option.code == 22
    assert option.text is not None
    assert option.text.startswith(f"1 {letter * 30}: Timeout; 2 ")
    assert option.text.endswith("...")
