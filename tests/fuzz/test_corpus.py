"""What fuzzing has found worth keeping breaks nothing; without atheris."""

import importlib
from pathlib import Path

import pytest

from tests.fuzz import CORPUS, TARGETS

MOST_FILES, MOST_BYTES = 100, 4096


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of_a_target_breaks_nothing(name: str) -> None:
    target = importlib.import_module(f"tests.fuzz.{name}").target
    files = _files(name)
    assert files
    for file in files:
        try:
            target(file.read_bytes())
        except Exception as error:
            raise AssertionError(f"{name}/{file.name}") from error


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of_a_target_is_small(name: str) -> None:
    files = _files(name)
    assert len(files) <= MOST_FILES
    assert all(file.stat().st_size <= MOST_BYTES for file in files)


def test_every_corpus_has_its_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


def _files(name: str) -> list[Path]:
    return sorted((CORPUS / name).iterdir())
