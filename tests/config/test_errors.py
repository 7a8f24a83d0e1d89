"""What the owner of a wrong file is told."""

from pathlib import Path

import pytest

from tests.config.files import UPSTREAM, problems

# Each row is a whole file: its text, then line, key and value of its one problem, and words of
# what would be right. UPSTREAM takes the first two lines.
_WRONG_VALUES = [
    pytest.param(
        UPSTREAM + "[server]\nlisten = '127.0.0.1:53'", 4, "server.listen", "'127.0.0.1:53'",
        "a list of strings", id="listen-a-string",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = [53]", 4, "server.listen", "[53]", "a list of strings",
        id="listen-a-number",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = []", 4, "server.listen", "[]", "127.0.0.1:5300",
        id="listen-nowhere",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = ['127.0.0.1']", 4, "server.listen", "'127.0.0.1'",
        "127.0.0.1:5300", id="listen-without-a-port",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = ['127.0.0.1:65536']", 4, "server.listen",
        "'127.0.0.1:65536'", "0 to 65535", id="listen-on-too-high-a-port",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = ['localhost:53']", 4, "server.listen", "'localhost:53'",
        "an IP address", id="listen-on-a-name",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = ['::1:53']", 4, "server.listen", "'::1:53'", "[::1]:5300",
        id="listen-without-brackets",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = [\n'127.0.0.1:53',\n'127.0.0.1:53']", 4, "server.listen",
        "'127.0.0.1:53'", "name one of them", id="listen-twice",
    ),
    pytest.param(
        UPSTREAM + "[server]\nlisten = ['0.0.0.0:53', '[::]:53', '127.0.0.1:53']", 4,
        "server.listen", "'127.0.0.1:53'", "covers the same as 0.0.0.0:53", id="listen-wildcard",
    ),
    pytest.param(
        UPSTREAM + "[server]\nallow = 'private'", 4, "server.allow", "'private'",
        "a list of strings", id="allow-a-string",
    ),
    pytest.param(
        UPSTREAM + "[server]\nallow = []", 4, "server.allow", "[]", '"private" and "on-link"',
        id="allow-nobody",
    ),
    pytest.param(
        UPSTREAM + "[server]\nallow = ['lan']", 4, "server.allow", "'lan'", "192.168.1.0/24",
        id="allow-another-word",
    ),
    pytest.param(
        UPSTREAM + "[server]\nallow = ['private', '10.1.0.0/8']", 4, "server.allow",
        "'10.1.0.0/8'", 'write "10.0.0.0/8"', id="allow-bits-behind-the-prefix",
    ),
    pytest.param(
        "\n" + UPSTREAM + "name = 3", 4, "upstreams[0].name", "3", "a string", id="name-a-number"
    ),
    pytest.param(
        UPSTREAM + "name = ''", 3, "upstreams[0].name", "''", "leave the key out", id="name-empty"
    ),
    pytest.param(
        UPSTREAM + f"name = '{'n' * 65}'", 3, "upstreams[0].name", f"'{'n' * 65}'",
        "at most 64 printable characters", id="name-too-long",
    ),
    pytest.param(
        UPSTREAM + 'name = "a\\nb"', 3, "upstreams[0].name", r"'a\nb'", "printable",
        id="name-of-two-lines",
    ),
    pytest.param(
        "[[upstreams]]\nurl = ''", 2, "upstreams[0].url", "''", 'url = "tls://1.1.1.1:853"',
        id="url-empty",
    ),
    pytest.param(
        "[[upstreams]]\nurl = 'udp://1.1.1.1'", 2, "upstreams[0].url", "'udp://1.1.1.1'",
        "tls:// (DoT) or https:// (DoH)", id="url-of-another-scheme",
    ),
    pytest.param(
        "[[upstreams]]\nurl = 'https://'", 2, "upstreams[0].url", "'https://'", "host is missing",
        id="url-without-a-host",
    ),
    pytest.param(
        "[[upstreams]]\nurl = 'tls://1.1.1.1:0'", 2, "upstreams[0].url", "'tls://1.1.1.1:0'",
        "1 to 65535", id="url-with-port-0",
    ),
    pytest.param(
        "[[upstreams]]\nurl = 'tls://dns.test'", 2, "upstreams[0].url", "'tls://dns.test'",
        'url = "tls://1.1.1.1:853" and tls_name = "dns.test"', id="dot-host-a-name",
    ),
    pytest.param(
        "[[upstreams]]\nurl = 'tls://a.test'\ntls_name = 'b.test'", 2, "upstreams[0].url",
        "'tls://a.test'", 'tls_name = "b.test"', id="dot-host-a-name-beside-a-tls-name",
    ),
    pytest.param(
        UPSTREAM + "tls_name = 'a b'", 3, "upstreams[0].tls_name", "'a b'",
        "such as cloudflare-dns.com", id="tls-name-with-a-blank",
    ),
    pytest.param(
        UPSTREAM + "tls_name = 'dns.test:853'", 3, "upstreams[0].tls_name", "'dns.test:853'",
        "such as cloudflare-dns.com", id="tls-name-with-a-port",
    ),
    pytest.param(
        UPSTREAM + "tls_name = 'dns.tést'", 3, "upstreams[0].tls_name", "'dns.tést'", "xn--",
        id="tls-name-not-ascii",
    ),
    pytest.param(
        UPSTREAM + "tls_name = true", 3, "upstreams[0].tls_name", "True", "a string",
        id="tls-name-a-flag",
    ),
    pytest.param(
        UPSTREAM + "priority = '10'", 3, "upstreams[0].priority", "'10'", "a whole number",
        id="priority-a-string",
    ),
    pytest.param(
        UPSTREAM + "priority = 1.5", 3, "upstreams[0].priority", "1.5", "a whole number",
        id="priority-a-fraction",
    ),
    pytest.param(
        UPSTREAM + "priority = true", 3, "upstreams[0].priority", "True", "a whole number",
        id="priority-a-flag",
    ),
    pytest.param(
        UPSTREAM + "priority = 1000001", 3, "upstreams[0].priority", "1000001",
        "-1000000 to 1000000", id="priority-too-high",
    ),
    pytest.param(
        UPSTREAM + "enabled = 1", 3, "upstreams[0].enabled", "1", "true or false",
        id="enabled-a-number",
    ),
    pytest.param(
        UPSTREAM + UPSTREAM, 4, "upstreams[1].url", "'tls://127.0.0.1'",
        "the same upstream as upstreams[0]", id="upstream-twice",
    ),
    pytest.param(
        UPSTREAM + "[budgets]\nattempt_ms = 9", 4, "budgets.attempt_ms", "9", "10 to 60000",
        id="attempt-too-short",
    ),
    pytest.param(
        UPSTREAM + "[budgets]\nattempt_ms = 60001", 4, "budgets.attempt_ms", "60001",
        "10 to 60000", id="attempt-too-long",
    ),
    pytest.param(
        UPSTREAM + "[budgets]\ntotal_ms = 120001", 4, "budgets.total_ms", "120001", "to 120000",
        id="total-too-long",
    ),
    pytest.param(
        UPSTREAM + "[budgets]\nattempt_ms = 400\ntotal_ms = 499", 5, "budgets.total_ms", "499",
        "500 or more", id="total-too-near-to-attempt",
    ),
    pytest.param(
        UPSTREAM + "[budgets]\nattempt_ms = 5000", 3, "budgets.total_ms", "5000", "5100 or more",
        id="default-total-too-near-to-attempt",
    ),
    pytest.param(
        UPSTREAM + "[health]\nfailure_threshold = 0", 4, "health.failure_threshold", "0",
        "1 to 1000", id="threshold-0",
    ),
    pytest.param(
        UPSTREAM + "[health]\nbase_backoff_ms = 0", 4, "health.base_backoff_ms", "0",
        "1 to 86400000", id="backoff-0",
    ),
    pytest.param(
        UPSTREAM + "[health]\nmax_backoff_ms = 499", 4, "health.max_backoff_ms", "499",
        "base_backoff_ms, which is 500", id="backoff-ends-below-its-start",
    ),
    pytest.param(
        UPSTREAM + "[tls]\nca_file = '/nowhere/ca.pem'", 4, "tls.ca_file", "'/nowhere/ca.pem'",
        "PEM certificates", id="ca-file-missing",
    ),
    pytest.param(
        UPSTREAM + "[web]\nlisten = '8053'", 4, "web.listen", "'8053'", "127.0.0.1:5300",
        id="web-a-port-alone",
    ),
    pytest.param(
        UPSTREAM + "[web]\nlisten = 8053", 4, "web.listen", "8053", "a string", id="web-a-number"
    ),
    pytest.param(
        UPSTREAM + "[web]\nallowed_hosts = ['pi.test:80']", 4, "web.allowed_hosts",
        "'pi.test:80'", "without a port", id="web-host-with-a-port",
    ),
    pytest.param(
        UPSTREAM + "[storage]\npath = 1", 4, "storage.path", "1", "a string", id="path-a-number"
    ),
    pytest.param(
        UPSTREAM + "[log]\nlevel = 'INFO'", 4, "log.level", "'INFO'",
        "debug, info, warning, error", id="level-in-capitals",
    ),
    pytest.param(
        UPSTREAM + "[log]\nformat = 'xml'", 4, "log.format", "'xml'", "text, json",
        id="format-unknown",
    ),
    pytest.param(
        "log = 'debug'\n" + UPSTREAM, 1, "log", "'debug'", "write [log]", id="table-a-string"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "key", "value", "remedy"), _WRONG_VALUES)
