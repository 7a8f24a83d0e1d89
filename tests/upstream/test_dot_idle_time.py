"""How long a session may stay idle, as a DoT server states it (RFC 7828)."""

import dns.edns
import dns.message
import pytest

from nxdns.dns.framing import frame
from tests.support.authority import Authority, Issued
from tests.support.riders import (
    answer,
    answers_to,
    leaf_of,
    outcomes_of,
    read_queries,
    ride,
    site_at,
)
from tests.support.tls_peer import Session, TlsPeer, answer_all

pytestmark = pytest.mark.integration


def stating(query: bytes, tenths: int) -> bytes:
    """The answer to ``query`` with an idle time of so many tenths of a second."""
    option = dns.edns.GenericOption(dns.edns.OptionType.make(11), tenths.to_bytes(2, "big"))
    message = dns.message.from_wire(answer(query))
    message.use_edns(0, 0, 1232, options=[option])
    return message.to_wire()


def test_what_the_first_answer_of_a_session_states_is_kept_until_another_states_more(
    authority: Authority, certificate: Issued
) -> None:
    states = [300, None, 15]

    def script(session: Session) -> None:
        query = session.read_query()
        stated = states[session.number - 1]
        session.send_message(answer(query) if stated is None else stating(query, stated))

    heard: list[float | None] = []
    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        assert site.stats.idle_seconds is None
        with leaf_of(site) as leaf:
            for _ in states:
                outcomes_of(ride(leaf, 1))
                heard.append(site.stats.idle_seconds)
                leaf.close()
        assert peer.accepts == 3
    assert heard == [30.0, 30.0, 1.5]


def test_it_is_heard_when_many_answers_come_at_once(
    authority: Authority, certificate: Issued
) -> None:
    def script(session: Session) -> None:
        queries = read_queries(session, 5)
        session.send(b"".join(frame(stating(query, 100)) for query in queries))
        answer_all(answer)(session)

    with TlsPeer(certificate.openssl_context(), script) as peer:
        site = site_at(peer.port, authority)
        with leaf_of(site) as leaf:
            outcomes_of(ride(leaf, 5))
            assert site.stats.idle_seconds == 10.0
            again = ride(leaf, 2)
            assert outcomes_of(again) == answers_to(again)
            assert peer.accepts == 1
