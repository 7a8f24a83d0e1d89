"""Blame: what this process ran out of, and its own bugs, are never the fault of a peer."""

import errno
import logging
import ssl
from collections.abc import Iterator

import pytest
from gevent import socket
from OpenSSL import SSL
from urllib3 import exceptions as urllib3

from nxdns.upstream.blame import blame, map_local
from nxdns.upstream.errors import FaultKind, LocalKind, LocalResource

LOCAL = [
    pytest.param(OSError(errno.EMFILE, ""), LocalKind.PROCESS_FD_QUOTA_EXCEEDED, id="EMFILE"),
    pytest.param(OSError(errno.ENFILE, ""), LocalKind.SYSTEM_FD_QUOTA_EXCEEDED, id="ENFILE"),
    pytest.param(OSError(errno.ENOMEM, ""), LocalKind.SYSTEM_RESOURCES, id="ENOMEM"),
    pytest.param(OSError(errno.ENOBUFS, ""), LocalKind.SYSTEM_RESOURCES, id="ENOBUFS"),
    pytest.param(MemoryError(), LocalKind.OUT_OF_MEMORY, id="MemoryError"),
    pytest.param(
        SSL.Error([("memory buffer routines", "", "malloc failure")]),
        LocalKind.OUT_OF_MEMORY,
        id="malloc failure in OpenSSL",
    ),
    pytest.param(
        SSL.Error([("SSL routines", "", "internal error"), ("", "", "malloc failure")]),
        LocalKind.OUT_OF_MEMORY,
        id="malloc failure behind another entry",
    ),
    pytest.param(socket.gaierror(socket.EAI_MEMORY, ""), LocalKind.OUT_OF_MEMORY, id="EAI_MEMORY"),
]


@pytest.mark.parametrize(("exc", "kind"), LOCAL)
@pytest.mark.parametrize("phase", list(FaultKind), ids=lambda phase: phase.value)
def test_what_this_process_ran_out_of_is_local_in_every_phase(
    phase: FaultKind, exc: Exception, kind: LocalKind
) -> None:
    with pytest.raises(LocalResource) as raised:
        blame(phase, exc)
    assert raised.value.kind is kind
    assert raised.value.__cause__ is exc


@pytest.mark.parametrize(("exc", "kind"), LOCAL)
def test_what_this_process_ran_out_of_is_seen_inside_what_urllib3_wraps(
    exc: Exception, kind: LocalKind
) -> None:
    wrapped = urllib3.ProtocolError("Connection aborted.", exc)
    with pytest.raises(LocalResource) as raised:
        blame(FaultKind.SEND_FAILED, wrapped)
    assert raised.value.kind is kind
    assert raised.value.__cause__ is wrapped


@pytest.mark.parametrize(("exc", "kind"), LOCAL)
def test_map_local_names_the_same_kind(exc: Exception, kind: LocalKind) -> None:
    assert map_local(exc) is kind


@pytest.mark.parametrize(
    "exc",
    [
        pytest.param(OSError(errno.ECONNREFUSED, ""), id="ECONNREFUSED"),
        pytest.param(OSError(errno.EACCES, ""), id="EACCES"),
        pytest.param(TimeoutError("timed out"), id="timed out"),
        pytest.param(socket.gaierror(socket.EAI_NONAME, ""), id="no such name"),
        pytest.param(SSL.Error([("SSL routines", "", "wrong version number")]), id="not TLS"),
        pytest.param(ssl.SSLError(errno.ENOMEM, ""), id="a number of OpenSSL's that is no errno"),
        pytest.param(urllib3.InvalidHeader("two lengths"), id="bad header"),
    ],
)
def test_what_can_be_the_doing_of_a_peer_is_not_local(exc: Exception) -> None:
    assert map_local(exc) is None


def test_running_out_of_something_is_not_logged_as_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    for parameters in LOCAL:
        map_local(parameters.values[0])  # type: ignore[arg-type]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def bugs_in_this_line(text: str, times: int) -> Iterator[TypeError]:
    for _ in range(times):
        try:
            raise TypeError(text)
        except TypeError as error:
            yield error


def bugs_in_that_line() -> Iterator[TypeError]:
    try:
        raise TypeError("elsewhere")
    except TypeError as error:
        yield error


def test_a_bug_of_ours_is_unexpected_and_logged_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for bug in bugs_in_this_line("a bug", times=5):
        with pytest.raises(LocalResource) as raised:
            blame(FaultKind.RECEIVE_FAILED, bug)
        assert raised.value.kind is LocalKind.UNEXPECTED
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    shown = caplog.text
    assert "TypeError: a bug" in shown
    assert "in bugs_in_this_line" in shown


def test_a_bug_in_another_line_is_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    for bug in bugs_in_that_line():
        assert map_local(bug) is LocalKind.UNEXPECTED
    assert "TypeError: elsewhere" in caplog.text


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(KeyError("key"), id="KeyError"),
        pytest.param(AttributeError("attribute"), id="AttributeError"),
        pytest.param(AssertionError("assertion"), id="AssertionError"),
        pytest.param(ValueError("value"), id="ValueError"),
        pytest.param(RecursionError("too deep"), id="RecursionError"),
    ],
)
def test_no_bug_of_ours_makes_a_peer_sick(bug: Exception) -> None:
    with pytest.raises(LocalResource) as raised:
        blame(FaultKind.TLS_FAILED, bug)
    assert raised.value.kind is LocalKind.UNEXPECTED
