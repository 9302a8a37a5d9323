"""Argument texts of a model: what is not a JSON object that two programs would read alike, and what is one.

How a case is made gives its label, and a second reader must agree; of numbers the second reader is the label. It is
Python's `json` with the rules of the contract: no key twice, no NaN, no half of a character, integers up to 2^53 - 1,
integral floats as integers, at most 128 levels.
"""

from __future__ import annotations

import json
import math
import random
import re
import struct
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tachograph.runtime.formats.strict_json import canonical
from tachograph.testing import Refused, decide, parse
from tests.tables.rows import Made, closed, roomy, rows

LEVELS, SAFE = 128, 2**53 - 1
DOCS = [
    '{"query":"sleep in the cab","top_k":5}',
    '{"a":{"b":{"c":[1,2,{"d":null}]}},"e":[true,false]}',
    '{"text":"line\\nline \\"quoted\\" \\\\ \\u00e9 {[,:]}","n":-0.5,"z":[[],{}]}',
    '{"\\u00fc":[{"x":1},{"x":2}],"x":{"x":{"x":"x"}}}',
]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[{}\[\],:]')
PLACES = ('{{"a":"{}"}}', '{{"{}":1}}', '{{"a":["x{}y"]}}', '{{"a":{{"b{}":"c"}}}}')
# between any two tokens white space may stand
GAPS = [(text, at) for text in DOCS for at in [*(match.start() for match in TOKEN.finditer(text)), len(text)]]


# ---- the second reader ---------------------------------------------------------------------------------------------


