"""``etc/nxdns.service`` in a real systemd, installed as ``docs/how-to/install.md`` says."""

import os
import re
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from gevent import subprocess

from tests.support.process import ROOT

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

UNIT = ROOT / "etc" / "nxdns.service"
HERE = Path(__file__).parent
_HOW_TO = ROOT / "docs" / "how-to" / "install.md"
_CHECKOUT = "/usr/local/src/nxdns"
_DEPENDENCIES = "/usr/local/lib/nxdns-dependencies"
_BOOT_SECONDS = 270  # it takes 40 s where nothing else runs
_MOST_EXPOSED = 2.0

# The packages that pip would fetch are those that these tests run with, and setuptools does with
# the checkout what it does when pip asks it to.
_PIP = f"""
echo {_DEPENDENCIES} > "$(echo /opt/nxdns/lib/python3.*/site-packages)/dependencies.pth"
rm -rf /tmp/checkout
cp -r {_CHECKOUT} /tmp/checkout
cd /tmp/checkout
/opt/nxdns/bin/python -W ignore setup.py -q install --root=/ --single-version-externally-managed
cd /
"""
_OFFLINE = {
    "apt install python3-venv\n": "test -e /usr/bin/python3\n",
    f"/opt/nxdns/bin/pip install {_CHECKOUT}\n": _PIP,
    f"/opt/nxdns/bin/pip install --upgrade {_CHECKOUT}\n": _PIP,
}


def _need(fact: object, what: str) -> None:
    """Skip where ``fact`` is not so; or fail, where somebody has seen to it that it should be."""
    if not fact:
        (pytest.fail if os.environ.get("NXDNS_SYSTEMD_REQUIRED") else pytest.skip)(what)


