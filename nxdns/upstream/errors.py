"""What can go wrong in one exchange, and who is to blame. Pure.

::

    Group.PEER_FAULT      FaultKind     the upstream's doing: recorded against its health, and the
                                        next one is tried
    Group.LOCAL_RESOURCE  LocalKind     this process ran out of something: never recorded, and
                                        nobody else is tried, who would hit the same wall
    Group.CANCELLATION    GreenletExit  the greenlet was killed: never recorded at all

A leaf *returns* a peer fault as a :class:`Fault`, a value, and raises the rest. The pool raises
all three: ``PeerFault(fault)``, ``LocalResource(kind)``, and GreenletExit. That one is gevent's
own. It is a BaseException, as gevent.Timeout is: only who has set a Timeout, or has spawned a
greenlet, may end one here.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from greenlet import GreenletExit

from nxdns.upstream.exchange import Phase


class FaultKind(enum.Enum):
    """How an upstream failed. The value is the text on every surface: keep it stable."""

    CONNECT_FAILED = "ConnectFailed"
    TLS_FAILED = "TlsFailed"
    SEND_FAILED = "SendFailed"
    RECEIVE_FAILED = "ReceiveFailed"
    TIMEOUT = "Timeout"
    BAD_RESPONSE = "BadResponse"
    RESPONSE_MISMATCH = "ResponseMismatch"
    RESPONSE_TOO_LARGE = "ResponseTooLarge"
    HTTP_STATUS = "HttpStatus"
    HTTP_CONTENT_TYPE = "HttpContentType"


class LocalKind(enum.Enum):
    """What this process ran out of."""

    OUT_OF_MEMORY = "OutOfMemory"
    SYSTEM_RESOURCES = "SystemResources"
    PROCESS_FD_QUOTA_EXCEEDED = "ProcessFdQuotaExceeded"
    SYSTEM_FD_QUOTA_EXCEEDED = "SystemFdQuotaExceeded"
    BUFFER_TOO_SMALL = "BufferTooSmall"  # a query that is empty or above 65535 bytes
    BUDGET_EXHAUSTED = "BudgetExhausted"  # the total budget cut an attempt short
    UNEXPECTED = "Unexpected"  # a bug of ours, logged with its traceback


class Group(enum.Enum):
    """Who is to blame."""

    PEER_FAULT = enum.auto()
    LOCAL_RESOURCE = enum.auto()
    CANCELLATION = enum.auto()


class Cause(enum.StrEnum):
    """The concrete reason of a fault.

    The list is closed but for two families, which :mod:`nxdns.upstream.blame` builds: ``Errno``
    and an errno's name, ``Certificate`` and an X509 code's name.
    """

    # any phase of I/O
    CONNECTION_REFUSED = "ConnectionRefused"
    CONNECTION_RESET_BY_PEER = "ConnectionResetByPeer"
    CONNECTION_TIMED_OUT = "ConnectionTimedOut"
    HOST_UNREACHABLE = "HostUnreachable"
    NETWORK_UNREACHABLE = "NetworkUnreachable"
    BROKEN_PIPE = "BrokenPipe"
    # connect
    NAME_NOT_RESOLVED = "NameNotResolved"
    ALL_DISABLED = "AllDisabled"  # a pool that may dial nobody
    # TLS handshake
    CERTIFICATE_EXPIRED = "CertificateExpired"
    CERTIFICATE_NOT_YET_VALID = "CertificateNotYetValid"
    CERTIFICATE_UNTRUSTED = "CertificateUntrusted"
    CERTIFICATE_NAME_MISMATCH = "CertificateNameMismatch"
    TLS_ALERT = "TlsAlert"
    TLS_PROTOCOL = "TlsProtocol"
    # an open TLS session
    END_OF_STREAM = "EndOfStream"
    TLS_CONNECTION_TRUNCATED = "TlsConnectionTruncated"
    # DoH
    HTTP_CONNECTION_CLOSING = "HttpConnectionClosing"
    HTTP_PROTOCOL = "HttpProtocol"
    # HttpStatus
    HTTP_VERSION_NOT_SUPPORTED = "HttpVersionNotSupported"
    REDIRECT = "Redirect"
    CLIENT_ERROR = "ClientError"
    SERVER_ERROR = "ServerError"
    UNEXPECTED_STATUS = "UnexpectedStatus"
    # HttpContentType
    MISSING_TYPE = "MissingType"
    WRONG_TYPE = "WrongType"  # of the body here, of the question under ResponseMismatch
    ENCODED_BODY = "EncodedBody"
    # BadResponse
    TRUNCATED = "Truncated"
    MALFORMED = "Malformed"
    NOT_A_RESPONSE = "NotAResponse"
    QUESTION_COUNT = "QuestionCount"
    EMPTY_MESSAGE = "EmptyMessage"
    # ResponseMismatch
    WRONG_ID = "WrongId"
    WRONG_NAME = "WrongName"
    WRONG_CLASS = "WrongClass"
    # ResponseTooLarge
    DECLARED_LENGTH = "DeclaredLength"
    BODY_LENGTH = "BodyLength"
    # Timeout
    TIMEOUT = "Timeout"


@dataclass(frozen=True, slots=True)
class Fault:
    """A peer fault as a value, from the leaf to the pool and to every surface."""

    kind: FaultKind
    cause: str

    def __str__(self) -> str:
        return f"{self.kind.value} (cause {self.cause})"


class Tried(NamedTuple):
    """One upstream that did not answer, or was not asked."""

    position: int
    """In the pool's order, from 1."""
    label: str
    cause: str
    """That of its fault, or why it was passed over."""
    at_connect: bool
    """Whether it could not be reached at all; of one in backoff, when it was asked last."""

    def __str__(self) -> str:
        return f"{self.position} {self.label}: {self.cause}"


class PeerFault(Exception):
    """Every upstream that was tried failed; ``fault`` is that of the last one."""

    def __init__(
        self, fault: Fault, phase: Phase | None = None, tried: Sequence[Tried] = ()
    ) -> None:
        super().__init__(str(fault))
        self.fault = fault
        #: Each upstream that was tried, or passed over, in their order.
        self.tried = tuple(tried)
        #: Where the query was when its time, or its last upstream, ran out; None: nowhere.
        self.phase = phase


class LocalResource(Exception):
    """This process could not do it; no upstream is to blame."""

    def __init__(self, kind: LocalKind, phase: Phase | None = None) -> None:
        super().__init__(kind.value)
        self.kind = kind
        #: As of PeerFault, so far as the query came.
        self.phase = phase
        self.tried: tuple[Tried, ...] = ()


def group(error: PeerFault | LocalResource | GreenletExit) -> Group:
    """Who is to blame for ``error``. Total: a new member without a group fails the type check."""
    match error:
        case PeerFault():
            return Group.PEER_FAULT
        case LocalResource():
            return Group.LOCAL_RESOURCE
        case GreenletExit():
            return Group.CANCELLATION
        case _:
            assert_never(error)
