"""The command line as a whole: help, exit statuses, errors, which configuration."""

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from nxdns.cli import main
from nxdns.cli.config_file import SYSTEM_FILE
from tests.cli.ports import refusing_tcp
from tests.cli.udp_resolver import UdpResolver, silent, with_rcode
from tests.config.files import UPSTREAM
from tests.support.process import LAUNCHER, MODULE, child, config_file, run
from tests.support.waiting import eventually

VERBS = ["serve", "check", "burst", "demo", "episodes", "version"]


def _told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Status, stdout and stderr of a verb, or of argparse, which exits."""
    try:
        status = main(arguments)
    except SystemExit as ending:
        status = int(ending.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_fits_a_terminal_and_ends_with_an_example(
    verb: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = _told([*([verb] if verb else []), "--help"], capsys)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith(f"example: nxdns {verb or ''}".rstrip())


def test_the_help_lists_every_verb_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _told(["--help"], capsys)
    assert re.findall(r"^    (\w+) +\w", out, re.MULTILINE) == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_a_verb_parses(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _told([verb, "--help"], capsys)
    words = out.splitlines()[-1].removeprefix("example: nxdns ").split()
    assert words[0] == verb
    status, _, err = _told([*words, "--help"], capsys)
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "VERB", id="nothing"),
        pytest.param(["reload"], "'reload'", id="unknown-verb"),
        pytest.param(["serve", "--verify", "no"], "--verify", id="unknown-option"),
        pytest.param(["check", "--config"], "--config", id="option-without-a-value"),
        pytest.param(["version", "now"], "now", id="too-much"),
        pytest.param(["burst", "-n", "0"], "1 to 500", id="no-names"),
        pytest.param(["burst", "-n", "501"], "1 to 500", id="too-many-names"),
        pytest.param(["burst", "-n", "ten"], "1 to 500", id="names-in-words"),
        pytest.param(["burst", "-n", "²"], "1 to 500", id="superscript-names"),
        pytest.param(["burst", "--repeat", "-1"], "--repeat", id="bursts-below-0"),
        pytest.param(["burst", "--server", "localhost:53"], "IP address", id="server-a-name"),
        pytest.param(["burst", "--server", "127.0.0.1"], "127.0.0.1:5300", id="server-no-port"),
        pytest.param(["burst", "--server", "127.0.0.1:0"], "1 to 65535", id="server-port-0"),
        pytest.param(["demo", "--latency", "1001"], "0 to 1000", id="too-slow"),
        pytest.param(["demo", "--latency", "-1"], "--latency", id="before-it-is-asked"),
        pytest.param(["demo", "--latency", "²"], "0 to 1000", id="superscript-latency"),
        pytest.param(
            ["demo", "--latency", "0000000009999999"], "0 to 1000", id="latency-behind-zeros"
        ),
        pytest.param(["demo", "--latency", "0" * 5000], "0 to 1000", id="latency-of-5000-zeros"),
        pytest.param(["burst", "-n", "9" * 5000], "1 to 500", id="names-of-5000-digits"),
    ],
)
def test_a_command_line_that_does_not_parse_is_status_2_and_says_what_is_wrong(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = _told(arguments, capsys)
    assert (status, out) == (2, "")
    [line] = err.splitlines()
    assert words in line


@pytest.mark.parametrize("verb", ["serve", "check"])
def test_every_problem_of_a_configuration_is_a_line_on_stderr_and_the_status_is_2(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_file(tmp_path, 'url = "udp://127.0.0.1"\ncolour = 1', extra="[log]\nlevel = 1\n")
    status, out, err = _told([verb, "--config", str(file)], capsys)
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == [
        f"{file}:4",
        f"{file}:5",
        f"{file}:7",
    ]
    assert all(line.startswith("nxdns: ") for line in lines)


@pytest.mark.parametrize("verb", ["serve", "check"])
def test_a_missing_file_is_one_line_and_status_2(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing.toml"
    status, out, err = _told([verb, "--config", str(file)], capsys)
    assert (status, out) == (2, "")
    assert err == f"nxdns: {file}: cannot be read: No such file or directory\n"


@pytest.mark.integration
def test_as_a_process_the_same_mistake_is_the_same_line_and_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "missing.toml"
    ended = run("serve", "--config", file)
    assert (ended.status, ended.stdout) == (2, "")
    assert ended.stderr == f"nxdns: {file}: cannot be read: No such file or directory\n"


@pytest.mark.integration
def test_the_module_does_the_same_as_the_launcher() -> None:
    assert run("version", program=MODULE) == run("version", program=LAUNCHER)


def test_without_config_the_systems_file_is_read_else_the_one_beside_bin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = tmp_path / "etc" / "nxdns.toml"
    beside.parent.mkdir()
    beside.write_text("colour = 1\n" + UPSTREAM)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "nxdns")])
    status, _, err = _told(["check"], capsys)
    if not SYSTEM_FILE.is_file():  # where nxdns is installed, that one comes first
        assert status == 2
        assert err.startswith(f"nxdns: {beside}:1: colour: ")


def test_the_file_beside_bin_is_found_through_a_link_to_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = tmp_path / "home" / "etc" / "nxdns.toml"
    beside.parent.mkdir(parents=True)
    beside.write_text("colour = 1\n")
    (tmp_path / "home" / "bin").mkdir()
    (tmp_path / "home" / "bin" / "nxdns").touch()
    (tmp_path / "nxdns").symlink_to(tmp_path / "home" / "bin" / "nxdns")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "nxdns")])
    status, _, err = _told(["check"], capsys)
    if not SYSTEM_FILE.is_file():
        assert status == 2
        assert str(beside) in err


def test_with_no_configuration_anywhere_the_error_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "nxdns")])
    if SYSTEM_FILE.is_file():
        return
    status, out, err = _told(["check"], capsys)
    assert (status, out) == (2, "")
    assert err.startswith("nxdns: ")
    assert "--config FILE" in err
    assert err.count("\n") == 1


@pytest.mark.integration
def test_an_interrupted_burst_is_status_130_and_silent() -> None:
    with (
        UdpResolver(silent) as resolver,
        child("burst", "--server", resolver.address, "-n", "3") as burst,
    ):
        eventually(lambda: len(resolver.queries) == 3)
        burst.send(signal.SIGINT)
        ended = burst.wait()
    assert ended.status == 130
    assert ended.stderr == ""


@pytest.mark.integration
def test_a_reader_that_goes_away_is_no_reason_for_a_traceback() -> None:
    with (
        UdpResolver(with_rcode("NOERROR"), held=True) as resolver,
        child("burst", "--server", resolver.address, "-n", "1", "--repeat", "1") as burst,
    ):
        eventually(lambda: len(resolver.queries) == 1)
        burst.stop_reading()
        resolver.gate.set()
        ended = burst.wait()
    assert "Traceback" not in ended.stderr


def _version_with_stdout(redirection: str) -> tuple[int, list[str]]:
    """Status and the lines on stderr of ``nxdns version``; ``redirection`` is a shell's."""
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    ended: Any = subprocess.run(
        [*shell, sys.executable, *LAUNCHER, "version"], stderr=subprocess.PIPE, timeout=20
    )
    return ended.returncode, ended.stderr.decode().splitlines()


@pytest.mark.integration
def test_output_that_finds_no_room_is_one_line_and_status_1() -> None:
    status, [line] = _version_with_stdout(">/dev/full")
    assert status == 1
    assert line == "nxdns: cannot write to standard output: No space left on device"


@pytest.mark.integration
def test_without_any_stdout_there_is_no_traceback() -> None:
    _, errors = _version_with_stdout(">&-")
    assert "Traceback" not in "\n".join(errors)


@pytest.mark.integration
def test_a_terminal_without_unicode_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    with refusing_tcp() as port:
        file = config_file(tmp_path, f'url = "https://127.0.0.1:{port}/s3cret"')
        ended = run("check", "--config", file, environment={"PYTHONIOENCODING": "ascii"})
    assert ended.stderr == ""
    assert ended.stdout.startswith(f"FAIL https://127.0.0.1:{port}/")
    assert ended.status == 1
