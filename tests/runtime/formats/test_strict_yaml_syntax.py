"""What the YAML reader checks in the text itself, and that both parsers below it give one verdict."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.formats import strict_yaml
from tachograph.runtime.formats.shipped_files import shipped
from tachograph.runtime.formats.strict_yaml import YamlError, load

QUIET = settings(deadline=None, database=None)
C_LOADER = getattr(yaml, "CSafeLoader", None)


@pytest.fixture(params=["default", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers that may stand below the reader."""
    if request.param == "pure":
        monkeypatch.setattr(strict_yaml, "_LOADER", yaml.SafeLoader)
    return str(request.param)


REFUSED: list[tuple[str, int, int, str]] = [
    # tabs: not between values, not in text without quotes, not where a line begins
    ("a:\tb\n", 1, 3, "tab"),
    ("a:\t\n  b\n", 1, 3, "tab"),
    ("a: b\tc\n", 1, 5, "tab"),
    ("a: b\t# c\n", 1, 5, "tab"),
    ("a\t: b\n", 1, 2, "tab"),
    ("a: [b,\tc]\n", 1, 7, "tab"),
    ("a: [\t]\n", 1, 5, "tab"),
    ("a: [b]\t\n", 1, 7, "tab"),
    ("-\tb\n", 1, 2, "tab"),
    ("?\tb\n", 1, 2, "tab"),
    ("---\tb\n", 1, 4, "tab"),
    ("a: &x\t[b]\n", 1, 6, "tab"),
    ("a: b\n\t\n", 2, 1, "tab"),
    ("a: b\nc\td\n", 0, 0, ""),
    ("a: b\n\t# c\n", 2, 1, "tab"),
    ("a: 'b\n \tc'\n", 2, 2, "tab"),
    ("a: |\t\n  b\n", 1, 0, ""),
    ("a: |\n\tb\n", 2, 1, "tab"),
    ("a: |\n\n  \tb\n", 3, 3, "tab"),
    ("a: |\n  b\n \tc\n", 3, 2, "tab"),
    # ? and : in brackets
    ("a: [b? ]\n", 1, 6, "?"),
    ("a: [b?c]\n", 1, 6, "?"),
    ("a: {b?: c}\n", 1, 6, "?"),
    ("a: {?b: c}\n", 1, 5, "?"),
    ("a: {b:}\n", 1, 6, "colon"),
    ("a: {b:, c: d}\n", 1, 6, "colon"),
    ("a: {b:[c]}\n", 1, 6, "colon"),
    ("a: [b:]\n", 1, 6, "colon"),
    ("a: {b  :}\n", 1, 8, "colon"),
    # comments without their blank
    ("a: [b]#c\n", 1, 7, "#"),
    ("a: {b: c}#\n", 1, 10, "#"),
    ("a: [b,#c\n  d]\n", 1, 7, "#"),
    ("a: 'b'#c\n", 1, 7, "#"),
    ('a: "b"#c\n', 1, 7, "#"),
    ("b: &x [c]\na: *x#c\n", 2, 6, ""),
    # the first line of a block
    ("a: >#-\n  b\n", 1, 0, "behind"),
    ("a: >-#\n  b\n", 1, 0, "behind"),
    ("a: | b\n  c\n", 1, 0, "behind"),
    ("a: |0\n  c\n", 1, 0, "behind"),
    ("a: |--\n  c\n", 1, 0, "behind"),
    # lines of a value that are not deeper than what holds it
    ("a: [b,\nc]\n", 2, 1, "deeper"),
    ("a: [\n  b\n]\n", 3, 1, "deeper"),
    ("a: {b: c,\nd: e}\n", 2, 1, "deeper"),
    ("a: 'b\nc'\n", 2, 1, "deeper"),
    ('a: "b\nc"\n', 2, 1, "deeper"),
    ('a: ["b\n#c"]\n', 2, 1, "deeper"),
    ("- [b,\nc]\n", 2, 1, "deeper"),
    ("a:\n  b: [c,\n  d]\n", 3, 3, "deeper"),
    ("a: &x\n  - [c,\n  d]\n", 3, 3, "deeper"),
    ("a: &x # c\n\n    b: [c,\n    d]\n", 4, 5, "deeper"),
    ("- - a: [c,\n    d]\n", 2, 5, "deeper"),
    ("a:\n|\n  b\n", 2, 1, "deeper"),
    ("-\n>\n  b\n", 2, 1, "deeper"),
    ("a: |\n   \n b\n", 3, 2, "blank lines"),
    ("a: |\n  b", 1, 4, "line feed"),
    ("a: >+\n  b\n\n  ", 1, 4, "line feed"),
    # anchors and escapes
    ("a: &x:y b\n", 1, 4, "anchor"),
    ("a: &\u00e9 b\n", 1, 4, "anchor"),
    ("a: & b\n", 1, 4, "anchor"),
    ('a: "b\\q"\n', 1, 0, "escape"),
    ('a: "\\u12"\n', 1, 0, "escape"),
    ('a: "\\UFFFFFFFF"\n', 1, 0, "escape"),
    ('a: "\\\\\\ud800"\n', 1, 0, "half"),
    ('a: "\\U0000dfff"\n', 1, 0, "half"),
    ('a: "\\ud83d\\ude00"\n', 1, 0, "half"),
    # the end of the file is its last line
    ("a: [b", 1, 6, "ends here"),
    ("a: [b:\ny", 2, 2, "ends here"),
    ("a:\nb", 2, 2, "ends here"),
    # a tag stands behind its anchor
    ("a: &x ![1]\n", 1, 7, "tags"),
    ("a: &x !y b\n", 1, 7, "tags"),
    ("%a\nb: c\n", 1, 1, "directives"),
]


