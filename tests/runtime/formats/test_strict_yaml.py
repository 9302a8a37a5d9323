"""The strict YAML reader: what it reads, what it refuses, where it points, and that it stays bounded."""

from __future__ import annotations

import itertools
import json
import re
import time
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.formats import strict_yaml
from tachograph.runtime.formats.strict_yaml import YamlError, load

QUIET = settings(deadline=None, database=None)


def read(text: str | bytes) -> Any:
    return load(text if isinstance(text, bytes) else text.encode("utf-8"), "f.yaml").data


def refusal(text: str | bytes) -> YamlError:
    with pytest.raises(YamlError) as caught:
        read(text)
    return caught.value


@pytest.fixture(params=["default", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers that may stand below the reader."""
    if request.param == "pure":
        monkeypatch.setattr(strict_yaml, "_LOADER", yaml.SafeLoader)
    return str(request.param)


ACCEPTED: list[tuple[str, Any]] = [
    ("a: 1\nb: [x, 'y', \"z\"]\n", {"a": 1, "b": ["x", "y", "z"]}),
    ("a: true\nb: false\nc: null\nd: ~\ne:\n", {"a": True, "b": False, "c": None, "d": None, "e": None}),
    ("[0, -7, 42, 0.5, -0.25, 10.0]", [0, -7, 42, 0.5, -0.25, 10.0]),
    ("[9007199254740991, -9007199254740991]", [2**53 - 1, 1 - 2**53]),
    ('["true", \'1\', "null", "2026-01-01", ""]', ["true", "1", "null", "2026-01-01", ""]),
    ("a: |\n  yes\nb: >\n  1\n  2\n", {"a": "yes\n", "b": "1 2\n"}),
    ("[10.0.0.1, 10.0.0.0/8, 1.2.3, a:b]", ["10.0.0.1", "10.0.0.0/8", "1.2.3", "a:b"]),
    ("[host:8080, v1, 127.1:80]", ["host:8080", "v1", "127.1:80"]),
    ("[y, n, Y, N]", ["y", "n", "Y", "N"]),
    ("[yesterday, offer, oneself, nullable]", ["yesterday", "offer", "oneself", "nullable"]),
    ("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}),
    ("'true': 1\n\"2\": 3\n", {"true": 1, "2": 3}),
    ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ("# first\n---\na: 1\n...\n# last\n", {"a": 1}),
    ('a: "\\t\\n\\x1b\\u200b\\u202e"\n', {"a": "\t\n\x1b\u200b\u202e"}),
    ("a: ❤️ ☃ 日本語\n", {"a": "❤️ ☃ 日本語"}),
    ("a: |\n  x\n  \ty\n", {"a": "x\n\ty\n"}),
    ("a: 'x\ty' # tab\tinside\n", {"a": "x\ty"}),
    ("null\n", None),
    ('{"json": [1, {"is": "yaml"}]}', {"json": [1, {"is": "yaml"}]}),
    ("? explicit\n: 1\n", {"explicit": 1}),
]


@pytest.mark.parametrize(("text", "data"), ACCEPTED)
def test_accepted(parser: str, text: str, data: Any) -> None:
    got = read(text)
    assert got == data
    assert json.dumps(got) == json.dumps(data)  # 1, 1.0 and True are equal to Python


REFUSED: list[tuple[str | bytes, int, int, str]] = [
    ("", 1, 1, "empty"),
    ("# nothing\n", 1, 1, "empty"),
    ("---\n", 2, 1, "empty"),
    ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
    ("%YAML 1.2\n---\na: 1\n", 1, 1, "directives"),
    ("# c\n%TAG ! tag:x,2000:\n---\na: 1\n", 2, 1, "directives"),
    ("a: !!str x\n", 1, 4, "tags"),
    ("a: ! x\n", 1, 4, "tags"),
    ("a: &x !y [1]\n", 1, 7, "tags"),
    ("!!map\na: 1\n", 1, 1, "tags"),
    ("a: &b {x: 1}\nc:\n  <<: *b\n", 3, 3, "merge"),
    ("a: 1\nb: 2\na: 3\n", 3, 1, "1:1"),
    ('abc: 1\n"\\x61bc": 2\n', 2, 1, "already"),
    ("1: x\n", 1, 1, "quote it"),
    ("yes: x\n", 1, 1, "quote it"),
    ("? [a]\n: x\n", 1, 3, "key"),
    ("a: &k x\n*k : y\n", 2, 1, "key"),
    (": x\n", 1, 1, ""),
    ('"": x\n', 1, 1, "missing"),
    ('"a\\u200bb": 1\n', 1, 1, "U+200B"),
    ("a: &x [*x]\n", 1, 8, "inside its own"),
    ("a: *x\n", 1, 4, "not defined"),
    ("a: &x 1\nb: &x 2\n", 2, 4, "above already"),
    ("a: 9007199254740992\n", 1, 4, "2^53"),
    ("a: 1" + "0" * 400 + ".0\n", 1, 4, "too large"),
    ("a:\n\t- b\n", 2, 1, "tab"),
    ('a: "b\n\tc"\n', 2, 1, "tab"),
    ("a: [b\n", 2, 1, "file ends here"),
    ("a: @b\n", 1, 4, "@"),
    ("a: b: c\n", 1, 5, "not valid YAML"),
    ('a: "x"# c\n', 1, 7, "#"),
    ("a: [-]\n", 1, 5, "quote it"),
    ('a: "\\ud800"\n', 1, 0, ""),
    ('a: "\\UFFFFFFFF"\n', 1, 0, ""),
    (b"a: \xff\n", 1, 4, "UTF-8"),
    ("ok: 1\né: ".encode() + b"\xe9\n", 2, 4, "UTF-8"),
    (b"\xef\xbb\xbfa: 1\n", 1, 1, "starts with a byte order mark; save it as UTF-8 without one"),
    ("a: 1".encode("utf-16"), 1, 1, "UTF-8"),
    ("a: 1".encode("utf-32"), 1, 1, "UTF-8"),
    ("a: 1".encode("utf-16-be"), 1, 1, "U+0000"),
    ("a: 1\rb: 2\r", 1, 5, "carriage return"),
    ("a: 1\n# é\u200b\n", 2, 4, "U+200B"),
]


@pytest.mark.parametrize(("text", "line", "column", "part"), REFUSED)
def test_refused(parser: str, text: str | bytes, line: int, column: int, part: str) -> None:
    error = refusal(text)
    assert part in error.message
    assert error.line == line
    if column:  # the parsers place an escape differently
        assert error.column == column
    assert str(error) == f"f.yaml:{error.line}:{error.column}: {error.message}"
    assert error.message.isascii() and error.message.isprintable() and len(error.message) < 160


# ---- generated classes: the label is computed, not written down --------------------------------------------


def _hidden() -> list[str]:
    chosen = [
        chr(c) for c in [*range(0x20), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x2028, 0x202F)]
    ]
    chosen += [chr(c) for c in [0xFEFF, 0x061C, *range(0x2060, 0x2070), 0xFFFE, 0x1FFFF, 0xFDD0, 0xE0041]]
    return [c for c in chosen if c not in "\t\n"]


def _hidden_texts() -> list[str]:
    places = ("a{0}b: 1\n", "a: x{0}y\n", "a: 'x{0}y'\n", "a: 1 # x{0}y\n")
    return [place.format(c) for place, c in itertools.product(places, _hidden())]


WORDS = ["yes", "no", "on", "off", "true", "false", "null"]
NUMBERS = (
    "1_000 0o17 017 0x1F 0b11 +1 -0 .5 1. 1e3 1E+3 1.5e3 -.5 08 1:30 190:20:30 1:30.5 .inf -.INF .NaN 1_0.5 "
    "+.inf -0x1f 00 0777 -1_0"
).split()
DATES = ["2026-01-01", "2026-1-2T3:04:05Z", "2026-01-01 03:04:05 +01:00", "2001-12-14t21:59:43.10-05:00"]


def _ambiguous() -> list[str]:
    words = {form for word in WORDS for form in (word.title(), word.upper(), word[0] + word[1:].upper())}
    return sorted(words | {"yes", "no", "on", "off"}) + NUMBERS + DATES + ["=", "<<"]


def _ambiguous_texts() -> list[str]:
    return [form.format(token) for token in _ambiguous() for form in ("a: {}\n", "[{}]", "- x\n- {}\n")]


def _key_texts() -> list[str]:
    tokens = [*_ambiguous(), "true", "false", "null", "~", "0", "12", "-3", "1.5"]
    return [form.format(t) for t in tokens for form in ("{}: x\n", "a:\n  {}: x\n", "{{ {} : x}}")]


def _tag_texts() -> list[str]:
    tags = [
        "!",
        "!x",
        "!!str",
        "!!int",
        "!!map",
        "!!python/object/apply:os.system",
        "!<tag:x,2000:y>",
        "!!binary",
    ]
    nodes = ["x", "'x'", "[x]", "{x: y}", "&b x", "|\n  x"]
    return [form.format(tag, node) for tag in tags for node in nodes for form in ("a: {} {}\n", "- {} {}\n")]


def _duplicate_texts() -> list[str]:
    spellings = ["key", "'key'", '"key"', '"k\\x65y"', '"\\u006bey"', "? key\n"]
    forms = ["{0}: 1\n{1}: 2\n", "{0}: 1\nother: 0\n{1}: 1\n"]
    return [form.format(*pair) for form in forms for pair in itertools.product(spellings, spellings)]


def _deep_texts() -> list[str]:
    texts = ["[" * n for n in range(65, 90)] + ["- " * n + "x\n" for n in range(65, 90)]
    return texts + ["{a: " * n + "1" + "}" * n for n in range(65, 90)]


def _alias_texts() -> list[str]:
    many = [f"a: &a x\nb: [{', '.join(['*a'] * n)}]\n" for n in range(17, 50)]
    wide = [f"a: &a [{'x, ' * 15000}]\nb: [{', '.join(['*a'] * n)}]\n" for n in range(14, 17)]
    deep = [f"a: &a {'[' * n}{']' * n}\nb: {'[' * (66 - n)}*a{']' * (66 - n)}\n" for n in range(3, 63)]
    return many + wide + deep


CLASSES: dict[str, tuple[Callable[[], list[str]], str]] = {
    "hidden characters": (_hidden_texts, "U[+]|carriage"),
    "ambiguous scalars": (_ambiguous_texts, "disagree"),
    "keys that are no text": (_key_texts, "disagree|not text|merge"),
    "tags": (_tag_texts, "tags"),
    "duplicate keys": (_duplicate_texts, "already"),
    "too deep": (_deep_texts, "deeper"),
    "aliases": (_alias_texts, "aliases|more than|deeper"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_generated_refusals(name: str) -> None:
    make, reason = CLASSES[name]
    texts = make()
    assert len(texts) >= 50
    for text in texts:
        assert re.search(reason, refusal(text).message), text


def test_generated_quoted_forms_are_text() -> None:
    tokens = [*_ambiguous(), "true", "null", "~", "1", "1.5", "y"]
    assert len(tokens) >= 50
    for token in tokens:
        assert read(f"'{token}': '{token}'\nb: \"{token}\"\n") == {token: token, "b": token}


# YAML 1.2, core schema: everything but text
_CORE = re.compile(
    r"null|Null|NULL|~||true|True|TRUE|false|False|FALSE|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def _other_readers_say_text(token: str) -> bool:
    resolver: Any = yaml.SafeLoader("")
    is_text: bool = resolver.resolve(yaml.ScalarNode, token, (True, False)) == "tag:yaml.org,2002:str"
    return is_text and _CORE.fullmatch(token) is None


TOKENS = st.text("0123456789.+-_:eExobinfaNTtZ ", min_size=1, max_size=12).map(str.strip).filter(bool)
NEAR = st.sampled_from(_ambiguous()).flatmap(
    lambda t: st.sampled_from([t, t + "0", t[:-1] or "0", t.swapcase()])
)


@settings(QUIET, max_examples=1500)
@given(TOKENS | NEAR)
def test_text_is_text_to_every_reader(token: str) -> None:
    try:
        data = read(f"- {token}\n")
    except YamlError:
        return
    if data == [token]:
        assert _other_readers_say_text(token), token
    elif isinstance(data, list) and isinstance(data[0], (int, float)) and ":" not in token:
        assert yaml.safe_load(f"- {token}\n") == data


# ---- properties --------------------------------------------------------------------------------------------


ANY_BYTES = st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))
YAML_LIKE = st.text(" \n-:?[]{},&*!|>'\"%@`#ab1~<=\t\r", max_size=120).map(str.encode)


@settings(QUIET, max_examples=600)
@given(ANY_BYTES | YAML_LIKE)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    started = time.process_time()
    try:
        document = load(data, "f.yaml")
    except YamlError as error:
        assert error.line >= 1 and error.column >= 1
        assert error.message.isascii() and error.message.isprintable()
    else:
        json.dumps(document.data, allow_nan=False)
    assert time.process_time() - started < 2


def _visible(text: str) -> bool:
    return bool(text) and all(unicodedata.category(c)[0] not in "CMZ" for c in text)


NUMBER = st.integers(1 - 2**53, 2**53 - 1) | st.integers(-(10**6), 10**6).map(lambda n: n / 64)
LEAF = st.none() | st.booleans() | NUMBER | st.text('ab"\\:#-\n\t é☃\u200b\x00', max_size=8)
KEY = st.text(max_size=6).filter(_visible)
JSON_LIKE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4), max_leaves=20
)


def _dump(value: Any) -> str:
    """Flow YAML with every text quoted and each hidden character escaped."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_dump(k)}: {_dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    if isinstance(value, str):
        return (
            '"'
            + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
            + '"'
        )
    return json.dumps(value)


@settings(QUIET, max_examples=300)
@given(JSON_LIKE)
def test_data_with_quoted_text_comes_back(value: Any) -> None:
    got = read(_dump(value))
    assert got == value and json.dumps(got) == json.dumps(value)


@settings(QUIET, max_examples=200)
@given(JSON_LIKE)
def test_every_value_has_a_mark(value: Any) -> None:
    document = load(_dump(value).encode("utf-8"), "f.yaml")

    def pointers(node: Any, pointer: str) -> list[str]:
        if isinstance(node, dict):
            inner = [(k.replace("~", "~0").replace("/", "~1"), v) for k, v in node.items()]
        else:
            inner = [(str(i), v) for i, v in enumerate(node)] if isinstance(node, list) else []
        return [pointer, *(p for key, v in inner for p in pointers(v, f"{pointer}/{key}"))]

    assert set(document.marks) == set(pointers(document.data, ""))


def test_marks() -> None:
    document = load(b"# c\na/b:\n  - x\n  - k~: {z: 1}\nc: &n\n  d: 1\ne: *n\n", "f.yaml")
    assert document.marks[""] == (2, 1)
    assert document.at("/a~1b") == (2, 1)
    assert document.at("/a~1b/0") == (3, 5)
    assert document.at("/a~1b/1") == (4, 5)
    assert document.at("/a~1b/1/k~0/z") == (4, 10)
    assert document.at("/e/d") == document.at("/e") == (7, 1)
    assert document.at("/missing/deeper") == (2, 1)
    assert document.at("no pointer") == (2, 1)


# ---- bounds ------------------------------------------------------------------------------------------------

_FULL = (1 << 20) - 4000
BOMBS: list[tuple[str, bytes]] = [
    ("values", b"[" + b"1," * (_FULL // 2) + b"1]"),
    ("nothing but brackets", b"[" * _FULL),
    ("a long key over many values", b'? "' + b"k" * 400_000 + b'"\n: [' + b"1," * 200_000 + b"1]"),
    ("tabs", b"a: 'x\n" + b"\t\n" * (_FULL // 2) + b"'\n"),
    ("digits", b"a: " + b"1" * _FULL),
    ("base 60", b"a: " + b"1:" * (_FULL // 2) + b"x"),
    ("too many bytes", b"a" * ((1 << 20) + 1)),
    ("documents", b"--- {}\n" * 100_000),
]


@pytest.mark.parametrize(("name", "data"), BOMBS, ids=[name for name, _ in BOMBS])
def test_bombs_end_soon(name: str, data: bytes) -> None:
    started = time.process_time()
    try:
        load(data, "f.yaml")
    except YamlError as error:
        assert len(error.message) < 160
    assert time.process_time() - started < 2


def test_the_edges_of_the_bounds_are_read() -> None:
    assert read("[" * 64 + "]" * 64)
    assert len(read(f"a: &a x\nb: [{', '.join(['*a'] * 16)}]\n")["b"]) == 16
    assert load(b"a: 1", "f.yaml", max_bytes=4).data == {"a": 1}
    with pytest.raises(YamlError, match="more than 3 bytes"):
        load(b"a: 1", "f.yaml", max_bytes=3)


def test_ten_thousand_entries_are_read_in_time() -> None:
    data = ("hosts:\n" + "".join(f"  - https://host{i}.test/docs\n" for i in range(10_000))).encode()
    started = time.process_time()
    assert len(load(data, "f.yaml").data["hosts"]) == 10_000
    assert time.process_time() - started < 2
