"""Argument texts of a model: what is no JSON object that two programs would read alike, and what is one.

Where the way a case is made gives its label, the class says so, and the reference of `json_reference.py` must
agree; of `numbers` the reference is the label.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import struct
from collections.abc import Callable, Iterator

from tests.tables.json_reference import LEVELS, SAFE

DOCS = [
    '{"query":"sleep in the cab","top_k":5}',
    '{"a":{"b":{"c":[1,2,{"d":null}]}},"e":[true,false]}',
    '{"text":"line\\nline \\"quoted\\" \\\\ \\u00e9 {[,:]}","n":-0.5,"z":[[],{}]}',
    '{"\\u00fc":[{"x":1},{"x":2}],"x":{"x":{"x":"x"}}}',
]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[{}\[\],:]')


# ---- by construction no arguments --------------------------------------------------------------------------


def _gaps(text: str) -> Iterator[int]:
    """Where white space may stand."""
    yield from (match.start() for match in TOKEN.finditer(text))
    yield len(text)


def _truncated() -> Iterator[str]:
    yield from (text[:size] for text in DOCS for size in range(len(text)))


def _trailing() -> Iterator[str]:
    more = [
        "}",
        "]",
        ",",
        ":",
        '"',
        "x",
        "{}",
        "[]",
        "0",
        "null",
        "\\",
        "//",
        "/* */",
        "#",
        ";",
        "\x00",
        "\u00a0",
        "\ufeff",
    ]
    for text, end, space in itertools.product(DOCS, [*more, *DOCS], ("", " ", "\n")):
        yield text + space + end


def _duplicates() -> Iterator[str]:
    """Each key twice, spelled alike or not, in front of itself or behind."""
    for text in DOCS:
        for match in re.finditer(r'("(?:[^"\\]|\\.)*"):', text):
            key = json.loads(match[1])
            spellings = {match[1], json.dumps(key), '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"'}
            spellings.add('"' + "".join(f"\\u{ord(c):04X}" for c in key) + '"')
            for spelling, value in itertools.product(sorted(spellings), ("0", "null", "{}", '"x"')):
                yield f"{text[: match.start()]}{spelling}:{value},{text[match.start() :]}"


_NO_VALUES = (
    "NaN -NaN Infinity -Infinity nan inf None True FALSE undefined .5 5. 01 -01 +1 0x1F 1_000 1e 1e+ --1 -"
)
_NO_VALUES += ' 1.e1 1..2 1.2.3 0b1 1n 1f 1,000 \u0661 \uff11 `a` a "a <a> (1) {1} 1e1.5 $a *'
_NO_VALUES += ' \'a\' \u201ca\u201d a" "a""b" [1'


def _no_values() -> Iterator[str]:
    for text in DOCS:
        for match in TOKEN.finditer(text):
            is_key = text[match.end() : match.end() + 1] == ":"
            if match[0] not in "{}[],:" and not is_key:
                for literal in _NO_VALUES.split(" "):
                    yield text[: match.start()] + literal + text[match.end() :]


def _no_punctuation() -> Iterator[str]:
    marks = [
        "//x\n",
        "/*x*/",
        "#x\n",
        ",",
        ";",
        "(",
        "<!--x-->",
        "\\",
        "=",
        "--x\n",
        "'",
        "...",
        "\x00",
        "\x1b[31m",
    ]
    yield from (t[:at] + mark + t[at:] for t in DOCS for at in _gaps(t) for mark in marks)


def _no_white_space() -> Iterator[str]:
    spaces = "\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000\ufeff\u200b\u180e"
    yield from (t[:at] + space + t[at:] for t in DOCS for at in _gaps(t) for space in spaces)


_PLACES = ('{{"a":"{}"}}', '{{"{}":1}}', '{{"a":["x{}y"]}}', '{{"a":{{"b{}":"c"}}}}')
_HALVES = [
    "\\ud800",
    "\\udfff",
    "\\uD83D",
    "\\udc00\\ud800",
    "\\ud800\\ud800\\udc00",
    "\\ud83d\\u0041",
    "\\ud83dx",
]
_HALVES += [
    "\ud800",
    "\udfff",
    "\udc00\ud800",
    "\ud83d\\ude00",
    "\\ud83d\ude00",
    "\\udc00",
    "\\ude00\\ud83d",
    "\ud83d\ude00",
]


def _halves() -> Iterator[str]:
    """Half of a character, written as an escape or standing there."""
    yield from (place.format(half) for place in _PLACES for half in _HALVES)
    for half in ("\\ud83d\\ude00", "\U0001f600", "\\udbff\\udfff", "\U00010000", "\ud83d\ude00"):
        yield f'{{"{half}":1}}'  # whole ones in a key: it has no place in an order that all agree on


_NO_ESCAPES = [
    "\\x41",
    "\\'",
    "\\u12",
    "\\u12G4",
    "\\U0001F600",
    "\\0",
    "\\ ",
    "\\\n",
    "\\v",
    "\\a",
    "\\e",
    "\\N{DASH}",
]
_NO_ESCAPES += [
    "\\u{41}",
    "\\u+041",
    "\\u 041",
    "\\u-041",
    "\\u0x41",
    "\\u00\uff141",
    "\\u",
    "\\u004",
    "\\B",
    "\\T",
    "\\%",
]


def _no_strings() -> Iterator[str]:
    """Escapes that JSON does not know, and control characters that stand in a text."""
    yield from (place.format(escape) for place in _PLACES for escape in _NO_ESCAPES)
    yield from (place.format(chr(code)) for place in _PLACES for code in range(0x20))


def _no_objects() -> Iterator[str]:
    values = [
        "[]",
        "null",
        "true",
        "0",
        '""',
        '"{}"',
        "[{}]",
        "-1",
        "1.5",
        '"a"',
        "",
        " ",
        "\n",
        "{",
        "}",
        "'{}'",
        "{a:1}",
    ]
    yield from (
        before + value + after for value in values for before in ("", " ", "\ufeff") for after in ("", "\n")
    )
    yield from (f"[{text}]" for text in DOCS)
    yield from (json.dumps(text) for text in DOCS)
    yield from ("\ufeff" + text for text in DOCS)


def _too_deep() -> Iterator[str]:
    for depth in (LEVELS, LEVELS + 1, LEVELS + 40, 1000, 100_000):
        yield '{"a":' + "[" * depth + "]" * depth + "}"
        yield '{"a":' * (depth + 1) + "1" + "}" * (depth + 1)
        yield '{"a":[' * (depth // 2 + 1) + "]}" * (depth // 2 + 1)
        yield '{"a":[0,1,{"b":' + "[" * depth + "]" * depth + "}]}"
        yield from ('{"a":' + opening * depth for opening in ("[", '{"a":', "[{}, ", '[{"a":'))
        yield from ('{"a":' + "[" * depth + more for more in ("0", "]}", "]" * depth, "NaN"))


REFUSED: dict[str, Callable[[], Iterator[str]]] = {
    "truncated": _truncated, "trailing": _trailing, "duplicates": _duplicates, "no values": _no_values,
    "no punctuation": _no_punctuation, "no white space": _no_white_space, "halves": _halves,
    "no strings": _no_strings, "no objects": _no_objects, "too deep": _too_deep,
}  # fmt: skip

# ---- by construction arguments -----------------------------------------------------------------------------


def _white_space() -> Iterator[str]:
    yield from (
        t[:at] + space + t[at:]
        for t in DOCS
        for at in _gaps(t)
        for space in (" ", "\t", "\n", "\r", " \r\n\t")
    )


def _characters() -> Iterator[str]:
    """Each kind of character, standing there and as an escape, in texts and keys."""
    codes = [
        *range(0x30),
        0x5C,
        0x7F,
        0x80,
        0x9F,
        0xA0,
        0xE9,
        0x2028,
        0x2029,
        0x202E,
        0xD7FF,
        0xE000,
        0xFEFF,
        0xFFFE,
        0xFFFF,
    ]
    for code, place in itertools.product(codes, _PLACES):
        yield place.format(f"\\u{code:04x}")
        yield place.format(f"\\u{code:04X}")
        if code >= 0x20 and chr(code) not in '"\\':
            yield place.format(chr(code))
    yield from (place.format(f"\\{c}") for place in _PLACES for c in '"\\/bfnrt')
    yield from (
        _PLACES[0].format(whole) for whole in ("\\ud83d\\ude00", "\U0001f600", "\\udbff\\udfff", "\U00010000")
    )


def _orders() -> Iterator[str]:
    draw = random.Random(5)
    names = [
        "",
        "a",
        "A",
        "B",
        "aa",
        "1",
        "10",
        "2",
        " ",
        "\u00e9",
        "e\u0301",
        "\u20ac",
        "\uffff",
        "\ue000",
        "\n",
        '"',
        "~",
        "/",
    ]
    for _ in range(80):
        chosen = draw.sample(names, draw.randint(2, 9))
        yield json.dumps({name: {name: i} for i, name in enumerate(chosen)}, ensure_ascii=draw.random() < 0.5)


def _floats() -> Iterator[str]:
    """Doubles of every size that are no whole numbers, each as Python writes it and with digits to spare."""
    draw = random.Random(13)
    while True:
        value = struct.unpack("<d", draw.randbytes(8))[0]
        if math.isfinite(value) and not value.is_integer():
            yield f'{{"n":{value!r}}}'
            yield f'{{"n":{value:.25e}}}'


def _deep() -> Iterator[str]:
    for depth in (*range(1, 30, 3), LEVELS - 3, LEVELS - 2, LEVELS - 1):
        yield '{"a":' + "[" * depth + "]" * depth + "}"
        yield '{"a":' * (depth + 1) + "1" + "}" * (depth + 1)
        yield '{"a":' + "[[]," * (depth - 1) + "[]" + "]" * (depth - 1) + "}"
        yield '{"b":[' + ",".join(["[" * (depth - 1) + "]" * (depth - 1) or "0"] * 3) + "]}"


READ: dict[str, Callable[[], Iterator[str]]] = {
    "white space": _white_space, "characters": _characters, "orders": _orders, "deep": _deep,
    "floats": lambda: itertools.islice(_floats(), 400),
}  # fmt: skip


def numbers() -> Iterator[str]:
    """Numbers: some whole in another form, some too large, some none; the reference says which."""
    heads = [
        "0",
        "-0",
        "1",
        "-1",
        "10",
        "123",
        "-250",
        str(SAFE),
        str(SAFE + 1),
        str(-SAFE - 2),
        "12345678901234567890",
    ]
    heads += [
        "0.0",
        "-0.0",
        "1.0",
        "1.5",
        "-2.50",
        "0.1",
        "0.000001",
        "0.0000001",
        "4.35",
        f"{SAFE}.0",
        f"{SAFE + 1}.0",
    ]
    heads += [
        "123456789.125",
        "0.30000000000000004",
        "5e-324",
        "1.7976931348623157e308",
        "9" * 400,
        "00",
        "1.",
        "-",
    ]
    tails = [
        "",
        "e0",
        "E0",
        "e1",
        "E+2",
        "e-2",
        "e15",
        "e16",
        "e-7",
        "e300",
        "e400",
        "e-400",
        ".0",
        "e",
        "e+",
        ".5e1",
        "e007",
    ]
    for head, tail, form in itertools.product(heads, tails, ('{{"n":{}}}', '{{"n":[0,{}]}}')):
        yield form.format(head + tail)
