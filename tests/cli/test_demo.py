"""``nxdns demo``, as a process: nothing but loopback, and nothing left behind."""

import re
from pathlib import Path

import dns.message
import pytest

from nxdns.cli.demo import scrape
from nxdns.platform.address import parse_listen_address
from tests.support.forwarder import ask_tcp, ask_udp
from tests.support.messages import make_query
from tests.support.process import Finished, child, run

pytestmark = pytest.mark.integration

_SUMMARY = re.compile(r"30 answered, 0 servfail, 0 lost, wall \d+ ms, p50 \d+ ms, .+ max \d+ ms")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """One run for all who look at it, and where its temporary files were."""
    folder = tmp_path_factory.mktemp("demo")
    return run("demo", "--latency", 20, environment={"TMPDIR": str(folder)}), folder


def test_it_succeeds_in_silence_on_stderr(demo: tuple[Finished, Path]) -> None:
    ended, _ = demo
    assert ended.stderr == ""
    assert ended.status == 0


def test_it_says_what_it_runs(demo: tuple[Finished, Path]) -> None:
    upstream, listening, web, upstreams, *_ = demo[0].stdout.splitlines()
    assert "20 ms" in upstream
    assert re.fullmatch(r"listening 127\.0\.0\.1:\d+ udp\+tcp", listening)
    assert re.fullmatch(r"web http://127\.0\.0\.1:\d+/", web)
    assert re.fullmatch(r"upstreams demo tls://127\.0\.0\.1:\d+", upstreams)


def test_both_bursts_are_answered_in_full_and_drawn(demo: tuple[Finished, Path]) -> None:
    lines = demo[0].stdout.splitlines()
    assert len([line for line in lines if re.fullmatch(r" *\d+ ms █+", line)]) == 60
    assert len([line for line in lines if _SUMMARY.fullmatch(line)]) == 2


def test_the_cold_burst_makes_at_most_8_handshakes_and_the_warm_one_none(
    demo: tuple[Finished, Path],
) -> None:
    cold, warm = map(int, re.findall(r"^TLS handshakes: (\d+)$", demo[0].stdout, re.MULTILINE))
    assert 1 <= cold <= 8
    assert warm == 0


def test_it_ends_with_the_five_series_of_the_upstream_as_metrics_shows_them(
    demo: tuple[Finished, Path],
) -> None:
    lines = demo[0].stdout.splitlines()
    [web] = [line.removeprefix("web ") for line in lines if line.startswith("web ")]
    [upstream] = [line.split()[-1] for line in lines if line.startswith("upstreams ")]
    labels = f'{{index="0",url="{upstream}"}}'
    assert lines[-6:] == [
        f"from {web}metrics:",
        f"nxdns_upstream_in_flight{labels} 0.0",
        f"nxdns_upstream_slots{labels} 256.0",
        f"nxdns_upstream_queued_total{labels} 0.0",
        f"nxdns_upstream_queued_seconds_total{labels} 0.0",
        f"nxdns_upstream_reuse_recoveries_total{labels} 0.0",
    ]


def test_no_key_and_no_other_file_is_left_behind(demo: tuple[Finished, Path]) -> None:
    assert list(demo[1].iterdir()) == []


def test_with_keep_it_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with child("demo", "--latency", 0, "--keep", environment={"TMPDIR": str(tmp_path)}) as running:
        line = running.wait_for_line("running; try: dig @")
        match = re.fullmatch(r"running; try: dig @(\S+) -p (\d+) www\.example\.com", line)
        assert match
        address = parse_listen_address(f"{match[1]}:{match[2]}")
        web = running.wait_for_line("web ").removeprefix("web ")
        for ask in (ask_udp, ask_tcp):
            reply = dns.message.from_wire(ask(address, make_query("www.example.com")))
            assert reply.answer[0].to_text().endswith(" IN A 192.0.2.1")
        assert len(scrape(web)) == 5
        ended = running.terminate()
    assert (ended.status, ended.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