@pytest.mark.parametrize(("text", "line", "column", "part"), REFUSED)
def test_refused(parser: str, text: str, line: int, column: int, part: str) -> None:
    with pytest.raises(YamlError) as caught:
        load(text.encode(), "f.yaml")
    # after some mistakes each parser stops elsewhere: 0 where only the verdict, or only the line, is one
    place = (caught.value.line if line else 0, caught.value.column if column else 0)
    assert place == (line, column), caught.value.message
    assert part in caught.value.message
    assert caught.value.message.isascii() and caught.value.message.isprintable()


ACCEPTED: list[tuple[str, Any]] = [
    ("a: 'b\tc' # d\te\n#\tf\n", {"a": "b\tc"}),
    ('a: "b\tc"\n', {"a": "b\tc"}),
    ("a: |\n  b\tc\n  \td\n", {"a": "b\tc\n\td\n"}),
    ("a: ['b?c', \"d?\"] # e?\nb: c?d\nc: ?d\n", {"a": ["b?c", "d?"], "b": "c?d", "c": "?d"}),
    ("{? a : b, ? c}\n", {"a": "b", "c": None}),
    ('{"a":b, "c":[d], e: , f: g:h}\n', {"a": "b", "c": ["d"], "e": None, "f": "g:h"}),
    ("a: b#c\nd: [e#f, '#', \"g #\"] #\n", {"a": "b#c", "d": ["e#f", "#", "g #"]}),
    ("a: |-2 # c\n   b\n", {"a": " b"}),
    ("a: >+  \n  b\n\nc: |1-\n  d\n", {"a": "b\n\n", "c": " d"}),
    ("a: |-\n  b", {"a": "b"}),
    ("a: |\n\n  \n  b\nc: |\n    \nd: e\n", {"a": "\n\nb\n", "c": "", "d": "e"}),
    ("[a,\nb,\n{c:\nd}]\n", ["a", "b", {"c": "d"}]),
    ("'a\nb'\n", "a b"),
    ("a: [b,\n# c\n\n d,\n 'e\n\n f']\n", {"a": ["b", "d", "e\nf"]}),
    ("- a: [c,\n    d]\n", [{"a": ["c", "d"]}]),
    ("a: &x-1_Y\n  - &y b\n  - [&z , *y]\n", {"a": ["b", [None, "b"]]}),
    ('a: "\\x41\\u00e9\\U0001f600\\/\\\n   b"\n', {"a": "A\u00e9\U0001f600/b"}),
    ("a:\n- \n-\n- b\n", {"a": [None, None, "b"]}),
    ("---\n# b\na: b\n... # c\n", {"a": "b"}),
]