def _commands(behind: str) -> str:
    """The first commands behind a sentence of the how-to, for a machine with no network."""
    text = _HOW_TO.read_text(encoding="utf-8").partition(behind)[2]
    block = re.search(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert block, behind
    return "".join(_OFFLINE.get(line, line) for line in block[1].splitlines(keepends=True))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What story.sh has told, by its headings."""
    _need(os.geteuid() == 0, "only root may boot a systemd")
    for program in ("systemd", "systemd-analyze", "unshare", "ip", "dig", "nsenter"):
        _need(shutil.which(program), f"there is no {program}; Debian has it")
    folder = tmp_path_factory.mktemp("boot")
    install = folder / "install"
    install.mkdir()
    for name, behind in (
        ("commands", "As root, with the checkout"),
        ("secret", "If a DoH path in it is a secret"),
        ("update", "To update it"),
    ):
        (install / name).write_text(_commands(behind))
    checkout = folder / "checkout"
    for name in ("nxdns", "etc"):
        # The how-to's installation is interpreted.
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, checkout)
    results = folder / "results"
    results.mkdir()
    binds = {
        install: "/srv/install",
        HERE: "/srv/tests",
        checkout: _CHECKOUT,
        Path(sysconfig.get_paths()["purelib"]): _DEPENDENCIES,
    }
    boot = subprocess.run(
        [
            *("timeout", "--kill-after=5", str(_BOOT_SECONDS), str(HERE / "boot.sh")),
            *(str(results), str(HERE / "story.sh")),
            *(f"{source}={target}" for source, target in binds.items()),
        ],
        check=False,
        capture_output=True,
    )
    output = results / "output"
    if not output.exists():
        console = (results / "console").read_text(errors="replace")[-2000:]
        _need(False, f"no systemd comes up here: {boot.stderr.decode()}{console}")
    text = output.read_text(errors="replace")
    status = results / "status"
    assert status.exists(), f"it did not come to its end: {text}"
    assert status.read_text() == "0\n", text
    assert "never came true" not in text
    parts = re.split(r"^== (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


_ANSWERED = r".*status: NOERROR, .* www\.example\.com\.\s+60\s+IN\s+A\s+192\.0\.2\.1 "
_UNANSWERED = r".*status: SERVFAIL, .*"


def _assert_told(part: str, *lines: str) -> None:
    """Fails unless the last lines of ``part`` are as these patterns say, one each."""
    told = part.splitlines()
    told = [line for line in told if line.strip()][-len(lines) :]
    assert len(told) == len(lines), part
    for line, pattern in zip(told, lines, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r} in:\n{part}"


def test_the_commands_of_the_how_to_install_it(story: Mapping[str, str]) -> None:
    told = story["installed"]
    for file in ("/opt/nxdns/bin/nxdns", "/etc/nxdns/nxdns.toml", "system/nxdns.service"):
        assert re.search(rf"^-r.*{file}$", told, re.MULTILINE), told
    assert "\nPython 3." in told
    assert story["the-shipped-file"].strip() == "is valid"


def test_systemd_has_nothing_to_say_against_the_unit(story: Mapping[str, str]) -> None:
    _assert_told(story["verified"], "status 0")
    assert len(story["verified"].split()) == 2
    _assert_told(story["enabled"], "enabled")


def test_its_exposure_is_small() -> None:
    _need(shutil.which("systemd-analyze"), "there is no systemd-analyze; Debian's systemd has it")
    security = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", str(UNIT)],
        check=True,
        capture_output=True,
    )
    last = security.stdout.decode().splitlines()[-1]
    level = re.search(r"exposure level for nxdns\.service: ([\d.]+) ", last)
    assert level, last
    assert float(level[1]) <= _MOST_EXPOSED


def test_a_start_returns_once_it_answers(story: Mapping[str, str]) -> None:
    _assert_told(
        story["started"],
        "start said 0",
        *[_ANSWERED] * 4,
        "active",
        "running",
        "0",
        r"serving 127\.0\.0\.1:53, \[::1\]:53; upstreams one",
    )
    _assert_told(
        story["tried"],
        r"ok  tls://127\.0\.0\.1:\d+ \d+ ms TLSv1\.3 name verified \(dot\.test\)",
        "30 answered, 0 servfail, 0 lost, .*",
    )


def test_it_has_no_privilege_but_port_53(story: Mapping[str, str]) -> None:
    told = dict(re.findall(r"^(\w+):\t(\w+)", story["confined"], re.MULTILINE))
    bind_service = f"{1 << 10:016x}"  # capabilities(7)
    assert int(told.pop("Uid")) > 1000
    assert told == {
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), bind_service),
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    _assert_told(story["confined"], "DynamicUser=yes")


def test_it_sees_of_the_kernel_what_the_metrics_tell(story: Mapping[str, str]) -> None:
    # Its own socket at port 53 in /proc/net/udp, and when the machine was booted.
    _assert_told(story["sees-what-the-metrics-need"], "1", "1")


def test_a_file_that_only_a_group_may_read_is_read(story: Mapping[str, str]) -> None:
    _assert_told(
        story["a-secret-file"], _ANSWERED, r"-rw-r----- .* nxdns-config .*/etc/nxdns/nxdns\.toml"
    )


def test_a_start_with_a_wrong_file_fails_and_is_not_tried_again(story: Mapping[str, str]) -> None:
    _assert_told(story["a-wrong-file"], "start said 1", "exit-code", "2", "0")


def test_a_port_that_is_taken_is_waited_for(story: Mapping[str, str]) -> None:
    _assert_told(story["a-taken-port"], "activating", _ANSWERED)


def test_an_episode_is_shown_to_root_from_the_state_directory(story: Mapping[str, str]) -> None:
    told = story["episode"].partition("lrwx")[0]
    _assert_told(
        told,
        *[_UNANSWERED] * 3,
        r"STATE +OPENED +LASTED +TIMES +WHAT",
        r"open .* 2  upstream 'one' failed: ConnectFailed \(cause ConnectionRefused\)",
        r"1 open, 0 resolved; from /var/lib/nxdns/events\.db",
    )
    assert re.search(r"^700 nxdns$", story["episode"], re.MULTILINE)


def test_whoever_may_not_read_the_store_is_told_by_the_service(story: Mapping[str, str]) -> None:
    _assert_told(
        story["episode"].partition("700 nxdns")[2],
        r"open .* 2  upstream 'one' failed: ConnectFailed \(cause ConnectionRefused\)",
        r"1 open, 0 resolved; from http://127\.0\.0\.1:8053/api/diagnostics",
        "status 0",
    )


def test_a_reload_is_seen_by_systemd_and_keeps_the_process(story: Mapping[str, str]) -> None:
    _assert_told(
        story["reloaded"],
        "reload said 0",
        r"serving .*; upstreams two",
        _ANSWERED,
        r"STATE +OPENED +LASTED +TIMES +WHAT",
        r"resolved .* upstream 'one' failed: ConnectFailed \(cause ConnectionRefused\)",
        r"0 open, 1 resolved; from /var/lib/nxdns/events\.db",
        "the same process",
    )


def test_a_reload_in_vain_is_in_the_status_until_one_succeeds(story: Mapping[str, str]) -> None:
    told, _, after = story["reloaded-in-vain"].partition("the same process\n")
    _assert_told(told, r"serving .*; upstreams two; the last reload failed", _ANSWERED)
    assert "ERROR reload: /etc/nxdns/nxdns.toml:12: budgets.attempt_ms: 'soon': must be" in after
    _assert_told(after, r"serving .*; upstreams two")


def test_after_a_crash_it_is_started_again(story: Mapping[str, str]) -> None:
    _assert_told(story["crashed"], "another process", _ANSWERED, r"serving .*; upstreams two")


def test_the_commands_of_the_how_to_update_it(story: Mapping[str, str]) -> None:
    _assert_told(story["updated"], "another process", _ANSWERED)


def test_a_stop_ends_well_and_leaves_the_episodes(story: Mapping[str, str]) -> None:
    _assert_told(
        story["stopped"],
        "stop said 0",
        *("inactive", "success", "0"),
        ".*no servers could be reached ",
        r"0 open, 1 resolved; from /var/lib/nxdns/events\.db",
    )


def test_names_are_looked_up_in_its_confinement(story: Mapping[str, str]) -> None:
    _assert_told(story["names"], _UNANSWERED, r".*ConnectFailed \(cause ConnectionRefused\)")


def test_the_prefixes_on_link_are_known_in_its_confinement(story: Mapping[str, str]) -> None:
    _assert_told(story["the-end"], "0", "0")


def test_nothing_of_all_that_was_a_bug(story: Mapping[str, str]) -> None:
    assert story["the-end"].split()[0] == "0"
