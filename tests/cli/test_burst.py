"""``nxdns burst`` against a server of the test's own."""

import json
import re

import dns.message
import dns.rdatatype
import gevent
import pytest

from nxdns.cli import main
from tests.cli.ports import refusing_udp
from tests.cli.udp_resolver import UdpResolver, with_rcode
from tests.support.leaks import no_descriptor_left
from tests.support.messages import make_query, make_response
from tests.support.process import run
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

_BAR = re.compile(r" *\d+ ms █+( servfail| lost)?")
_SUMMARY = re.compile(
    r"(\d+) answered, (\d+) servfail, (\d+) lost, "
    r"wall \d+ ms, p50 \d+ ms, p95 \d+ ms, max \d+ ms"
)


def _counts(line: str) -> tuple[int, ...]:
    match = _SUMMARY.fullmatch(line)
    assert match, line
    return tuple(map(int, match.groups()))


def test_each_burst_is_a_bar_for_each_name_and_then_its_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with UdpResolver(with_rcode("NOERROR")) as resolver:
        assert main(["burst", "--server", resolver.address]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 2 * 31
    for burst in (lines[:31], lines[31:]):
        assert all(_BAR.fullmatch(line) for line in burst[:-1])
        assert _counts(burst[-1]) == (30, 0, 0)
    assert captured.err == ""


def test_every_query_asks_for_the_address_of_another_name_under_example_com() -> None:
    with UdpResolver(with_rcode("NOERROR")) as resolver:
        main(["burst", "--server", resolver.address, "-n", "20", "--repeat", "2"])
        questions = [dns.message.from_wire(query).question for query in resolver.queries]
    assert all(len(question) == 1 for question in questions)
    names = {question[0].name.to_text() for question in questions}
    assert len(names) == 40
    assert all(re.fullmatch(r"[^.]+\.example\.com\.", name) for name in names)
    assert {question[0].rdtype for question in questions} == {dns.rdatatype.A}


def test_all_names_are_asked_at_once() -> None:
    """No answer leaves the server before it has seen the last query."""

    def once_all_are_here(query: bytes) -> list[bytes]:
        eventually(lambda: len(resolver.queries) == 30)
        return [make_response(query, "192.0.2.1")]

    with UdpResolver(once_all_are_here) as resolver:
        assert main(["burst", "--server", resolver.address, "--repeat", "1"]) == 0


def test_a_burst_begins_when_the_one_before_has_been_answered() -> None:
    answered_before: list[int] = []

    def counting(query: bytes) -> list[bytes]:
        answered_before.append(len(resolver.queries))
        return [make_response(query, "192.0.2.1")]

    with UdpResolver(counting, held=True) as resolver:
        opening = gevent.spawn(_open_when, resolver, 5)
        assert main(["burst", "--server", resolver.address, "-n", "5", "--repeat", "2"]) == 0
        opening.get()
    assert answered_before[:5] == [5] * 5


def _open_when(resolver: UdpResolver, number: int) -> None:
    """Let the answers go once the other side has had every chance to send more than ``number``."""
    eventually(lambda: len(resolver.queries) >= number)
    gevent.idle()
    resolver.gate.set()


@pytest.mark.parametrize("rcode", ["NXDOMAIN", "REFUSED", "NOTIMP"])
def test_any_rcode_but_servfail_is_status_0(rcode: str, capsys: pytest.CaptureFixture[str]) -> None:
    with UdpResolver(with_rcode(rcode)) as resolver:
        assert main(["burst", "--server", resolver.address, "-n", "3", "--repeat", "1"]) == 0
    assert _counts(capsys.readouterr().out.splitlines()[-1]) == (3, 0, 0)


def test_one_servfail_is_status_1_and_is_noted_at_its_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def first_fails(query: bytes) -> list[bytes]:
        first = query == resolver.queries[0]
        return list(with_rcode("SERVFAIL" if first else "NOERROR")(query))

    with UdpResolver(first_fails) as resolver:
        assert main(["burst", "--server", resolver.address, "-n", "4", "--repeat", "2"]) == 1
    captured = capsys.readouterr()
    first, second = captured.out.splitlines()[4], captured.out.splitlines()[9]
    assert _counts(first) == (3, 1, 0)
    assert _counts(second) == (4, 0, 0)
    assert sum(line.endswith(" servfail") for line in captured.out.splitlines()) == 1
    assert captured.err == ""


def test_where_nobody_listens_all_is_lost_and_the_status_is_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with refusing_udp() as port:
        assert main(["burst", "--server", f"127.0.0.1:{port}", "-n", "3"]) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 2 * 4
    assert _counts(lines[3]) == _counts(lines[7]) == (0, 0, 3)
    assert sum(line.endswith(" lost") for line in lines) == 6
    assert captured.err == f"nxdns: nobody listens on 127.0.0.1:{port}\n"


def test_as_a_process_it_loses_without_a_traceback() -> None:
    with refusing_udp() as port:
        ended = run("burst", "--server", f"127.0.0.1:{port}", "-n", "2", "--repeat", "1")
    assert ended.status == 1
    assert _counts(ended.stdout.splitlines()[-1]) == (0, 0, 2)
    assert ended.stderr == f"nxdns: nobody listens on 127.0.0.1:{port}\n"


def test_replies_to_other_queries_are_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    def confused(query: bytes) -> list[bytes]:
        good = make_response(query, "192.0.2.1")
        other_id = bytes([query[0] ^ 1]) + good[1:]
        other_name = make_response(make_query("other.test", id_=int.from_bytes(query[:2], "big")))
        return [b"", b"garbage", query, other_id, other_name, good]

    with UdpResolver(confused) as resolver:
        assert main(["burst", "--server", resolver.address, "-n", "2", "--repeat", "1"]) == 0
    assert _counts(capsys.readouterr().out.splitlines()[-1]) == (2, 0, 0)


def test_an_answer_whose_records_hold_nonsense_is_an_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What the records hold is the business of whoever asked for them."""

    def with_an_address_of_3_bytes(query: bytes) -> list[bytes]:
        reply = bytearray(make_response(query))
        reply[7] = 1  # ANCOUNT
        return [bytes(reply) + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\3\xc0\0\2"]

    with UdpResolver(with_an_address_of_3_bytes) as resolver:
        assert main(["burst", "--server", resolver.address, "-n", "2", "--repeat", "1"]) == 0
    captured = capfd.readouterr()
    assert _counts(captured.out.splitlines()[-1]) == (2, 0, 0)
    assert captured.err == ""


@pytest.mark.parametrize("rcode", ["NOERROR", "SERVFAIL"])
def test_json_is_one_object_with_every_burst_and_every_query(
    rcode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = rcode == "SERVFAIL"
    with UdpResolver(with_rcode(rcode)) as resolver:
        status = main(["burst", "--server", resolver.address, "-n", "3", "--json"])
    assert status == int(failed)
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["bursts"]
    assert len(report["bursts"]) == 2
    for burst in report["bursts"]:
        assert burst["answered"] == (0 if failed else 3)
        assert burst["servfail"] == (3 if failed else 0)
        assert burst["lost"] == 0
        assert 0 <= burst["p50_ms"] <= burst["p95_ms"] <= burst["max_ms"] <= burst["wall_ms"]
        assert [query["rcode"] for query in burst["queries"]] == [rcode] * 3
        assert max(query["ms"] for query in burst["queries"]) == burst["max_ms"]


def test_no_socket_is_left_open() -> None:
    with UdpResolver(with_rcode("NOERROR")) as resolver:
        main(["burst", "--server", resolver.address, "-n", "1", "--repeat", "1"])
        with no_descriptor_left():
            main(["burst", "--server", resolver.address, "-n", "20", "--repeat", "2"])


def test_too_few_descriptors_are_one_line_and_status_1() -> None:
    with UdpResolver(with_rcode("NOERROR")) as resolver:
        ended = run("burst", "--server", resolver.address, "-n", "100", descriptors=40)
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.errors == [f"nxdns: cannot ask {resolver.address}: Too many open files"]


def test_a_terminal_without_blocks_gets_bars_of_hash_signs() -> None:
    with UdpResolver(with_rcode("NOERROR")) as resolver:
        ended = run(
            "burst", "--server", resolver.address, "-n", "2", "--repeat", "1",
            environment={"PYTHONIOENCODING": "ascii"},
        )  # fmt: skip
    assert (ended.status, ended.stderr) == (0, "")
    assert all(re.fullmatch(r" *\d+ ms #+", line) for line in ended.stdout.splitlines()[:-1])
