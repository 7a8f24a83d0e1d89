"""One bounded attempt at one upstream, and whose timer it was that expired."""

from gevent import Timeout

from nxdns.units import NS_PER_SECOND
from nxdns.upstream.transport import Cause, Fault, FaultKind, Leaf, LocalKind, LocalResource

EXPIRED = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


def attempt(leaf: Leaf, query: bytes, *, attempt_ns: int, left_ns: int) -> bytes | Fault:
    """One exchange of at most ``min(attempt_ns, left_ns)`` nanoseconds.

    The expiry of a full attempt is evidence against the peer, and returned as its fault. One that
    the client's remaining budget cut short proves nothing: LocalResource(BudgetExhausted).
    """
    if left_ns <= 0:
        raise LocalResource(LocalKind.BUDGET_EXHAUSTED)
    cut_short = left_ns < attempt_ns
    timer = Timeout((left_ns if cut_short else attempt_ns) / NS_PER_SECOND)
    timer.start()
    try:
        return leaf.exchange(query)
    except Timeout as expired:
        if expired is not timer:
            raise  # somebody else's deadline, passing through
        if cut_short:
            raise LocalResource(LocalKind.BUDGET_EXHAUSTED) from None
        return EXPIRED
    finally:
        # First on the way out: a timer that fired during a later wait would turn a kill, which
        # is nobody's fault, into an expiry.
        timer.close()
