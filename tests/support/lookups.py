"""Lookups that fail, for want of a name or of a thread, and the silence that they deserve."""

import _thread
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import gevent
import pytest
from gevent import socket

from nxdns.logs.bugs import log_hub_errors
from tests.support.as_it_was import logging_as_it_was

_NO_SUCH_STACK = 1 << 47  # bytes; no address space of today has room for it


def let_lookups_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system know no name, of no host."""

    # A class of this call's own: the log tells of each kind of error once in a process.
    class UnknownName(socket.gaierror):  # type: ignore[misc]  # gevent ships no types
        pass

    def getaddrinfo(*_: Any, **__: Any) -> NoReturn:
        raise UnknownName(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)


@contextmanager
def no_thread_to_start() -> Iterator[None]:
    """No new thread finds room for its stack, as on a machine that has no more to give."""
    before = _thread.stack_size(_NO_SUCH_STACK)
    try:
        yield
    finally:
        _thread.stack_size(before)


@contextmanager
def nothing_told(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[None]:
    """With the hub's errors in the log, as in every verb: nothing comes there, nor is printed."""
    with logging_as_it_was():
        log_hub_errors()
        yield
        gevent.idle()
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")