def test_a_wrong_value_is_one_line_with_file_line_key_value_and_what_would_be_right(
    tmp_path: Path, text: str, line: int, key: str, value: str, remedy: str
) -> None:
    [problem] = problems(tmp_path, text)
    start = f"{tmp_path / 'nxdns.toml'}:{line}: {key}: {value}: "
    assert problem.startswith(start)
    assert remedy in problem.removeprefix(start)
    assert problem.isprintable()


@pytest.mark.parametrize(
    ("text", "line", "key", "remedy"),
    [
        pytest.param(UPSTREAM + "priorty = 1", 3, "upstreams[0].priorty", "priority", id="typo"),
        pytest.param("colour = 1\n" + UPSTREAM, 1, "colour", "known are server,", id="at-the-top"),
        pytest.param(
            UPSTREAM + "[budget]\ntotal_ms = 1", 3, "budget", "did you mean budgets", id="table"
        ),
        pytest.param(
            UPSTREAM + "[log]\nverify = false", 4, "log.verify", "known are level, format", id="key"
        ),
        pytest.param(
            UPSTREAM + "[tls]\nverify = false", 4, "tls.verify", "ca_file", id="no-key-weakens-tls"
        ),
        pytest.param(
            "upstreams = [\n  {url = 'tls://127.0.0.1', prio = 1},\n]", 1, "upstreams[0].prio",
            "did you mean priority", id="in-an-inline-table",
        ),
    ],
)  # fmt: skip
def test_an_unknown_key_is_told_with_the_one_that_was_meant(
    tmp_path: Path, text: str, line: int, key: str, remedy: str
) -> None:
    [problem] = problems(tmp_path, text)
    start = f"{tmp_path / 'nxdns.toml'}:{line}: {key}: unknown key; "
    assert problem.startswith(start)
    assert remedy in problem.removeprefix(start)


