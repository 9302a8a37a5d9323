"""Policy files made from the shipped one by a single change that must not pass.

Places in the text come from the nodes of PyYAML, which the project does not use. A case knows the line (and,
where the way it was made gives one, the column) at which the refusal has to stand.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support import ROOT

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SHIPPED = (ROOT / "policy" / "v1.yaml").read_text(encoding="utf-8")
# the lists that the shipped policy leaves empty, filled, so that they have entries to change
_FILLED = {
    "denied: []": "denied: [shell]",
    "private_networks: []": "private_networks: [10.1.0.0/16]",
    "required_for: []": "required_for: [write]",
}
FULL = SHIPPED
for _old, _new in _FILLED.items():
    assert FULL.count(_old) == 1
    FULL = FULL.replace(_old, _new)


@dataclass(frozen=True, slots=True)
class Case:
    """A file that must be refused at a line and column (0 where the way it was made gives none)."""

    data: bytes
    line: int = 0
    column: int = 0
    says: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A value, or a key (`role`): its pointer, where it begins and ends in the text, what it is."""

    pointer: str
    role: str
    start: int
    end: int
    column: int
    block: bool
    value: Any


def places(text: str) -> list[Place]:
    """Every key and every value below the root, in the order of the text."""
    found: list[Place] = []

    def add(node: yaml.Node, pointer: str, role: str, value: Any) -> None:
        block = getattr(node, "flow_style", None) is False
        start, end = node.start_mark, node.end_mark
        found.append(Place(pointer, role, start.index, end.index, start.column, block, value))

    def walk(node: yaml.Node, pointer: str, data: Any) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = f"{pointer}/{key.value}"
                add(key, below, "key", key.value)
                add(value, below, "value", data[key.value])
                walk(value, below, data[key.value])
        elif isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                add(item, f"{pointer}/{i}", "value", data[i])
                walk(item, f"{pointer}/{i}", data[i])

    walk(yaml.compose(text, Loader=LOADER), "", yaml.load(text, Loader=LOADER))
    return found


PLACES = places(FULL)
KEYS = [place for place in PLACES if place.role == "key"]
VALUES = [place for place in PLACES if place.role == "value"]
SCALARS = [place for place in VALUES if not isinstance(place.value, dict | list)]
TEXTS = [place for place in SCALARS if isinstance(place.value, str)]
LISTS = [place for place in VALUES if isinstance(place.value, list)]


