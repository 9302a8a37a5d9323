"""Policy files made from one that holds by a single change: refused at their place, or the same policy in other words.

Places in the text come from the nodes of PyYAML, which the project does not use. Whether a value will do is computed by
`jsonschema`.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from tachograph.runtime.policy.sections import PolicyFile
from tachograph.testing import Refused, parse, run
from tests.tables.rows import Made, rows

SHIPPED = (Path(__file__).parents[2] / "policy" / "v1.yaml").read_text(encoding="utf-8")
FULL = SHIPPED.replace("denied: []", "denied: [shell]").replace("networks: []", "networks: [10.1.0.0/16]")
FULL += """\
approval:
  required_for: [write]
  timeout_s: 300
tools:
  fetch:
    urls: ["https://corpus.test/v1/"]
    methods: [GET]
    limits:
      per_minute: 9
"""
DATA = yaml.safe_load(FULL)


class Case(NamedTuple):
    """A file that must be refused at a line and column; 0 where the way it was made gives none."""

    data: bytes
    line: int = 0
    column: int = 0
    says: str = ""


class Place(NamedTuple):
    """A value, or a key: its pointer, where it begins and ends in the text, and what it is."""

    pointer: str
    role: str
    start: int
    end: int
    column: int
    block: bool
    value: Any


def places(text: str) -> list[Place]:
    """Return every key and every value below the root, in the order of the text."""
    found: list[Place] = []

    def add(node: yaml.Node, pointer: str, role: str, value: Any) -> None:
        start, end = node.start_mark, node.end_mark
        is_block = getattr(node, "flow_style", None) is False
        found.append(Place(pointer, role, start.index, end.index, start.column, is_block, value))

    def walk(node: yaml.Node, pointer: str, data: Any) -> None:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        for key, value in pairs:
            add(key, f"{pointer}/{key.value}", "key", key.value)
            add(value, f"{pointer}/{key.value}", "value", data[key.value])
            walk(value, f"{pointer}/{key.value}", data[key.value])
        for i, item in enumerate(items):
            add(item, f"{pointer}/{i}", "value", data[i])
            walk(item, f"{pointer}/{i}", data[i])

    walk(yaml.compose(text, Loader=yaml.SafeLoader), "", yaml.safe_load(text))
    return found


PLACES = places(FULL)
KEYS = [place for place in PLACES if place.role == "key"]
VALUES = [place for place in PLACES if place.role == "value"]
SCALARS = [place for place in VALUES if not isinstance(place.value, dict | list)]
TEXTS = [place for place in SCALARS if isinstance(place.value, str)]
FLOWING = [place for place in VALUES if isinstance(place.value, list) and not place.block]


def spot(text: str, index: int) -> tuple[int, int]:
    """Return line and column, from 1, of a place in a text."""
    return text.count("\n", 0, index) + 1, index - (text.rfind("\n", 0, index) + 1) + 1


def put(place: Place, new: str) -> str:
    """Return FULL with another text at a place."""
    return FULL[: place.start] + new + FULL[place.end :]


def inserted(at: int, new: str, says: str = "") -> Case:
    """Return FULL with a text more, to be refused at its very place."""
    return Case((FULL[:at] + new + FULL[at:]).encode(), *spot(FULL, at), says)


def changed(place: Place, new: str, says: str = "") -> Case:
    """Return FULL with another text at a place, to be refused on the line where the place begins."""
    return Case(put(place, new).encode(), spot(FULL, place.start)[0], 0, says)


def _duplicates() -> Iterator[Case]:
    """Each key once more, right behind its entry, in four spellings."""
    values = {place.pointer: place for place in VALUES}
    for key in KEYS:
        name, value = key.pointer.rpartition("/")[2], values[key.pointer]
        end = FULL.rfind("\n", 0, value.end) + 1 if value.block else FULL.index("\n", value.end) + 1
        for spelling in (name, f'"{name}"', f"'{name}'", f'"\\x{ord(name[0]):02x}{name[1:]}"'):
            case = inserted(end, f"{' ' * key.column}{spelling}: {json.dumps(value.value)}\n", "already")
            yield case._replace(column=key.column + 1)


NO_KEYS = [
    "<<: {on_deny: inform}", "<<: *base", "? [a]\n: 1", ": x", '"": x', '"a\\u200bb": x', '"on_deny\\0": x',
    '"on_deny\\n": x', "!!str k: x", "*k : x", "{a: b}: x", "[a]: x",
    *(f"{key}: x" for key in "1 1.5 -1 true False null ~ yes NO on 2024-01-01 0x1 012 12:30 = .inf".split()),
]  # fmt: skip


def _no_keys() -> Iterator[Case]:
    """What is not a key, or not the one it seems, as the first entry of each mapping."""
    first = {key.pointer.rpartition("/")[0]: key for key in reversed(KEYS)}
    for key, form in product(first.values(), NO_KEYS):
        indent = "\n" + " " * key.column
        yield inserted(key.start, form.replace("\n", indent) + indent)._replace(column=0)


def _tags() -> Iterator[Case]:
    names = "!!str !!map !local ! !!python/object/apply:os.system !<tag:yaml.org,2002:str>".split()
    for place, tag in product(PLACES, names):
        at = FULL.rindex(":", 0, place.start) + 1 if place.block else place.start
        case = inserted(at, f" {tag}" if place.block else f"{tag} ", "tags")
        yield case._replace(column=case.column + place.block)


def _aliases() -> Iterator[Case]:
    """An anchor, too, is a name that only some reader resolves."""
    forms = ["*nope", "[*nope]", "&a [*a]", "&a {x: *a}", "[&a x, &a y]", "[&a x, *a]", "*a &a x", "&a x"]
    laughs = ", ".join(f"&b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, 8))
    for place, form in product((*FLOWING, *SCALARS), [*forms, f"[&b0 [lol], {laughs}]"]):
        yield changed(place, form)


def _no_text() -> Iterator[Case]:
    """What some reader takes for a boolean, a number or a date, in the place of each text."""
    forms = "true False TRUE yes No ON off null ~ 42 -1 0o17 017 0x1F 1_000 12:30:45 1e3 1.5 .inf .NaN = << -"
    forms += " 2024-01-01 2024-01-01T00:00:00Z [] {} [[x]]"
    yield from (changed(place, form) for place, form in product(TEXTS, forms.split()))


def _slips(word: str) -> Iterator[str]:
    middle = len(word) // 2
    for i in (0, middle, len(word) - 1):
        yield from (word[:i] + word[i + 1 :], word[:i] + word[i] + word[i:], word[:i] + "x" + word[i + 1 :])
    yield word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]
    yield from (word[0].upper() + word[1:], word.replace("_", "-", 1), word.replace("_", "", 1), word + "s")


def _unknown_keys() -> Iterator[Case]:
    """Each known key with one slip of the pen; the right one must be named."""
    known = {key.pointer.rpartition("/")[2] for key in KEYS}
    for key in KEYS:
        if key.pointer.rpartition("/")[0] not in ("/sandbox/mounts", "/tools"):  # those names are free
            word = key.pointer.rpartition("/")[2]
            for slip in dict.fromkeys(_slips(word)).keys() - known:
                yield changed(key, slip, f"did you mean '{word}'?")._replace(column=key.column + 1)


HIDDEN = [
    *range(0x09), 0x0B, 0x0C, *range(0x0D, 0x20), 0x7F, 0x80, 0x85, 0x9B, 0x9F, 0xAD, 0x34F, 0x61C, 0x115F, 0x180E,
    0x200B, 0x200C, 0x200E, 0x2028, 0x2029, 0x202A, 0x202E, 0x2060, 0x2066, 0x2069, 0x3164, 0xFDD0, 0xFEFF, 0xFFA0,
    0xFFF9, 0xFFFE, 0xE0001, 0xE0041, 0xE007F, 0x10FFFF,
]  # fmt: skip
# inside a comment, a quoted text and a key, where a value begins, where a line begins
SPOTS = [10, *(FULL.index(text) for text in ("corpus.test", "etry:", "strict\n", "on_deny"))]


def _hidden() -> Iterator[Case]:
    yield from (inserted(at, chr(code)) for code, at in product(HIDDEN, SPOTS))
    # behind the comment that begins the file
    forms = [f"{chr(code)}on_deny: inform" for code in (0x0D, 0x0B, 0x0C, 0x1C, 0x85, 0x2028, 0x2029)]
    yield from (inserted(FULL.index("\n"), form) for form in forms)


def _no_utf8() -> Iterator[Case]:
    bad = "ff fe 80 bf c0ae c1bf e080ae f08080ae e9 eda080 edbfbf f4908080 f888808080 c3 e282".split()
    for sequence, at in product(map(bytes.fromhex, bad), SPOTS):
        yield Case(FULL[:at].encode() + sequence + FULL[at:].encode(), *spot(FULL, at))
    for name in "utf-16 utf-16-be utf-16-le utf-32 utf-32-be utf-32-le utf-8-sig".split():
        yield Case(FULL.encode(name), 1)


def _layout() -> Iterator[Case]:
    lines = FULL.splitlines(keepends=True)
    for i, line in enumerate(lines[1:], start=2):
        above, below = "".join(lines[: i - 1]), "".join(lines[i - 1 :])
        if i > 2:  # behind the comment a document may begin
            yield from (Case(f"{above}{mark}---\n{below}".encode(), i) for mark in ("", "%YAML 1.1\n"))
        if line.startswith("  "):
            yield Case(f"{above}\t{below[2:]}".encode(), i)
    marks = ("%YAML 1.2", "%TAG ! tag:x,2000:", "%FOO bar")
    yield from (Case(f"{mark}\n---\n{FULL}".encode(), 1) for mark in marks)
    for place, mark in product((*SCALARS, *FLOWING), ("@", "`", "%", "] ", "} ", ", ", "- ]")):
        yield inserted(place.start, mark)._replace(column=0)
    for place, depth in product(FLOWING, (65, 1000, 50_000)):
        yield from (changed(place, "[" * depth), changed(place, "[" * depth + "]" * depth))
    # readers fold it in different ways, and take the comment for text
    yield from (changed(place, f'"a\\\n{blank}\n{" " * 12}b"') for place, blank in product(TEXTS, ("", "  ")))
    yield from (Case(b"|\n# text\n", 2), Case(b"a: [fd00::/8, ::1/128]\n", 1, 15, "quote the text"))
    for text in ("", "\n", "# only\n", "null", "[]", "x", "1", "{}", '""', "[a: 1]", "- schema: policy/v1"):
        yield Case(text.encode(), 1)
    yield Case((FULL + "#" * ((1 << 20) - len(FULL.encode()) + 1)).encode(), 1, 1)


def _swapped(pointer: str, *values: str) -> Iterator[Case]:
    place = next(place for place in VALUES if place.pointer == pointer)
    yield from (changed(place, json.dumps(value)) for value in values)


def _names() -> Iterator[Case]:
    """Names that no tool or mount can have; wildcards are not names."""
    odd = ["*", "read ", " read", "", "r\u00e9ad", "read\n", "r" * 65, "all tools", "read\tx", "\u0440ead"]
    odd += "re*d read/x re.d ../read 1read -read _read ** read,write read|write ? [a-z]".split()
    for pointer in ("/tool_registry/allowed/2", "/tool_registry/denied/0", "/approval/required_for/0"):
        yield from _swapped(pointer, *odd)
    mounts = [key for key in KEYS if key.pointer.startswith("/sandbox/mounts/")]
    for key, name in product(mounts, [*odd, *f"Corpus CORPUS a/b . .. ~ {'c' * 33} 9".split()]):
        yield changed(key, json.dumps(name))


def _entries() -> Iterator[Case]:
    """Entries of the allowlist and networks that read like something and can decide no call."""
    urls = ["", "https://corpus .test", "https://c\u00f6rpus.test/", "\nhttps://corpus.test/", "a,b", "a b"]
    urls += [f"https://corpus.test/{'a' * 2048}", f"https://{'a' * 64}.test/", f"https://{'a.' * 127}test/"]
    urls += "* https://* https://*.test/ https://corpus.test/* *.corpus.test https://a@corpus.test/".split()
    tails = "/?q /#f /../ /a/./b //a /a;b /%2e%2e/ /% /%2f ./ :0/ :99999/ :x/".split()
    urls += [f"https://corpus.test{tail}" for tail in tails]
    urls += "ftp://corpus.test/ file:///a //corpus.test/ corpus.test/a https:corpus.test".split()
    urls += ["/a", "corpus.test:443"]
    hosts = "/ corpus\\.test/ .test/ -a/ 127.1/ 0x7f.0.0.1/ [::1 [0::1]/ [::ffff:1.2.3.4]/ 1.2.3.256/".split()
    urls += ["https://", *(f"https://{host}" for host in hosts)]
    yield from _swapped("/url_allowlist/0", *urls)
    networks = ["", "10.1.0.0/16 ", " 10.1.0.0/16", "\u0661\u0660.1.0.0/16", "/", "10.1.0.0/16,10.2.0.0/16"]
    networks += "10.1.0.0 10.1.0.1/16 10.1.0.0/33 10.1.0.0/-1 10.1.0.0/x 10.1/16 0x0a.0.0.0/8 ::1".split()
    networks += "::/129 fe80::%1/64 fe80::1/64 localhost/8 a.test */8 10.*.0.0/16 10.1.0.0-10.1.0.9".split()
    yield from _swapped("/private_networks/0", *networks)
    yield from _swapped("/tool_registry/denied/0", *DATA["tool_registry"]["allowed"])


REFUSED = [_duplicates, _no_keys, _tags, _aliases, _no_text, _unknown_keys, _hidden, _no_utf8, _layout]
REFUSED += [_names, _entries]


@pytest.mark.parametrize("made", REFUSED)
def test_refused_with_its_place(made: Made) -> None:
    found = []
    for case in rows(made()):
        try:
            parse("policy", case.data)
            found.append(("read", case.line, case.data[-300:]))
        except Refused as refused:
            line, _, column = refused.place.removeprefix("<text>:").partition(":")
            right = case.line in (0, int(line or -1)) and case.column in (0, int(column or -1))
            if not right or case.says not in str(refused) or not str(refused).isprintable():
                found.append((str(refused), case.line, case.column, case.says, case.data[-300:]))
    assert found == []


VALIDATOR = Draft202012Validator(msgspec.json.schema(PolicyFile))


def _replaced(pointer: str, value: Any) -> Any:
    """Return DATA with another value at a JSON Pointer."""
    data: Any = [copy.deepcopy(DATA)]
    here, *way = [data, *("0" + pointer).split("/")]
    for token in way[:-1]:
        here = here[int(token) if isinstance(here, list) else token]
    here[int(way[-1]) if isinstance(here, list) else way[-1]] = value
    return data[0]


def _types() -> Iterator[tuple[str, Any]]:
    """A value of each type at each pointer."""
    values = (None, True, False, 0, 1, 1.5, -1, 2.0, "text", "", [], {}, [[]], {"a": 1})
    for pointer, value in product(["", *(place.pointer for place in VALUES)], values):
        # what is a network, no schema says
        if pointer != "/private_networks/0" or not isinstance(value, str):
            data = _replaced(pointer, value)
            yield json.dumps(data, indent=1), data


def _numbers() -> Iterator[tuple[str, Any]]:
    """Each number around its limits, whole floats too, and what is not a number in this reader's YAML."""
    odd = [
        "10 000", "7 # 8\n9", "\u0661", "1" + "0" * 400,
        *"ten \"7\" '7' 1.5 -1 -1.0 9007199254740992".split(),
    ]  # fmt: skip
    odd += "0x10 010 1_0 +1 1e1 .5 5. 0b1 12:30 -0 00 0o7 1,0 .inf".split()
    limits = (-1, 0, 1, 2, 19, 20, 21, 60_000, 60_001, 600_000, 600_001, 604_800, 604_801, 10**9, 10**9 + 1)
    for place in [place for place in SCALARS if isinstance(place.value, int)]:
        for number, tail in product(limits, ("", ".0", ".50")):
            value = number + 0.5 if tail == ".50" else number
            yield put(place, f"{number}{tail}"), _replaced(place.pointer, value)
        yield from ((put(place, form), None) for form in odd)


