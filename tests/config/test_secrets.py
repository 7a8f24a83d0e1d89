"""A token in a URL never stands in an error, wherever its owner has put it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.files import UPSTREAM, loaded, problems

# The first letters keep a token from being, by chance, a word that a message holds anyway.
_TOKENS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=6, max_size=24).map(
    "zqj".__add__
)

# What varies much is the place, which has a row of its own.
_FEW = settings(max_examples=15)

# Each is wrong in at least one way, with TOKEN somewhere in what may be a secret.
_UPSTREAMS = [
    pytest.param("url = 'https://a.test/TOKEN?x=1'", id="path-before-a-query"),
    pytest.param("url = 'https://a.test/TOKEN#x'", id="path-before-a-fragment"),
    pytest.param("url = 'https://a.test:99999/TOKEN'", id="path-behind-a-bad-port"),
    pytest.param("url = 'https://a_b..test/TOKEN'", id="path-behind-a-bad-host"),
    pytest.param("url = 'https:///TOKEN'", id="path-without-a-host"),
    pytest.param("url = 'https://[::1/TOKEN'", id="path-behind-an-open-bracket"),
    pytest.param("url = 'https://a.test/TOKENé'", id="path-not-ascii"),
    pytest.param("url = 'https://a.test/dns-query/TOKEN x'", id="path-with-a-blank"),
    pytest.param("url = 'https://a.test/dns-query?k=TOKEN'", id="query"),
    pytest.param("url = 'https://a.test?TOKEN'", id="query-without-a-path"),
    pytest.param("url = 'https://a.test/dns-query#TOKEN'", id="fragment"),
    pytest.param("url = 'https://a.test#TOKEN'", id="fragment-without-a-path"),
    pytest.param("url = 'https://TOKEN@a.test/dns-query'", id="user"),
    pytest.param("url = 'https://user:TOKEN@a.test/dns-query'", id="password"),
    pytest.param("url = 'https://user:x/TOKEN@a.test/'", id="password-with-a-slash"),
    pytest.param("url = 'https://user:TOKEN/x@a.test/'", id="password-before-a-slash"),
    pytest.param("url = 'https://user:TOKEN?x@a.test/'", id="password-before-a-question-mark"),
    pytest.param("url = 'https://user:TOKEN#x@a.test/'", id="password-before-a-hash"),
    pytest.param("url = 'https://user:x@TOKEN@a.test/'", id="password-with-an-at"),
    pytest.param("url = 'https://a.test/x@TOKEN'\nenabled = 1", id="path-with-an-at"),
    pytest.param("url = 'tls://127.0.0.1/TOKEN'", id="path-of-dot"),
    pytest.param("url = 'tls://TOKEN@127.0.0.1'", id="user-of-dot"),
    pytest.param("url = 'http://a.test/TOKEN'", id="other-scheme"),
    pytest.param("url = 'a.test/TOKEN'", id="no-scheme"),
    pytest.param("url = 'https:/a.test/TOKEN'", id="one-slash"),
    pytest.param("url = 'TOKEN'", id="nothing-else"),
    pytest.param("url = ['https://a.test/TOKEN']", id="list"),
    pytest.param("url = {https = 'a.test/TOKEN'}", id="inline-table"),
    pytest.param("url = [['TOKEN']]", id="list-in-a-list"),
    pytest.param("url = 'https://a.test/TOKEN'\npriority = 'x'", id="beside-another-problem"),
    pytest.param(
        "url = 'https://a.test/TOKEN'\n[[upstreams]]\nurl = 'https://a.test/TOKEN'", id="twice"
    ),
    pytest.param("url = 'https://a.test/TOKEN'\nenabled = false", id="disabled"),
    pytest.param("urI = 'https://a.test/TOKEN'", id="unknown-key"),
    pytest.param("url = 'tls://127.0.0.1'\ntoken = 'TOKEN'", id="unknown-key-beside-a-url"),
    pytest.param("url = 'tls://127.0.0.1'\n[upstreams.auth]\nkey = 'TOKEN'", id="unknown-table"),
    pytest.param("url = 'tls://127.0.0.1'\ntls_name = 'https://a.test/TOKEN'", id="url-as-a-name"),
    pytest.param("url = 'tls://127.0.0.1'\ntls_name = 'dns.a.test/TOKEN'", id="name-with-a-path"),
    pytest.param("url = 'https://a.test/TOKEN", id="open-string"),
    pytest.param("url = https://a.test/TOKEN", id="no-string"),
    pytest.param("url = 'https://a.test/TOKEN'\nurl = 'https://a.test/TOKEN'", id="key-twice"),
    pytest.param('url = "https://a.test/TOKEN\\"', id="bad-escape"),
]

_FILES = [
    pytest.param("[upstreams]\nurl = 'https://a.test/TOKEN'", id="single-brackets"),
    pytest.param("upstreams = 'https://a.test/TOKEN'", id="upstreams-a-string"),
    pytest.param("upstreams = ['https://a.test/TOKEN']", id="upstreams-a-list"),
    pytest.param("[[upstream]]\nurl = 'https://a.test/TOKEN'", id="unknown-array"),
    pytest.param("[[server]]\nurl = 'https://a.test/TOKEN'", id="another-array"),
    pytest.param("[server]\nlisten = [{url = 'https://a.test/TOKEN'}]", id="table-in-listen"),
    pytest.param("url = 'https://a.test/TOKEN'\n" + UPSTREAM, id="url-at-the-top"),
    pytest.param("[server]\nurl = 'https://a.test/TOKEN'\n" + UPSTREAM, id="url-in-another-table"),
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples: each overwrites its file."""
    return tmp_path_factory.mktemp("secrets")


@_FEW
@given(token=_TOKENS)
@pytest.mark.parametrize("body", _UPSTREAMS)
def test_a_token_in_an_upstream_is_in_no_problem(folder: Path, body: str, token: str) -> None:
    told = problems(folder, "[[upstreams]]\n" + body.replace("TOKEN", token))
    assert told, "the row is not wrong, so it proves nothing"
    assert token not in "\n".join(told)


@_FEW
@given(token=_TOKENS)
@pytest.mark.parametrize("text", _FILES)
def test_a_token_that_stands_in_the_wrong_place_is_in_no_problem(
    folder: Path, text: str, token: str
) -> None:
    told = problems(folder, text.replace("TOKEN", token))
    assert told, "the row is not wrong, so it proves nothing"
    assert token not in "\n".join(told)


@given(token=_TOKENS)
def test_a_token_in_a_good_path_is_in_no_label(folder: Path, token: str) -> None:
    url = f"https://a.test/{token}"
    text = f"[[upstreams]]\nurl = '{url}'\n[[upstreams]]\nurl = '{url}/x'\n"
    config = loaded(folder, text)
    assert [each.endpoint.path for each in config.upstreams] == [f"/{token}", f"/{token}/x"]
    assert token not in "".join(each.label + each.endpoint.redacted for each in config.upstreams)
