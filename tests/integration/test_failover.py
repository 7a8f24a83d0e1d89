"""Two upstreams behind one forwarder: who is asked, and what a client sees."""

from pathlib import Path

import dns.message
import dns.rcode
import pytest

from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import address_of, ask_tcp, ask_udp, running
from tests.support.messages import make_query, make_response
from tests.support.self_signed import UNDECODABLE, self_signed, server_of
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = pytest.mark.integration

_ADDRESS = "93.184.216.34"
_LONG_BACKOFF = "[health]\nbase_backoff_ms = 60000\n"


def _answer(query: bytes) -> bytes:
    return make_response(query, _ADDRESS)


def _hang_up(session: Session) -> None:
    """Read a query and end the session without an answer."""
    session.read_query()


def _stay_silent(session: Session) -> None:
    session.wait_for_end()


def _upstream(peer: TlsPeer, priority: int) -> str:
    return f'url = "tls://127.0.0.1:{peer.port}"\ntls_name = "{NAME}"\npriority = {priority}'


def _addresses_in(reply: bytes) -> list[str]:
    message = dns.message.from_wire(reply)
    assert message.rcode() == dns.rcode.NOERROR
    return [rdata.to_text() for rrset in message.answer for rdata in rrset]


def test_a_failing_upstream_is_passed_over_and_after_two_failures_left_alone(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        TlsPeer(context, _hang_up) as failing,
        TlsPeer(context, answer_all(_answer)) as good,
        running(
            tmp_path,
            authority.ca_file,
            [_upstream(good, 20), _upstream(failing, 10)],
            _LONG_BACKOFF,
        ) as app,
    ):
        address = address_of(app)
        query = make_query("example.com")

        reply = ask_udp(address, query)
        assert reply[:2] == query[:2]
        assert _addresses_in(reply) == [_ADDRESS]
        assert _addresses_in(ask_tcp(address, make_query("example.com"))) == [_ADDRESS]

        first, second = app.snapshot()
        assert first.consecutive_failures == 2
        assert first.backoff_until is not None
        assert not first.available
        assert first.tripped
        assert first.last_error == "ReceiveFailed (cause EndOfStream)"
        assert second.successes_total == 2
        assert failing.accepts == 2

        assert _addresses_in(ask_udp(address, make_query("example.com"))) == [_ADDRESS]
        assert failing.accepts == 2


def test_behind_a_silent_upstream_two_queries_wait_for_an_attempt_and_the_third_does_not(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        TlsPeer(context, _stay_silent) as silent,
        TlsPeer(context, answer_all(_answer)) as good,
        running(
            tmp_path,
            authority.ca_file,
            [_upstream(silent, 10), _upstream(good, 20)],
            _LONG_BACKOFF + "[budgets]\nattempt_ms = 100\ntotal_ms = 10000\n",
        ) as app,
    ):
        for _ in range(3):
            assert _addresses_in(ask_udp(address_of(app), make_query())) == [_ADDRESS]

        first, second = app.snapshot()
        assert first.last_error == "Timeout (cause Timeout)"
        assert first.failures_total == 2
        assert second.successes_total == 3
        assert second.failures_total == 0


def test_with_every_upstream_failing_a_client_gets_servfail_and_its_question(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with (
        TlsPeer(context, _hang_up) as one,
        TlsPeer(context, _hang_up) as other,
        running(tmp_path, authority.ca_file, [_upstream(one, 10), _upstream(other, 20)]) as app,
    ):
        query = make_query("www.example.org", "AAAA", payload=1232, dnssec_ok=True)
        reply = dns.message.from_wire(ask_udp(address_of(app), query))
        assert reply.rcode() == dns.rcode.SERVFAIL
        assert reply.question == dns.message.from_wire(query).question
        assert app.handler.stats.servfail == 1
        assert [each.failures_total for each in app.snapshot()] == [1, 1]


def test_a_refused_certificate_makes_the_next_upstream_answer(
    tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with (
        TlsPeer(authority.expired().openssl_context(), answer_all(_answer)) as expired,
        TlsPeer(certificate.openssl_context(), answer_all(_answer)) as good,
        running(tmp_path, authority.ca_file, [_upstream(expired, 10), _upstream(good, 20)]) as app,
    ):
        assert _addresses_in(ask_udp(address_of(app), make_query())) == [_ADDRESS]
        assert app.snapshot()[0].last_error == "TlsFailed (cause CertificateExpired)"
        assert expired.handshakes == 0


@pytest.mark.parametrize("names", UNDECODABLE.values(), ids=UNDECODABLE)
def test_a_certificate_with_a_name_that_cannot_be_decoded_makes_the_next_upstream_answer(
    names: bytes, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    pem = self_signed(tmp_path, raw_names=names)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(pem).read_bytes() + Path(authority.ca_file).read_bytes())
    with (
        TlsPeer(server_of(pem), answer_all(_answer)) as odd,
        TlsPeer(certificate.openssl_context(), answer_all(_answer)) as good,
        running(tmp_path, str(both), [_upstream(odd, 10), _upstream(good, 20)]) as app,
    ):
        assert _addresses_in(ask_udp(address_of(app), make_query())) == [_ADDRESS]
        first, second = app.snapshot()
        assert first.last_error == "TlsFailed (cause CertificateNameMismatch)"
        assert (first.failures_total, second.successes_total) == (1, 1)
