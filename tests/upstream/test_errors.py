"""The taxonomy: every failure is in exactly one group, and its text never changes."""

import inspect
import re
from itertools import combinations

import pytest
from gevent import GreenletExit, Timeout

from nxdns.upstream import errors, transport
from nxdns.upstream.errors import (
    Cause,
    Fault,
    FaultKind,
    Group,
    LocalKind,
    LocalResource,
    PeerFault,
    group,
)

PEER_FAULTS = {
    "ConnectFailed",
    "TlsFailed",
    "SendFailed",
    "ReceiveFailed",
    "Timeout",
    "BadResponse",
    "ResponseMismatch",
    "ResponseTooLarge",
    "HttpStatus",
    "HttpContentType",
}
LOCAL_RESOURCES = {
    "OutOfMemory",
    "SystemResources",
    "ProcessFdQuotaExceeded",
    "SystemFdQuotaExceeded",
    "BufferTooSmall",
    "BudgetExhausted",
    "Unexpected",
}

ERRORS_OF_GROUP: dict[Group, list[PeerFault | LocalResource | GreenletExit]] = {
    Group.PEER_FAULT: [PeerFault(Fault(kind, Cause.TIMEOUT)) for kind in FaultKind],
    Group.LOCAL_RESOURCE: [LocalResource(kind) for kind in LocalKind],
    Group.CANCELLATION: [GreenletExit()],
}


def test_the_taxonomy_is_complete() -> None:
    assert {kind.value for kind in FaultKind} == PEER_FAULTS
    assert {kind.value for kind in LocalKind} == LOCAL_RESOURCES


def test_no_name_stands_for_two_members_of_the_taxonomy() -> None:
    names = [kind.value for kind in FaultKind] + [kind.value for kind in LocalKind]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("expected", list(Group), ids=lambda member: member.name)
def test_every_member_of_the_taxonomy_has_its_group(expected: Group) -> None:
    for error in ERRORS_OF_GROUP[expected]:
        assert group(error) is expected


def test_every_group_has_members() -> None:
    assert set(ERRORS_OF_GROUP) == set(Group)


def test_every_error_that_the_taxonomy_defines_has_a_group() -> None:
    defined = {
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, BaseException)
    }
    grouped = {type(error) for members in ERRORS_OF_GROUP.values() for error in members}
    assert defined == grouped


def test_no_error_is_of_two_groups() -> None:
    for one, other in combinations((PeerFault, LocalResource, GreenletExit), 2):
        assert not issubclass(one, other)
        assert not issubclass(other, one)


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(Timeout(), id="somebody's timer"),
        pytest.param(TypeError(), id="a bug"),
        pytest.param(OSError(), id="an error nobody has blamed yet"),
    ],
)
def test_what_is_not_of_the_taxonomy_has_no_group(stranger: BaseException) -> None:
    with pytest.raises(AssertionError):
        group(stranger)


def test_a_cancellation_is_no_exception_that_could_be_caught_by_accident() -> None:
    assert not issubclass(GreenletExit, Exception)


def test_a_fault_is_a_value() -> None:
    fault = Fault(FaultKind.SEND_FAILED, Cause.BROKEN_PIPE)
    assert fault == Fault(FaultKind.SEND_FAILED, "BrokenPipe")
    assert len({fault, Fault(FaultKind.SEND_FAILED, "BrokenPipe")}) == 1
    assert fault != Fault(FaultKind.RECEIVE_FAILED, Cause.BROKEN_PIPE)
    assert fault != Fault(FaultKind.SEND_FAILED, Cause.CONNECTION_RESET_BY_PEER)
    assert not isinstance(fault, BaseException)


def test_a_fault_reads_as_its_kind_and_its_cause() -> None:
    assert str(Fault(FaultKind.SEND_FAILED, Cause.BROKEN_PIPE)) == "SendFailed (cause BrokenPipe)"
    assert str(Fault(FaultKind.TIMEOUT, Cause.TIMEOUT)) == "Timeout (cause Timeout)"
    assert str(Fault(FaultKind.CONNECT_FAILED, "ErrnoEPERM")) == "ConnectFailed (cause ErrnoEPERM)"


def test_an_error_reads_as_what_it_carries() -> None:
    fault = Fault(FaultKind.TLS_FAILED, Cause.CERTIFICATE_EXPIRED)
    assert str(PeerFault(fault)) == "TlsFailed (cause CertificateExpired)"
    assert PeerFault(fault).fault == fault
    assert str(LocalResource(LocalKind.OUT_OF_MEMORY)) == "OutOfMemory"
    assert LocalResource(LocalKind.OUT_OF_MEMORY).kind is LocalKind.OUT_OF_MEMORY


def test_every_cause_is_one_camel_case_word() -> None:
    for cause in Cause:
        assert re.fullmatch(r"([A-Z][a-z0-9]*)+", cause), cause


def test_the_list_of_causes_is_closed() -> None:
    assert set(Cause) == {
        *("ConnectionRefused", "ConnectionResetByPeer", "ConnectionTimedOut", "HostUnreachable"),
        *("NetworkUnreachable", "BrokenPipe", "NameNotResolved", "AllDisabled"),
        *("CertificateExpired", "CertificateNotYetValid", "CertificateUntrusted"),
        *("CertificateNameMismatch", "TlsAlert", "TlsProtocol", "EndOfStream"),
        *("TlsConnectionTruncated", "HttpConnectionClosing", "HttpProtocol"),
        *("HttpVersionNotSupported", "Redirect", "ClientError", "ServerError", "UnexpectedStatus"),
        *("MissingType", "WrongType", "EncodedBody"),
        *("Truncated", "Malformed", "NotAResponse", "QuestionCount", "EmptyMessage"),
        *("WrongId", "WrongName", "WrongClass"),
        *("DeclaredLength", "BodyLength", "Timeout"),
    }


def test_the_interface_gives_the_same_taxonomy_again() -> None:
    assert transport.Fault is Fault
    assert transport.FaultKind is FaultKind
    assert transport.LocalKind is LocalKind
    assert transport.group is group