JUDGED = [_types, _numbers]


@pytest.mark.parametrize("made", JUDGED)
def test_values_are_judged_as_the_schema_judges_them(made: Made) -> None:
    found, accepted = [], 0
    for text, data in made():
        is_read = True
        try:
            is_same = parse("policy", text) == data
        except Refused:
            is_read = is_same = False
        accepted += is_read
        if (is_read, is_read) != (data is not None and VALIDATOR.is_valid(data), is_same):
            found.append((is_read, text[-300:]))
    assert found == [] and accepted > 16


def _quotes() -> Iterator[str]:
    """Each text and each key in other quotes, or as a block."""
    for place in (*TEXTS, *KEYS):
        text = place.value
        escaped = "".join(f"\\x{ord(c):02x}" for c in text)
        forms = [f'"{text}"', f"'{text}'", f'"{escaped}"', f'"\\u{ord(text[0]):04x}{text[1:]}"']
        if place.role == "value" and FULL[place.start - 2 : place.end + 1] == f": {text}\n":
            forms += [f"|-\n      {text}", f">-\n      {text}"]
        yield from (put(place, form) for form in forms)


def _layouts() -> Iterator[str]:
    """Comments, blank lines, line ends and markers."""
    lines = FULL.splitlines()
    comments = (
        " # why", " # \u00e9 \u2603 \U0001f600: [ { ' \" %", "   ", "\n", "\n# on_deny: x", "\n\n      # far",
    )  # fmt: skip
    for i, more in product(range(len(lines)), comments):
        yield "\n".join([*lines[:i], lines[i] + more, *lines[i + 1 :]]) + "\n"
    yield from (FULL.replace("\n", "\r\n"), FULL.rstrip("\n"), FULL + "#" * ((1 << 20) - len(FULL.encode())))
    heads, tails = ("", "---\n", "# c\n---\n", "\n\n--- # c\n"), ("", "...\n", "...\n# c\n")
    yield from (f"{head}{FULL}{tail}" for head, tail in product(heads, tails))
    for place in [place for place in FLOWING if place.value]:
        yield put(place, "".join(f"\n        - {item}" for item in place.value))
        yield put(place, "[\n        " + ",\n        ".join(map(str, place.value)) + ",\n        ]")


