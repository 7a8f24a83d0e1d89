"""A SERVFAIL has an address: the phase in which the query's budget died."""

import logging

import pytest

from nxdns.dns.packet import Packet
from nxdns.server.handler import Handler, Transport
from nxdns.upstream.transport import (
    Cause,
    Fault,
    FaultKind,
    LocalKind,
    LocalResource,
    PeerFault,
    Phase,
)
from tests.support.messages import make_query

QUERY = make_query()
RESET = Fault(FaultKind.RECEIVE_FAILED, Cause.CONNECTION_RESET_BY_PEER)


class Failing:
    """A Client that raises one after another."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    def exchange(self, query: bytes) -> Packet:
        raise self._errors.pop(0)


def test_each_is_counted_by_the_phase_that_it_died_in_and_they_sum_to_all() -> None:
    errors: list[Exception] = [PeerFault(RESET, phase) for phase in Phase]
    errors += [LocalResource(LocalKind.BUDGET_EXHAUSTED, Phase.FIRST_BYTE)]
    errors += [PeerFault(RESET), LocalResource(LocalKind.OUT_OF_MEMORY), ValueError("a bug")]
    handler = Handler(Failing(*errors))
    for _ in errors:
        handler.handle(Transport.UDP, QUERY)
    phases = handler.stats.servfail_phases
    assert sum(phases.values()) == handler.stats.servfail == len(errors)
    assert phases.pop(None) == 3
    assert phases.pop(Phase.FIRST_BYTE) == 2
    assert set(phases.values()) == {1}


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PeerFault(RESET, Phase.FIRST_BYTE),
            "SERVFAIL: ReceiveFailed (cause ConnectionResetByPeer); phase first_byte",
        ),
        (
            LocalResource(LocalKind.BUDGET_EXHAUSTED, Phase.QUEUE),
            "SERVFAIL: BudgetExhausted; phase queue",
        ),
        (
            PeerFault(Fault(FaultKind.CONNECT_FAILED, Cause.ALL_DISABLED)),
            "SERVFAIL: ConnectFailed (cause AllDisabled); phase none",
        ),
    ],
)
def test_the_debug_line_names_the_phase(
    caplog: pytest.LogCaptureFixture, error: Exception, line: str
) -> None:
    caplog.set_level(logging.DEBUG, "nxdns.server")
    Handler(Failing(error)).handle(Transport.TCP, QUERY)
    assert caplog.messages == [line]
