"""One bounded attempt at one upstream, and whose time it was that ran out."""

from typing import Final

from gevent import getcurrent

from nxdns.dns.packet import Packet
from nxdns.upstream.deadlines import Deadlines
from nxdns.upstream.expiry import AttemptExpired
from nxdns.upstream.transport import Cause, Fault, FaultKind, Leaf, LocalKind, LocalResource

EXPIRED: Final = Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)


def attempt(
    leaf: Leaf, query: bytes, deadlines: Deadlines, *, attempt_ns: int, left_ns: int
) -> Packet | Fault:
    """One exchange of at most ``min(attempt_ns, left_ns)`` nanoseconds.

    The expiry of a full attempt is evidence against the peer, and returned as its fault. One that
    the client's remaining budget cut short proves nothing: LocalResource(BudgetExhausted).
    """
    if left_ns <= 0:
        raise LocalResource(LocalKind.BUDGET_EXHAUSTED)
    cut_short = left_ns < attempt_ns
    me = getcurrent()
    deadlines.watch(me, left_ns if cut_short else attempt_ns, cut_short=cut_short)
    try:
        return leaf.exchange(query)
    except AttemptExpired:
        if cut_short:
            raise LocalResource(LocalKind.BUDGET_EXHAUSTED) from None
        return EXPIRED
    finally:
        # First on the way out: a deadline that passed during a later wait would turn a kill,
        # which is nobody's fault, into an expiry.
        deadlines.forget(me)