class NoArguments(ValueError):
    """The second reader takes this text for no arguments."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise NoArguments
    return dict(pairs)


def _constant(_name: str) -> Any:
    raise NoArguments


def _plain(value: Any, level: int) -> Any:
    if isinstance(value, dict | list) and level > LEVELS:
        raise NoArguments
    if isinstance(value, dict):
        return {_plain(key, 0): _plain(item, level + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, level + 1) for item in value]
    if isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise NoArguments
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_whole = isinstance(value, int) or value.is_integer()
        if (is_whole and abs(value) > SAFE) or not (is_whole or math.isfinite(value)):
            raise NoArguments
        return int(value) if is_whole else value
    return value


def reference(text: str) -> str | None:
    """Return the arguments in one form, or None where there are none."""
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
        return json.dumps(_plain(value, 1), sort_keys=True) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


# ---- by construction no arguments ----------------------------------------------------------------------------------


def _truncated() -> Iterator[str]:
    yield from (text[:size] for text in DOCS for size in range(len(text)))


def _trailing() -> Iterator[str]:
    more = ["/* */", "\x00", "\u00a0", "\ufeff", *'} ] , : " x {} [] 0 null \\ // # ;'.split(), *DOCS]
    yield from (text + space + end for text, end, space in product(DOCS, more, ("", " ", "\n")))


def _duplicates() -> Iterator[str]:
    """Each key twice, spelled alike or not."""
    for text in DOCS:
        for match in re.finditer(r'("(?:[^"\\]|\\.)*"):', text):
            key = json.loads(match[1])
            escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"'
            for spelling, value in product([match[1], json.dumps(key), escaped], ("0", "{}", '"x"')):
                yield f"{text[: match.start()]}{spelling}:{value},{text[match.start() :]}"


NO_VALUES = "NaN -NaN Infinity -Infinity nan inf None True FALSE undefined .5 5. 01 -01 +1 0x1F 1_000 1e 1e+"
NO_VALUES += " --1 - 1.e1 1..2 1.2.3 0b1 1n 1f 1,000 \u0661 \uff11 `a` a <a> (1) {1} 1e1.5 $a * 'a' [1"
NO_VALUES += ' \u201ca\u201d "a"a" "a""b"'


def _no_values() -> Iterator[str]:
    for text, other in product(DOCS, NO_VALUES.split(" ")):
        for match in TOKEN.finditer(text):
            if match[0] not in "{}[],:" and text[match.end() : match.end() + 1] != ":":
                yield text[: match.start()] + other + text[match.end() :]


def _no_punctuation() -> Iterator[str]:
    marks = ["//x\n", "#x\n", "--x\n", "\x00", "\x1b[31m", *"/*x*/ , ; ( <!--x--> \\ = ' ...".split()]
    yield from (text[:at] + mark + text[at:] for (text, at), mark in product(GAPS, marks))


def _no_white_space() -> Iterator[str]:
    spaces = "\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000\ufeff\u200b\u180e"
    yield from (text[:at] + space + text[at:] for (text, at), space in product(GAPS, spaces))


def _halves() -> Iterator[str]:
    """Half of a character, written as an escape or standing there."""
    halves = r"\ud800 \udfff \uD83D \udc00\ud800 \ud800\ud800\udc00 \ud83d\u0041 \ud83dx \udc00 \ude00\ud83d".split()
    halves += ["\ud800", "\udfff", "\udc00\ud800", "\ud83d\\ude00", "\\ud83d\ude00", "\ud83d\ude00"]
    yield from (place.format(half) for place in PLACES for half in halves)


def _no_strings() -> Iterator[str]:
    """Escapes that JSON does not know, and control characters that stand in a text."""
    escapes = ["\\ ", "\\\n", "\\u 041", "\\u00\uff141", *map(chr, range(0x20))]
    escapes += r"\x41 \' \u12 \u12G4 \U0001F600 \0 \v \a \e \N{DASH} \u{41}".split()
    escapes += r"\u+041 \u-041 \u0x41 \u \u004 \B \T \%".split()
    yield from (place.format(escape) for place in PLACES for escape in escapes)


def _no_objects() -> Iterator[str]:
    values = ["", " ", "\n", *'[] null true 0 "" "{}" [{}] -1 1.5 "a" { } \'{}\' {a:1}'.split()]
    forms = product(("", " ", "\ufeff"), values, ("", "\n"))
    yield from (before + value + after for before, value, after in forms)
    yield from (form for text in DOCS for form in (f"[{text}]", json.dumps(text), "\ufeff" + text))


def _too_deep() -> Iterator[str]:
    for depth in (LEVELS, LEVELS + 1, LEVELS + 40, 1000, 100_000):
        yield '{"a":' * (depth + 1) + "1" + "}" * (depth + 1)
        yield '{"a":[0,1,{"b":' + "[" * depth + "]" * depth + "}]}"
        yield from ('{"a":' + opening * depth for opening in ("[", '{"a":', "[{}, ", '[{"a":'))
        ends = ("0", "]}", "]" * depth, "NaN", "]" * depth + "}")
        yield from ('{"a":' + "[" * depth + end for end in ends)


REFUSED = [
    _truncated, _trailing, _duplicates, _no_values, _no_punctuation, _no_white_space, _halves, _no_strings,
    _no_objects, _too_deep,
]  # fmt: skip

# ---- by construction arguments -------------------------------------------------------------------------------------


def _white_space() -> Iterator[str]:
    spaces = (" ", "\t", "\n", "\r", " \r\n\t")
    yield from (text[:at] + space + text[at:] for (text, at), space in product(GAPS, spaces))


def _characters() -> Iterator[str]:
    """Each kind of character, standing there and as an escape, in texts and keys."""
    codes = [*range(0x30), 0x5C, 0x7F, 0x9F, 0xA0, 0xE9, 0x2028, 0x202E, 0xD7FF, 0xE000, 0xFEFF, 0xFFFF]
    whole = ["\\ud83d\\ude00", "\U0001f600", "\\udbff\\udfff", "\U00010000", *(f"\\{c}" for c in '"\\/bfnrt')]
    whole += [form.format(code) for code in codes for form in ("\\u{:04x}", "\\u{:04X}")]
    whole += [chr(code) for code in codes if code >= 0x20 and chr(code) not in '"\\']
    yield from (place.format(each) for place in PLACES for each in whole)


def _floats() -> Iterator[str]:
    """Doubles of every size that are not whole numbers, each as Python writes it and with digits to spare."""
    draw = random.Random(13)
    for value in (struct.unpack("<d", draw.randbytes(8))[0] for _ in range(400)):
        if math.isfinite(value) and not value.is_integer():
            yield f'{{"n":{value!r}}}'
            yield f'{{"n":{value:.25e}}}'


def _deep() -> Iterator[str]:
    for depth in (*range(1, 30, 2), LEVELS - 3, LEVELS - 2, LEVELS - 1):
        yield '{"a":' + "[" * depth + "]" * depth + "}"
        yield '{"a":' * (depth + 1) + "1" + "}" * (depth + 1)
        yield '{"a":' + "[[]," * (depth - 1) + "[]" + "]" * (depth - 1) + "}"
        yield '{"b":[' + ",".join(["[" * (depth - 1) + "]" * (depth - 1) or "0"] * 3) + "]}"


READ = [_white_space, _characters, _deep, _floats]


def _numbers() -> Iterator[str]:
    """Numbers: some whole in another form, some too large, some none."""
    heads = f"0 -0 1 -1 10 123 -250 {SAFE} {SAFE + 1} {-SAFE - 2} 12345678901234567890 0.0 -0.0 1.0 1.5 -2.50"
    heads += f" 0.1 0.000001 0.0000001 4.35 {SAFE}.0 {SAFE + 1}.0 123456789.125 5e-324 {'9' * 400} 00 1. -"
    heads += " 0.30000000000000004 1.7976931348623157e308"
    tails = ["", *"e0 E0 e1 E+2 e-2 e15 e16 e-7 e300 e400 e-400 .0 e e+ .5e1 e007".split()]
    for head, tail, form in product(heads.split(), tails, ('{{"n":{}}}', '{{"n":[0,{}]}}')):
        yield form.format(head + tail)


# ---- the tests -----------------------------------------------------------------------------------------------------

POLICY = roomy(["probe"])
TOOL = {"name": "probe", "input_schema": {**closed(), "patternProperties": {"(?s).*": {}}}}


def allowed(*texts: str) -> list[bool]:
    """Return whether the gate takes each text for arguments; else its rule of arguments has to object."""
    found = decide(POLICY, [TOOL], [{"name": "probe", "arguments": text} for text in texts])
    assert {each.rule_id for each in found if each.decision != "allow"} <= {"arg_schema"}
    return [each.decision == "allow" for each in found]


def read(text: str) -> str | None:
    """Return the arguments in one form, None where they are none."""
    try:
        value = parse("json", text)
    except Refused:
        return None
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else None


def misread(texts: list[str]) -> list[str]:
    """Return the texts that the reader reads otherwise than the second one, or than the gate."""
    compared = [(text, read(text), is_read) for text, is_read in zip(texts, allowed(*texts), strict=True)]
    return [ascii(row[0][:200]) for row in compared if row[1:] != (reference(row[0]), row[1] is not None)]


@pytest.mark.parametrize("made", [*REFUSED, *READ])
def test_texts_are_arguments_or_none(made: Made) -> None:
    texts = rows(made())
    assert misread(texts) == [] and {*allowed(*texts)} == {made in READ}


def test_numbers_are_whole_and_finite() -> None:
    texts = rows(_numbers())
    assert misread(texts) == [] and 50 <= sum(allowed(*texts)) <= len(texts) - 50


@pytest.mark.parametrize("more", [0, 1])
def test_the_longest_text_and_the_most_values_are_counted(more: int) -> None:
    """Characters, and the object, its list and its items: a long list costs a validator much."""
    long_text = '{"a":"' + "\u00e9" * (8_000_000 - 8 + more) + '"}'
    long_list = '{"a":[' + ",".join(["1"] * (50_000 - 2 + more)) + "]}"
    assert allowed(long_text, long_list) == [not more, not more]


@pytest.mark.parametrize("levels", [LEVELS + 1, 2_000, 20_000, 2_000_000])
def test_no_decoder_says_how_deep_is_too_deep(levels: int) -> None:
    """Each Python gives up at another depth."""
    for after in ('"[', "]x", '{"a":1,"a":1}', '"\\"]'):
        with pytest.raises(Refused, match="nested too deeply"):
            parse("json", "[" * levels + after)
    with pytest.raises(Refused, match="not JSON"):
        parse("json", f'"\\"{"[" * levels}",')


def test_keys_are_in_the_order_of_code_points() -> None:
    """In UTF-16 the last two would change places."""
    keys = ["", "Z", "a", "aa", "\u00e9", "\uffff", "\U00010000"]
    assert [*json.loads(canonical(dict.fromkeys(reversed(keys), 1)))] == keys


def test_a_reply_is_an_object_with_known_fields() -> None:
    texts = [
        "[]", "1", '{"tool_calls":[1]}', '{"tool_calls":"x"}', '{"answer":"x"}', "{}", '{"final_answer":1}',
        '{"tool_calls":[{"name":"a"}]}', '{"tool_calls":[{"name":"a","arguments":{},"tool":"b"}]}',
        '{"tool_calls":[{"name":"a","arguments":{}}],"final_answer":"x","finish_reason":"pause"}',
        '{"tool_calls":[{"name":"a","arguments":{}}],"final_answer":"x","finish_reason":""}',
    ]  # fmt: skip
    for text in texts:
        with pytest.raises(Refused):
            parse("reply", text)
    assert parse("reply", '{"final_answer":"x"}') == {"final_answer": "x"}