@pytest.mark.parametrize(("text", "data"), ACCEPTED)
def test_accepted(parser: str, text: str, data: Any) -> None:
    assert load(text.encode(), "f.yaml").data == data
    assert yaml.safe_load(text) == data


# ---- both parsers ------------------------------------------------------------------------------------------

SNIPPETS = [
    "a: [b, c]\nd: {e: 1, f: g}\n", "a:\n  - b\n  - c: d\n    e: f\n", "a: |\n  x\n   y\n\nb: >-\n  x\n  y\n",
    "a: 'x''y'\nb: \"x\\ny\"\nc: x y\n", "? a\n: b\n? c\n: - d\n", "a: &x [1]\nb: *x\n",
    "- a\n- - b\n  - c\n-\n  d: e\n", "a: b # c\n# d\ne: f\n", "a: http://x:80/#f\nb: -1\nc: ~\nd: true\n",
    "a: [x,\n  'y\n  z', {b: \"c\n   d\"}]\n", "a: |2-\n    x\n   y\nb: |+\n\n c\n\n", "--- # c\na: b\n...\n",
]  # fmt: skip
PIECES = [
    *"\n \t#:-?[]{},'\"|>!&*%@`\\~=x\u00e9\U0001f600", "\n  ", "\n    ", "  ", " #", ": ", "- ", "? ", "|2\n",
    "|+\n", ">-\n", "&x ", "&y", "*x", "!!str ", "null", "1.0", "<<: ", "--- ", "...\n", "\r\n", "''", '""',
    "\\\n", "12:30", "2001-01-01", "y", "\\x4", "\\ud800", ":\n", ": ]", "? }", ": |\n\t", "\u00a0",
]  # fmt: skip


def _policies() -> list[str]:
    files = [shipped("policy/v1.yaml"), *sorted(shipped("policy/overlays").glob("*.yaml"))]
    return [file.read_text(encoding="utf-8") for file in files]


def _outcome(text: str, loader: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """(what was read, the place of a refusal)."""
    monkeypatch.setattr(strict_yaml, "_LOADER", loader)
    try:
        document = load(text.encode(), "f.yaml")
    except YamlError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert 1 <= error.column <= len(text.split("\n")[error.line - 1]) + 1
        return None, (error.line, error.column)
    return repr(document), None


def _mutants(draw: random.Random, count: int) -> Iterator[str]:
    seeds = [*SNIPPETS, *_policies()]
    for _ in range(count):
        text = draw.choice(seeds)
        for _ in range(draw.choice((1, 1, 2, 3))):
            at, kind = draw.randrange(len(text) + 1), draw.random()
            if kind < 0.65:
                text = text[:at] + draw.choice(PIECES) + text[at:]
            elif kind < 0.85:
                text = text[:at] + text[at + draw.randrange(1, 4) :]
            else:
                other = draw.randrange(len(text) + 1)
                text = text[:at] + text[other : other + 20] + text[at:]
        yield text


@pytest.mark.skipif(C_LOADER is None, reason="PyYAML was built without libyaml: there is one parser only")
def test_both_parsers_give_one_verdict_on_mutated_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    read, refused, elsewhere = 0, 0, []
    for text in _mutants(random.Random(20260101), 3000):
        quick, place = _outcome(text, C_LOADER, monkeypatch)
        pure, other = _outcome(text, yaml.SafeLoader, monkeypatch)
        assert quick == pure, text
        read += quick is not None
        refused += quick is None
        if place != other:
            elsewhere.append((text, place, other))
    print(f"{read} read, {refused} refused, {len(elsewhere)} of them at another place")
    assert read > 500 and refused > 1000
    # after a second mistake the parsers give up at different places; for one mistake they hardly ever do
    assert len(elsewhere) < refused / 100, elsewhere


@pytest.mark.skipif(C_LOADER is None, reason="PyYAML was built without libyaml: there is one parser only")
@settings(QUIET, max_examples=500)
@given(st.lists(st.sampled_from([*PIECES, "a", "b", "a: ", "- a"]), max_size=25).map("".join))
def test_both_parsers_give_one_verdict_on_any_text(text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        assert _outcome(text, C_LOADER, patched)[0] == _outcome(text, yaml.SafeLoader, patched)[0]
