"""retry_decision: the table of when one fresh dial is allowed."""

import pytest

from nxdns.upstream.errors import Cause
from nxdns.upstream.retry import Decision, retry_decision

LIFECYCLE = {
    "EndOfStream",
    "TlsConnectionTruncated",
    "ConnectionResetByPeer",
    "BrokenPipe",
    "HttpConnectionClosing",
}
# Members of the two open families, which are strings.
FAMILIES = ["ErrnoEPERM", "ErrnoECONNABORTED", "CertificateCertRevoked"]
CAUSES = [str(cause) for cause in Cause] + FAMILIES


@pytest.mark.parametrize("cause", sorted(LIFECYCLE))
def test_a_reused_session_that_ended_before_the_first_byte_is_redialled(cause: str) -> None:
    assert retry_decision(reused=True, bytes_received=0, cause=cause) is Decision.RETRY


@pytest.mark.parametrize("cause", sorted(set(CAUSES) - LIFECYCLE))
def test_any_cause_but_a_hang_up_is_final(cause: str) -> None:
    assert retry_decision(reused=True, bytes_received=0, cause=cause) is Decision.FINAL


@pytest.mark.parametrize("cause", CAUSES)
def test_a_fresh_session_is_never_redialled(cause: str) -> None:
    assert retry_decision(reused=False, bytes_received=0, cause=cause) is Decision.FINAL


@pytest.mark.parametrize("received", [1, 2, 65537])
@pytest.mark.parametrize("reused", [True, False], ids=["reused", "fresh"])
@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_is_redialled_after_the_first_byte(cause: str, reused: bool, received: int) -> None:
    assert retry_decision(reused=reused, bytes_received=received, cause=cause) is Decision.FINAL