def spot(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of a place in a text."""
    return text.count("\n", 0, index) + 1, index - (text.rfind("\n", 0, index) + 1) + 1


def changed(start: int, end: int, new: str, says: str = "", *, column: bool = False) -> Case:
    """FULL with a stretch replaced, to be refused on the line where the stretch begins."""
    line, at = spot(FULL, start)
    return Case((FULL[:start] + new + FULL[end:]).encode(), line, at if column else 0, says)


def _duplicates() -> Iterator[Case]:
    """Each key once more, right behind its entry, in four spellings."""
    for key, value in zip(
        KEYS, [p for p in VALUES if not p.pointer.rpartition("/")[2].isdigit()], strict=True
    ):
        assert key.pointer == value.pointer
        name = key.pointer.rpartition("/")[2]
        end = FULL.rfind("\n", 0, value.end) + 1 if value.block else FULL.index("\n", value.end) + 1
        for spelling in (name, f'"{name}"', f"'{name}'", f'"\\x{ord(name[0]):02x}{name[1:]}"'):
            entry = f"{' ' * key.column}{spelling}: {json.dumps(value.value)}\n"
            line = FULL.count("\n", 0, end) + 1
            yield Case((FULL[:end] + entry + FULL[end:]).encode(), line, key.column + 1, "already")


_NO_KEYS = [
    "<<: {on_deny: inform}", "<<: *base", "? [a]\n: 1", "1: x", "1.5: x", "-1: x", "true: x", "False: x",
    "null: x",
    "~: x", "yes: x", "NO: x", "on: x", "2024-01-01: x", "0x1: x", "012: x", "12:30: x", ": x", '"": x',
    "=: x",
    '"a\\u200bb": x', '"on_deny\\0": x', '"on_deny\\n": x', "!!str k: x", "*k : x", "{a: b}: x", "[a]: x",
    ".inf: x",
]  # fmt: skip


def _no_keys() -> Iterator[Case]:
    """What is no key, or not the one it seems, as the first entry of each mapping."""
    mappings: dict[str, Place] = {}
    for key in KEYS:
        mappings.setdefault(key.pointer.rpartition("/")[0], key)
    for first, form in itertools.product(mappings.values(), _NO_KEYS):
        entry = form.replace("\n", "\n" + " " * first.column)
        says = "merge" if form.startswith("<<") else ""
        yield changed(first.start, first.start, f"{entry}\n{' ' * first.column}", says)


def _tags() -> Iterator[Case]:
    names = ["!!str", "!!map", "!local", "!", "!!python/object/apply:os.system", "!<tag:yaml.org,2002:str>"]
    for place, tag in itertools.product(PLACES, names):
        if place.block:
            at = FULL.rindex(":", 0, place.start) + 1
            line, column = spot(FULL, at)
            yield Case((FULL[:at] + f" {tag}" + FULL[at:]).encode(), line, column + 1, "tags")
        else:
            yield changed(place.start, place.start, f"{tag} ", "tags", column=True)


def _aliases() -> Iterator[Case]:
    forms = ["*nope", "[*nope]", "&a [*a]", "&a {x: *a}", "[&a x, &a y]", "[&a [x], *a]", "&a *a", "*a &a x"]
    forms += [f"[&a x{', *a' * count}]" for count in (17, 40, 5000)]
    for levels in (3, 8, 16, 40):
        laughs = ", ".join(f"&b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, levels))
        forms.append(f"[&b0 [lol], {laughs}]")
    for place, form in itertools.product(LISTS, forms):
        if not place.block:
            yield changed(place.start, place.end, form)
    yield from (
        changed(place.start, place.end, form) for place in SCALARS for form in ("*nope", "&a [*a]", "&a *a")
    )


_NO_TEXT = [
    "true", "False", "TRUE", "yes", "No", "ON", "off", "null", "~", "", "42", "-1", "0o17", "017", "0x1F",
    "1_000",
    "12:30:45", "1e3", "1.5", ".inf", ".NaN", "2024-01-01", "2024-01-01T00:00:00Z", "=", "<<", "-", "[]",
    "{}", "[[x]]",
]  # fmt: skip


def _no_text() -> Iterator[Case]:
    """What some reader takes for a boolean, a number or a date, in the place of each text."""
    for place, form in itertools.product(TEXTS, _NO_TEXT):
        if not form and place.pointer[-1].isdigit():
            continue  # a list may end with a comma
        yield changed(place.start, place.end, form)


def _edits(word: str) -> Iterator[str]:
    middle = len(word) // 2
    for i in (0, middle, len(word) - 1):
        yield word[:i] + word[i + 1 :]
        yield word[:i] + word[i] + word[i:]
        yield word[:i] + "x" + word[i + 1 :]
    yield word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]
    yield word[0].upper() + word[1:]
    yield word.replace("_", "-", 1)
    yield word.replace("_", "", 1)
    yield word + "s"


def _unknown_keys() -> Iterator[Case]:
    """Each known key with one slip of the pen; the right one must be named."""
    known = {key.pointer.rpartition("/")[2] for key in KEYS}
    for key in KEYS:
        if not key.pointer.startswith("/sandbox/mounts/"):  # those names are free
            word = key.pointer.rpartition("/")[2]
            for slip in _edits(word):
                if slip not in known:
                    says = f"unknown key '{slip}'; did you mean '{word}'?"
                    yield changed(key.start, key.end, slip, says, column=True)


_HIDDEN = [
    *range(0x09),
    0x0B,
    0x0C,
    0x0D,
    *range(0x0E, 0x20),
    0x7F,
    0x80,
    0x85,
    0x9B,
    0x9F,
    0xAD,
    0x34F,
    0x61C,
    0x115F,
]
_HIDDEN += [
    0x180E,
    0x200B,
    0x200C,
    0x200E,
    0x2028,
    0x2029,
    0x202A,
    0x202E,
    0x2060,
    0x2066,
    0x2069,
    0x3164,
    0xFDD0,
]
_HIDDEN += [0xFEFF, 0xFFA0, 0xFFF9, 0xFFFE, 0xE0001, 0xE0041, 0xE007F, 0x10FFFF]
# inside a comment, inside a quoted text, inside a key, where a value begins, where a line begins
_SPOTS = [
    10,
    FULL.index("corpus.test"),
    FULL.index("edact:"),
    FULL.index("strict\n"),
    FULL.index("\non_deny") + 1,
]


def _hidden() -> Iterator[Case]:
    for code, at in itertools.product(_HIDDEN, _SPOTS):
        yield changed(at, at, chr(code), column=True)
    end = FULL.index("\n")  # of the comment that begins the file
    for code in (0x0D, 0x0B, 0x0C, 0x1C, 0x85, 0x2028, 0x2029):
        data = f"{FULL[:end]}{chr(code)}on_deny: inform{FULL[end:]}".encode()
        yield Case(data, 1, end + 1)


def _no_utf8() -> Iterator[Case]:
    bad = [
        b"\xff",
        b"\xfe",
        b"\x80",
        b"\xbf",
        b"\xc0\xae",
        b"\xc1\xbf",
        b"\xe0\x80\xae",
        b"\xf0\x80\x80\xae",
        b"\xe9",
    ]
    bad += [
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xc3",
        b"\xe2\x82",
    ]
    for sequence, at in itertools.product(bad, _SPOTS):
        yield Case(FULL[:at].encode() + sequence + FULL[at:].encode(), *spot(FULL, at))
    for name in (
        "utf-16",
        "utf-16-be",
        "utf-16-le",
        "utf-32",
        "utf-32-be",
        "utf-32-le",
        "utf-8-sig",
        "utf-7",
    ):
        data = FULL.encode(name) if name != "utf-7" else b"\x00" + FULL.encode()
        yield Case(data, 1)


def _layout() -> Iterator[Case]:
    lines = FULL.splitlines(keepends=True)
    for i, line in enumerate(lines[1:], start=2):
        above, below = "".join(lines[: i - 1]), "".join(lines[i - 1 :])
        if i > 2:  # behind the comment a document may begin
            yield Case(f"{above}---\n{below}".encode(), i)
            yield Case(f"{above}%YAML 1.1\n---\n{below}".encode(), i)
        if line.startswith("  "):
            yield Case(f"{above}\t{below[2:]}".encode(), i)
    yield from (
        Case(f"{head}\n---\n{FULL}".encode(), 1) for head in ("%YAML 1.2", "%TAG ! tag:x,2000:", "%FOO bar")
    )
    for place in (*SCALARS, *LISTS):
        if not place.block:
            yield from (
                changed(place.start, place.start, mark) for mark in ("@", "`", "%", "] ", "} ", ", ", "- ]")
            )
    for place in LISTS:
        if not place.block:
            yield from (changed(place.start, place.end, "[" * depth) for depth in (65, 1000, 50_000))
            yield from (
                changed(place.start, place.end, "[" * depth + "]" * depth) for depth in (65, 1000, 50_000)
            )
            yield changed(place.start, place.end, "{a: " * 65 + "1" + "}" * 65)
    for text in (
        "",
        "\n",
        "# only\n",
        "---\n",
        "null",
        "[]",
        "x",
        "1",
        "{}",
        '""',
        "[a: 1]",
        "- schema: policy/v1",
    ):
        yield Case(text.encode(), 1 if text != "---\n" else 2)
    for size in (1, 10_000):
        yield Case((FULL + "#" + "x" * ((1 << 20) - len(FULL.encode()) - 1 + size)).encode(), 1, 1)


REFUSED: dict[str, Callable[[], Iterator[Case]]] = {
    "duplicate keys": _duplicates, "no keys": _no_keys, "tags": _tags, "aliases": _aliases,
    "no text": _no_text,
    "unknown keys": _unknown_keys, "hidden characters": _hidden, "no UTF-8": _no_utf8, "layout": _layout,
}  # fmt: skip
