"""Files that cannot be read as a configuration at all."""

from pathlib import Path

import pytest

from nxdns.config import ConfigError, load
from tests.config.files import UPSTREAM, problems, written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[server", "at end of document", id="unclosed-header"),
        pytest.param("\n[log]\nlevel = info", "line 3", id="unquoted-string"),
        pytest.param("[log]\n[log]", "line 2", id="table-twice"),
        pytest.param(UPSTREAM + "url = 'tls://127.0.0.2'\n", "line 3", id="key-twice"),
        pytest.param(UPSTREAM + "priority = " + "1" * 5_000, "", id="endless-number"),
        pytest.param(UPSTREAM + "priority = 0x" + "f" * 5_000, "", id="endless-hexadecimal"),
        pytest.param(UPSTREAM + "name = " + "[" * 5_000 + "]" * 5_000, "", id="endless-nesting"),
    ],
)
def test_a_file_that_is_no_toml_or_beyond_reading_is_one_line(
    tmp_path: Path, text: str, words: str
) -> None:
    [problem] = problems(tmp_path, text)
    assert problem.startswith(str(tmp_path / "nxdns.toml"))
    assert words in problem
    assert problem.isprintable()


def test_a_file_that_is_not_utf_8_says_so(tmp_path: Path) -> None:
    file = tmp_path / "nxdns.toml"
    file.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.problems == [f"{file}: is not UTF-8 text"]


def test_a_missing_file_and_a_folder_are_one_line_with_the_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigError) as caught:
            load(path)
        [problem] = caught.value.problems
        assert problem.startswith(f"{path}: cannot be read: ")


def test_a_ca_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate\n")
    [problem] = problems(tmp_path, UPSTREAM + "[tls]\nca_file = 'empty.pem'")
    assert problem.startswith(f"{tmp_path / 'nxdns.toml'}:4: tls.ca_file: ")


def test_the_text_of_the_error_is_all_of_its_problems(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, "a = 1\nb = 2\n" + UPSTREAM))
    assert str(caught.value).splitlines() == caught.value.problems
    assert len(caught.value.problems) == 2
