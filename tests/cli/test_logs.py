"""Where log lines go, what they look like, and what is never in them."""

import datetime
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from nxdns import logs
from tests.support.authority import NAME, Authority, Issued
from tests.support.forwarder import ask_udp
from tests.support.http_peer import head, read_request, reply
from tests.support.messages import make_query, make_response
from tests.support.process import child, config_file
from tests.support.tls_peer import Session, TlsPeer

OURS = logging.getLogger("nxdns.some.module")


def _written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _time_of(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process lives nine hours east of Greenwich."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_a_line_of_text_has_time_in_utc_level_and_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("info", "text")
    OURS.warning("upstream '%s' failed", "one")
    [line] = _written(capsys)
    match = re.fullmatch(r"(\S+) WARNING upstream 'one' failed", line)
    assert match
    assert abs(_now() - _time_of(match[1])) < datetime.timedelta(minutes=1)


@pytest.mark.usefixtures("far_from_utc")
def test_a_line_of_json_is_an_object_with_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    OURS.warning("upstream '%s' failed", "küche\n2")
    [line] = _written(capsys)
    entry = json.loads(line)
    assert abs(_now() - _time_of(entry.pop("time"))) < datetime.timedelta(minutes=1)
    assert entry == {
        "level": "warning",
        "logger": "nxdns.some.module",
        "message": "upstream 'küche\n2' failed",
    }


def test_a_traceback_is_within_its_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    try:
        raise LookupError("here")
    except LookupError:
        OURS.exception("unexpected")
    [line] = _written(capsys)
    entry = json.loads(line)
    assert entry["message"] == "unexpected"
    assert entry["traceback"].startswith("Traceback")
    assert entry["traceback"].endswith("LookupError: here")


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    ("level", "count"),
    [
        pytest.param("debug", 4, id="debug"),
        pytest.param("info", 3, id="info"),
        pytest.param("warning", 2, id="warning"),
        pytest.param("error", 1, id="error"),
    ],
)
def test_what_is_below_the_level_is_not_written(
    level: str, count: int, log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(level, log_format)
    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        OURS.log(each, "message")
    assert len(_written(capsys)) == count


def test_configured_again_a_message_is_still_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "text")
    logs.configure("debug", "json")
    OURS.info("message")
    [line] = _written(capsys)
    assert json.loads(line)["message"] == "message"


def test_our_lines_go_nowhere_else(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What listens at Python's root logger, as ``caplog`` does, would write them once more."""
    logs.configure("info", "text")
    OURS.info("message")
    assert len(_written(capsys)) == 1
    assert caplog.records == []


def test_nothing_of_urllib3_is_ever_written(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It logs paths, and a DoH path can be a secret."""
    logs.configure("debug", "text")
    for name in ("urllib3", urllib3.connectionpool.__name__, "urllib3.util.retry"):
        logging.getLogger(name).error("POST /s3cret")
    assert _written(capsys) == []
    assert caplog.records == []


@pytest.mark.integration
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_doh_token_is_in_no_output_of_serve_whatever_happens(
    log_format: str, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    """Served at level debug: an answer, a closed connection, errors, a trip, a recovery."""
    token = "s3cr3t-t0ken"
    targets: list[str] = []

    def script(session: Session) -> None:
        while True:
            request = read_request(session)
            targets.append(request.target)
            if len(targets) in (2, 3):
                session.send(head("Content-Length: 0", status="500 Internal Server Error"))
            else:
                session.send(reply(make_response(request.body)))
            if len(targets) == 1:
                return

    with TlsPeer(certificate.openssl_context(), script) as peer:
        file = config_file(
            tmp_path,
            f'url = "https://127.0.0.1:{peer.port}/{token}/dns"\ntls_name = "{NAME}"',
            ca_file=authority.ca_file,
            extra=f'[log]\nlevel = "debug"\nformat = "{log_format}"\n'
            "[health]\nfailure_threshold = 1\nbase_backoff_ms = 1\n",
        )
        with child("serve", "--config", file) as serve:
            address = serve.listening()
            for _ in range(5):
                ask_udp(address, make_query())
            ended = serve.terminate()
    assert targets == [f"/{token}/dns"] * 5
    assert "HttpStatus (cause ServerError)" in ended.stderr, "nothing failed: it proves nothing"
    assert "has recovered" in ended.stderr
    assert token not in ended.stdout + ended.stderr
    if log_format == "json":
        assert all(json.loads(line)["logger"].startswith("nxdns.") for line in ended.errors)