@pytest.mark.parametrize(
    ("text", "start", "remedy"),
    [
        pytest.param("", ": upstreams: ", "[[upstreams]] with a url", id="empty-file"),
        pytest.param(
            UPSTREAM + "enabled = false", ":1: upstreams: no upstream is enabled",
            "set enabled = true", id="all-disabled",
        ),
        pytest.param(
            "[[upstreams]]\nname = 'a'", ":1: upstreams[0].url: is missing",
            'url = "tls://1.1.1.1:853"', id="no-url",
        ),
        pytest.param(
            "[upstreams]\nurl = 'tls://127.0.0.1'", ":1: upstreams: ", "[[upstreams]]",
            id="single-brackets",
        ),
        pytest.param(
            "upstreams = ['tls://127.0.0.1']", ":1: upstreams: ", "[[upstreams]]", id="a-list"
        ),
        pytest.param(
            "[[upstreams]]\nurl = 853", ":2: upstreams[0].url: must be", "a string", id="no-string"
        ),
    ],
)  # fmt: skip
def test_what_is_missing_or_may_be_a_secret_is_told_without_a_value(
    tmp_path: Path, text: str, start: str, remedy: str
) -> None:
    first, *_ = problems(tmp_path, text)
    start = f"{tmp_path / 'nxdns.toml'}{start}"
    assert first.startswith(start)
    assert remedy in first.removeprefix(start)


def test_all_problems_are_told_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = """\
[log]
level = "loud"
[[upstreams]]
url = "tls://127.0.0.1"
priority = "high"
colour = "red"
[[upstreams]]
url = "udp://127.0.0.1"
[budgets]
attempt_ms = -1
[web]
listen = "here"
allowed_hosts = [1]
[server]
listen = ["127.0.0.1:x"]
[unknown]
"""
    told = [problem.split(": ")[:2] for problem in problems(tmp_path, text)]
    file = tmp_path / "nxdns.toml"
    assert told == [
        [f"{file}:2", "log.level"],
        [f"{file}:5", "upstreams[0].priority"],
        [f"{file}:6", "upstreams[0].colour"],
        [f"{file}:8", "upstreams[1].url"],
        [f"{file}:10", "budgets.attempt_ms"],
        [f"{file}:12", "web.listen"],
        [f"{file}:13", "web.allowed_hosts"],
        [f"{file}:15", "server.listen"],
        [f"{file}:16", "unknown"],
    ]


def test_one_mistake_in_the_upstreams_is_one_problem(tmp_path: Path) -> None:
    assert len(problems(tmp_path, "[upstreams]\nurl = 'tls://127.0.0.1'")) == 1


@pytest.mark.parametrize(
    "key",
    [
        pytest.param('"a\\nb"', id="line-end"),
        pytest.param('"\\u001b[2J"', id="terminal-sequence"),
        pytest.param('"\\u202e"', id="right-to-left"),
    ],
)
def test_a_key_can_neither_break_the_line_nor_write_to_the_terminal(
    tmp_path: Path, key: str
) -> None:
    [problem] = problems(tmp_path, UPSTREAM + f"{key} = 1")
    assert problem.isprintable()


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, UPSTREAM + f"[log]\nlevel = '{'x' * 5000}'")
    assert "xxx" in problem
    assert len(problem) < len(str(tmp_path)) + 250
