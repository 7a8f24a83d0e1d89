"""On which line each key of a TOML text stands."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from nxdns.config.lines import Path, key_lines, line_of

# What opens, closes, separates or ends something in TOML, where it is only text.
_TRICKY = ["[", "]", "{", "}", "#", "=", ",", ".", "[x]", "[[x]]", "x = 1", " ", "é", "→"]
# Line ends to Python, and plain characters to TOML.
_NO_LINE_ENDS = ["\u0085", "\u2028", "\u2029"]

_TEXT = st.lists(st.sampled_from([*_TRICKY, *_NO_LINE_ENDS]), max_size=5).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("a = 1\nb = 2", {("a",): 1, ("b",): 2}, id="keys"),
        pytest.param("\n# a = 0\n\na = 1", {("a",): 4}, id="comments-and-empty-lines"),
        pytest.param("  a=1\n\tb  =  2", {("a",): 1, ("b",): 2}, id="blanks-around"),
        pytest.param("a = 1\r\n\r\nb = 2\r\n", {("a",): 1, ("b",): 3}, id="crlf"),
        pytest.param("[t]\na = 1", {("t",): 1, ("t", "a"): 2}, id="table"),
        pytest.param("[ t . u ]  # x\na = 1", {("t", "u"): 1, ("t", "u", "a"): 2}, id="sub-table"),
        pytest.param("a.b . c = 1", {("a", "b", "c"): 1}, id="dotted"),
        pytest.param("\"a.b\" = 1\n'c d' = 2", {("a.b",): 1, ("c d",): 2}, id="quoted"),
        pytest.param('"a=[#" = 1\nb = 2', {("a=[#",): 1, ("b",): 2}, id="quoted-signs"),
        pytest.param(
            '["t]"]\na = 1\n["u"."v.w"]', {("t]",): 1, ("t]", "a"): 2, ("u", "v.w"): 3}, id="header"
        ),
        pytest.param(
            "[[t]]\na = 1\n[[t]]\na = 2",
            {("t",): 1, ("t", 0): 1, ("t", 0, "a"): 2, ("t", 1): 3, ("t", 1, "a"): 4},
            id="array-of-tables",
        ),
        pytest.param(
            "[[t]]\n[t.u]\na = 1\n[[t]]\n[t.u]\na = 2",
            {
                ("t",): 1,
                ("t", 0): 1,
                ("t", 0, "u"): 2,
                ("t", 0, "u", "a"): 3,
                ("t", 1): 4,
                ("t", 1, "u"): 5,
                ("t", 1, "u", "a"): 6,
            },
            id="sub-table-of-an-array",
        ),
        pytest.param(
            "[[t]]\n[[t.u]]\n[[t.u]]\na = 1\n[[t]]\n[[t.u]]",
            {
                ("t",): 1,
                ("t", 0): 1,
                ("t", 0, "u"): 2,
                ("t", 0, "u", 0): 2,
                ("t", 0, "u", 1): 3,
                ("t", 0, "u", 1, "a"): 4,
                ("t", 1): 5,
                ("t", 1, "u"): 6,
                ("t", 1, "u", 0): 6,
            },
            id="array-in-an-array",
        ),
        pytest.param("a = [\n  1, # ]\n  [2],\n]\nb = 1", {("a",): 1, ("b",): 5}, id="array"),
        pytest.param("a = [\"]\", '[']\nb = 1", {("a",): 1, ("b",): 2}, id="brackets-in-strings"),
        pytest.param("a = 1 # [\nb = 1", {("a",): 1, ("b",): 2}, id="bracket-in-a-comment"),
        pytest.param('a = "\\"" # "\nb = 1', {("a",): 1, ("b",): 2}, id="escaped-quote"),
        pytest.param("a = '\\'\nb = 1", {("a",): 1, ("b",): 2}, id="literal-backslash"),
        pytest.param('a = """\n[t]\nb = 1\n"""\nc = 1', {("a",): 1, ("c",): 5}, id="long-string"),
        pytest.param("a = '''\nb = 1\\'''\nc = 1", {("a",): 1, ("c",): 3}, id="long-literal"),
        pytest.param('a = """\\\n  b = 1"""\nc = 1', {("a",): 1, ("c",): 3}, id="joined-lines"),
        pytest.param('a = """b"" """\nc = 1', {("a",): 1, ("c",): 2}, id="quotes-in-long-string"),
        pytest.param("a = \"'''\"\nb = 1", {("a",): 1, ("b",): 2}, id="quotes-in-a-string"),
        pytest.param('a = ["", \'\', """"""]\nb = 1', {("a",): 1, ("b",): 2}, id="empty-strings"),
        pytest.param('a = ["""b"""", 1]\nc = 1', {("a",): 1, ("c",): 2}, id="four-quotes-end-it"),
        pytest.param("a = ['''b''''', 1]\nc = 1", {("a",): 1, ("c",): 2}, id="five-quotes-end-it"),
        pytest.param("# \u2028 \u0085\na = 1", {("a",): 2}, id="no-line-end-to-toml"),
        pytest.param("a = {b = [1], c = 2}\nd = 1", {("a",): 1, ("d",): 2}, id="inline-table"),
    ],
)
def test_every_key_and_header_has_its_line(text: str, expected: dict[Path, int]) -> None:
    tomllib.loads(text)  # else the row itself is wrong
    assert key_lines(text) == expected


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(("a", "b"), 2, id="key-of-an-inline-table"),
        pytest.param(("a", "b", "c", 4), 2, id="deeper-still"),
        pytest.param(("t", 0, "missing"), 3, id="missing-key-of-a-table"),
        pytest.param(("t", 0, "u", 0, "url"), 4, id="inline-table-in-an-array"),
        pytest.param(("missing",), None, id="missing-at-the-top"),
        pytest.param((), None, id="the-document"),
    ],
)
def test_what_has_no_line_of_its_own_has_that_of_the_key_around_it(
    path: Path, line: int | None
) -> None:
    text = "\na = {b = {c = [1]}}\n[[t]]\nu = [{url = 1}]\n"
    tomllib.loads(text)
    assert line_of(path, key_lines(text)) == line


@st.composite
def _multi_line(draw: st.DrawFn) -> str:
    quote = draw(st.sampled_from(['"', "'"]))
    pieces = draw(st.lists(st.one_of(_TEXT, st.sampled_from(["\n", quote, quote * 2])), max_size=6))
    content = "".join(pieces)
    while quote * 3 in content:
        content = content.replace(quote * 3, quote * 2)
    return f"{quote * 3}\n{content}{quote * 3}"


_SIMPLE = st.one_of(
    st.sampled_from(["1", "true", "1.5", "2024-02-29", '""', "''", '"\\""', '"\\\\"', "'\\'"]),
    _TEXT.map(lambda text: f'"{text}"'),
    _TEXT.map(lambda text: f"'{text}'"),
    _TEXT.map(lambda text: f"{{ a = '{text}', b = [1] }}"),
)
_COMMENT = _TEXT.map(lambda text: f"# {text}")


@st.composite
def _array(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    text = "["
    for item in draw(st.lists(items, max_size=3)):
        text += draw(st.sampled_from(["", "\n", " # ]\n"])) + item + ", "
    return text + draw(st.sampled_from(["", "\n"])) + "]"


_VALUES = st.recursive(st.one_of(_SIMPLE, _multi_line()), _array, max_leaves=4)


class _Writer:
    """A TOML text in the making, with the line of each of its keys."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.expected: dict[Path, int] = {}
        self.arrays: dict[str, int] = {}
        self._table: Path = ()
        self._names = 0

    def name(self, odd: str) -> tuple[str, str]:
        """A key nobody has yet, and how it is written; quoted if ``odd`` is more than nothing."""
        self._names += 1
        name = f"k{self._names}{odd}"
        return name, f'"{name}"' if odd else name

    def append(self, text: str) -> None:
        self.lines.extend(text.split("\n"))

    def assign(self, odd: list[str], value: str) -> None:
        names, written = zip(*(self.name(each) for each in odd), strict=True)
        self.expected[(*self._table, *names)] = len(self.lines) + 1
        self.append(f"{' . '.join(written)} = {value}")

    def table(self, odd: str) -> None:
        name, written = self.name(odd)
        self._header((name,), f"[{written}]")

    def array(self, name: str) -> None:
        index = self.arrays.get(name, 0)
        self.arrays[name] = index + 1
        self.expected.setdefault((name,), len(self.lines) + 1)
        self._header((name, index), f"[[ {name} ]]")

    def sub_table(self, array: str, odd: str) -> None:
        name, written = self.name(odd)
        self._header((array, self.arrays[array] - 1, name), f"[{array}.{written}]")

    def _header(self, path: Path, text: str) -> None:
        self._table = path
        self.expected[path] = len(self.lines) + 1
        self.append(text)


@st.composite
def _documents(draw: st.DrawFn) -> _Writer:
    writer = _Writer()
    odd = st.sampled_from(["", "", ".", " ", "=", "#", "[", "]]", "'"])
    for _ in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["comment", "assign", "assign", "table", "array", "sub-table"])):
            case "comment":
                writer.append(draw(st.one_of(_COMMENT, st.just(""))))
            case "assign":
                writer.assign(draw(st.lists(odd, min_size=1, max_size=2)), draw(_VALUES))
            case "table":
                writer.table(draw(odd))
            case "array":
                writer.array(draw(st.sampled_from(["upstreams", "others"])))
            case "sub-table" if writer.arrays:
                writer.sub_table(draw(st.sampled_from(sorted(writer.arrays))), draw(odd))
    return writer


@given(_documents())
def test_keys_are_found_whatever_the_values_and_comments_between_them(writer: _Writer) -> None:
    text = "\n".join(writer.lines)
    note(text)
    values = tomllib.loads(text)
    lines = key_lines(text)
    assert lines == writer.expected
    for path in lines:
        _at(values, path)


def _at(values: Any, path: Path) -> Any:
    """What stands at ``path``; raises when tomllib has nothing there."""
    for step in path:
        values = values[step]
    return values