SAME = [_quotes, _layouts]


@pytest.mark.parametrize("made", SAME)
def test_the_same_in_other_words_is_the_same_policy(made: Made) -> None:
    found = []
    for text in rows(made()):
        try:
            if parse("policy", text) != DATA:
                found.append(("another", text[-300:]))
        except Refused as refused:
            found.append((str(refused), text[-300:]))
    assert found == []


def test_a_policy_cut_in_two_is_the_same(tmp_path: Path) -> None:
    """A base, and a file that extends it: of each section some keys stand here and some there."""
    draw = random.Random(11)
    whole, base, over = (tmp_path / name for name in ("whole.yaml", "base.yaml", "over.yaml"))
    whole.write_text(FULL)
    for _ in range(60):
        # `retry` has no defaults, and a base is whole by itself
        parts: list[dict[str, Any]] = [{key: DATA[key] for key in ("schema", "retry")}]
        parts.append({"extends": base.name})
        for name in sorted(DATA.keys() - parts[0].keys()):
            if isinstance(DATA[name], dict):
                for key in DATA[name]:
                    draw.choice(parts).setdefault(name, {})[key] = DATA[name][key]
            else:
                draw.choice(parts)[name] = DATA[name]
        base.write_text(yaml.safe_dump(parts[0]))
        over.write_text(yaml.safe_dump(parts[1]))
        heads = [run(path, [], [{"answer": "x"}]).events[0] for path in (whole, over)]
        assert heads[0].policy.version == heads[1].policy.version  # type: ignore[attr-defined]
