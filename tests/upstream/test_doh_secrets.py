"""A DoH path can be a customer's token: nothing that is logged, returned or raised repeats it."""

import logging
import traceback
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket

from nxdns import logs
from nxdns.upstream.doh_client import DohClient
from nxdns.upstream.transport import Fault, LocalResource
from tests.support.authority import Authority, Issued
from tests.support.exchanging import exchanged
from tests.support.http_peer import (
    CHUNKED,
    DNS_MESSAGE,
    FixedLookup,
    NoLookups,
    blackhole,
    head,
    leaves_at,
    promptly,
    read_request,
    reply,
)
from tests.support.messages import make_query, make_response
from tests.support.tls_peer import Session, TlsPeer

pytestmark = pytest.mark.integration

SECRET = "t0ken-0f-a-cust0mer"
PATH = f"/{SECRET}/dns-query"
QUERY = make_query(id_=0x1234)
RESPONSE = make_response(QUERY)


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def assert_untold(outcome: bytes | Fault | BaseException, caplog: pytest.LogCaptureFixture) -> None:
    assert SECRET not in str(outcome)
    assert SECRET not in repr(outcome)
    if isinstance(outcome, BaseException):
        assert SECRET not in "".join(traceback.format_exception(outcome))
    formatter = logging.Formatter("%(name)s %(message)s")
    for record in caplog.records:
        # urllib3 logs its URLs; nxdns gives its loggers no handler.
        if record.name.startswith("nxdns"):
            assert SECRET not in formatter.format(record)
            assert SECRET not in str(record.args)


def outcome_of(leaf: DohClient) -> bytes | Fault | BaseException:
    try:
        return promptly(leaf, QUERY)
    except LocalResource as error:
        return error


ANSWERS = pytest.mark.parametrize(
    "data",
    [
        pytest.param(reply(RESPONSE), id="answered"),
        pytest.param(b"", id="hung-up-on"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX", id="cut-short"),
        pytest.param(b"no HTTP\r\n\r\n", id="no-http"),
        pytest.param(
            head(DNS_MESSAGE, "no field", "Content-Length: 1", "Connection: close"), id="no-field"
        ),
        pytest.param(head(DNS_MESSAGE, "Content-Length: 1, 2"), id="two-lengths"),
        pytest.param(head(DNS_MESSAGE, CHUNKED) + b"-5\r\n", id="bad-chunk"),
        pytest.param(
            head(f"Location: https://127.0.0.1:1{PATH}", "Content-Length: 0", status="302 Found"),
            id="redirected",
        ),
        pytest.param(reply(b"", status="404 Not Found"), id="not-found"),
        pytest.param(reply(b"", status=f"505 {PATH}"), id="wants-http-2"),
        pytest.param(reply(RESPONSE, f"Content-Encoding: {PATH}"), id="encoded"),
        pytest.param(reply(b"\0" * 12), id="bad-message"),
    ],
)


def answer_twice(data: bytes, session: Session) -> None:
    """``data`` to a fresh connection, and to a reused one if it is a good answer."""
    read_request(session)
    session.send(data or b"\r")
    if data == reply(RESPONSE):
        read_request(session)


@ANSWERS
def test_no_answer_of_a_server_makes_the_leaf_tell_its_path(
    authority: Authority, certificate: Issued, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    with (
        TlsPeer(certificate.openssl_context(), lambda session: answer_twice(data, session)) as peer,
        leaves_at(peer.port, authority, path=PATH) as leaves,
    ):
        for _ in range(2):
            assert_untold(outcome_of(leaves.first), caplog)


def test_a_refused_certificate_tells_no_path(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    context = authority.issue("evil.test").openssl_context()
    with (
        TlsPeer(context, read_request) as peer,  # type: ignore[arg-type]  # never comes so far
        leaves_at(peer.port, authority, path=PATH) as leaves,
    ):
        assert_untold(outcome_of(leaves.first), caplog)


@pytest.mark.parametrize(
    "resolver",
    [
        pytest.param(FixedLookup(socket.gaierror(socket.EAI_NONAME, "unknown")), id="unknown"),
        pytest.param(FixedLookup(OSError(24, "full")), id="out-of-descriptors"),
        pytest.param(NoLookups(), id="a-bug-of-ours"),
        pytest.param(FixedLookup(["127.0.0.1"]), id="refused"),
    ],
)
def test_a_failed_connect_tells_no_path(
    authority: Authority, caplog: pytest.LogCaptureFixture, resolver: NoLookups | FixedLookup
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with leaves_at(port, authority, host="doh.test", path=PATH, resolver=resolver) as leaves:
            assert_untold(outcome_of(leaves.first), caplog)


def test_a_timeout_tells_no_path(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with blackhole() as port, leaves_at(port, authority, path=PATH) as leaves:
        with pytest.raises(gevent.Timeout) as raised, gevent.Timeout(0.01):
            exchanged(leaves.first, QUERY)
        assert_untold(raised.value, caplog)


@pytest.fixture
def _loggers_are_put_back() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("nxdns", "urllib3")]
    states = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, states, strict=True):
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


@ANSWERS
@pytest.mark.usefixtures("_loggers_are_put_back")
def test_the_log_that_nxdns_configures_tells_no_path_for_urllib3_either(
    authority: Authority, certificate: Issued, capfd: pytest.CaptureFixture[str], data: bytes
) -> None:
    logs.configure("debug", "text")
    with (
        TlsPeer(certificate.openssl_context(), lambda session: answer_twice(data, session)) as peer,
        leaves_at(peer.port, authority, path=PATH) as leaves,
    ):
        for _ in range(2):
            outcome_of(leaves.first)
    out, err = capfd.readouterr()
    assert SECRET not in out + err
