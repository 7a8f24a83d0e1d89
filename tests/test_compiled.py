"""What the compiled modules must not do, for mypyc would make of it what the source does not say.

mypyc 2.4 compiles a class with a base that it does not know as if it knew its layout, which writes
over memory, and gives a name that several handlers of one function use the type of the first.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETUP = (ROOT / "setup.py").read_text()

# Bases that mypyc knows: builtin exceptions but those of I/O, and what makes a class of its own.
KNOWN = {"ValueError", "Protocol", "NamedTuple", "enum.Enum", "enum.IntEnum"}


def compiled_modules() -> list[str]:
    """The paths in setup.py's COMPILED."""
    tree = ast.parse(SETUP)
    [assigned] = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED"
    ]
    modules: list[str] = ast.literal_eval(assigned.value)
    return modules


MODULES = compiled_modules()
OURS = {
    node.name
    for path in MODULES
    for node in ast.walk(ast.parse((ROOT / path).read_text()))
    if isinstance(node, ast.ClassDef)
}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_there_are_compiled_modules_and_each_is_named_once() -> None:
    assert len(MODULES) > 20
    assert len(set(MODULES)) == len(MODULES)


@pytest.mark.parametrize("path", MODULES)
def test_its_classes_have_bases_that_the_compiler_knows(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    bases = {
        ast.unparse(base)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    assert bases <= KNOWN | OURS


@pytest.mark.parametrize("path", MODULES)
def test_no_two_handlers_of_a_function_use_one_name(path: str) -> None:
    for function in functions(ast.parse((ROOT / path).read_text())):
        names = Counter(
            node.name
            for node in ast.walk(function)
            if isinstance(node, ast.ExceptHandler) and node.name
        )
        assert [name for name, times in names.items() if times > 1] == [], function.name


@pytest.mark.parametrize("path", MODULES)
def test_what_does_not_change_is_final(path: str) -> None:
    """Anything else at the top of a module is looked up each time."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign):
            [target] = node.targets
            # A type's own name is written in words; it is no value that a query meets.
            assert re.fullmatch(r"_?([A-Z][a-z]+)+", ast.unparse(target)), ast.unparse(node)
