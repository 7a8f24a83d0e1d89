"""The flight record: the last exchanges of an upstream, and nothing of who asked for what."""

import pytest

from nxdns.dns.header import HEADER_LENGTH
from nxdns.dns.packet import Packet
from nxdns.upstream.describe import rcode_name
from nxdns.upstream.history import FLIGHT_RECORDS, History
from nxdns.upstream.transport import PeerFault
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    RESET,
    SECOND,
    ManualClock,
    ScriptedLeaf,
    SteadyLeaf,
    entry_of,
    pool_of,
)
from tests.support.messages import make_query, make_response

QUERY = make_query("very-secret-name.example")
REPLY = make_response(QUERY, "192.0.2.77")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_it_holds_the_last_256_and_no_more(clock: ManualClock) -> None:
    assert FLIGHT_RECORDS == 256
    pool = pool_of(entry_of(SteadyLeaf(REPLY), clock=clock), clock=clock)
    for _ in range(300):
        clock.advance(MS)
        exchanged(pool, QUERY)
    ages = [round(flight.seconds_ago * 1_000) for flight in pool.flight(0)]
    assert ages == list(range(256)), "the newest first"


def test_what_is_older_than_a_minute_when_it_is_read_is_left_out(clock: ManualClock) -> None:
    pool = pool_of(entry_of(SteadyLeaf(REPLY), clock=clock), clock=clock)
    for _ in range(4):
        exchanged(pool, QUERY)
        clock.advance(20 * SECOND)
    assert [flight.seconds_ago for flight in pool.flight(0)] == [20.0, 40.0, 60.0]
    clock.advance(1)
    assert len(pool.flight(0)) == 2
    clock.advance(3_600 * SECOND)
    assert pool.flight(0) == ()


def test_it_says_how_each_was_done_and_what_became_of_it(clock: ManualClock) -> None:
    leaf = ScriptedLeaf(RESET, REPLY)
    pool = pool_of(entry_of(SteadyLeaf(), leaf, clock=clock), clock=clock)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    leaf.last.begin(reused=True, tls_version="TLSv1.3")
    leaf.last.opened_at = clock() - 5 * SECOND
    exchanged(pool, QUERY)
    answered, failed = pool.flight(0)
    assert (failed.slot, failed.session_seconds, failed.reused) == (1, None, False)
    assert (failed.outcome, failed.failed) == (str(RESET), True)
    assert (answered.session_seconds, answered.reused) == (5.0, True)
    assert (answered.outcome, answered.failed) == ("NOERROR", False)


def test_neither_a_name_nor_an_address_is_in_it(clock: ManualClock) -> None:
    entry = entry_of(SteadyLeaf(REPLY), clock=clock, url="https://dns.example/s3cret")
    pool = pool_of(entry, clock=clock)
    exchanged(pool, QUERY)
    told = repr(pool.flight(0)) + repr(entry.history.flight)
    assert "NOERROR" in told
    for secret in ("secret", "example", "192.0.2", "s3cret"):
        assert secret not in told
    assert not any(
        isinstance(part, bytes | Packet) for record in entry.history.flight for part in record
    )


def test_each_upstream_has_its_own_and_a_failover_is_in_both(clock: ManualClock) -> None:
    entries = [entry_of(ScriptedLeaf(step), clock=clock) for step in (RESET, REPLY)]
    pool = pool_of(*entries, clock=clock)
    exchanged(pool, QUERY)
    assert [[each.failed for each in pool.flight(index)] for index in (0, 1)] == [[True], [False]]


def test_answers_are_counted_by_rcode_and_an_upstream_that_servfails_all_stays_trusted(
    clock: ManualClock,
) -> None:
    def with_rcode(rcode: int) -> bytes:
        response = bytearray(REPLY)
        response[3] = response[3] & 0xF0 | rcode
        return bytes(response)

    rcodes = [0, 2, 2, 3, 5, 12]
    leaf = ScriptedLeaf(*(with_rcode(rcode) for rcode in rcodes), RESET)
    pool = pool_of(entry_of(leaf, clock=clock), clock=clock)
    for _ in rcodes:
        exchanged(pool, QUERY)
    with pytest.raises(PeerFault):
        exchanged(pool, QUERY)
    [seen] = pool.snapshot(0.0)
    assert seen.rcodes == {"NOERROR": 1, "SERVFAIL": 2, "NXDOMAIN": 1, "REFUSED": 1, "RCODE12": 1}
    assert seen.failures_total == 1
    assert not seen.tripped


def test_an_rcode_without_a_name_is_a_number() -> None:
    assert [rcode_name(code) for code in (0, 10, 11, 12, 15)] == [
        "NOERROR",
        "NOTZONE",
        "DSOTYPENI",
        "RCODE12",
        "RCODE15",
    ]


def test_what_is_booked_of_an_exchange_costs_no_memory_beyond_the_ring(clock: ManualClock) -> None:
    history = History()
    pool = pool_of(entry_of(SteadyLeaf(REPLY), clock=clock, history=history), clock=clock)
    for _ in range(2 * FLIGHT_RECORDS):
        exchanged(pool, QUERY)
    assert len(history.flight) == FLIGHT_RECORDS
    assert len(REPLY) > HEADER_LENGTH
