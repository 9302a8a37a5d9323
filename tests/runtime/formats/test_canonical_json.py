"""Canonical JSON: RFC 8785 on its domain, and a refusal everywhere else."""

from __future__ import annotations

import json
import math
import shutil
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.canonical_json import (
    MAX_DEPTH,
    MAX_SAFE_INTEGER,
    MAX_TEXT,
    Fragment,
    NotJson,
    encode,
    fast_encoder,
    freeze,
    parse,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF))
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda x: not (x.is_integer() and abs(x) > MAX_SAFE_INTEGER)
)
SCALARS = st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | FLOATS | TEXT
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


# ---- what comes out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        ({"b": 1, "a": [True, False, None]}, '{"a":[true,false,null],"b":1}'),
        (1.0, "1"),
        (-0.0, "0"),
        (1e-7, "1e-7"),
        (1.5e-300, "1.5e-300"),
        (0.000001, "0.000001"),
        (333333333.33333329, "333333333.3333333"),
        (5e-324, "5e-324"),
        (123456.75, "123456.75"),
        ('\x00\b\t\n\f\r\x1f\x7f"\\/é\u2028', '"\\u0000\\b\\t\\n\\f\\r\\u001f\x7f\\"\\\\/é\u2028"'),
        ({"\ufb33": 1, "\u20ac": 2, "1": 3, "\r": 4, "\x80": 5}, '{"\\r":4,"1":3,"\x80":5,"€":2,"\ufb33":1}'),
    ],
)
def test_the_form_of_rfc_8785(value: Any, text: str) -> None:
    assert encode(value) == text


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, 2**53, -(2**53), float(2**53), 1e300, "\ud800", {"\udc00": 1},
        {"\U0001f600": 1}, {1: 2}, {1: 2, "1": 3}, {None: 1}, b"x", {1, 2}, object(), 1 + 2j,
    ],
)  # fmt: skip
def test_no_json_is_refused(value: Any) -> None:
    with pytest.raises(NotJson):
        encode([value])


def test_integers_end_at_2_to_the_53_minus_1() -> None:
    assert encode([MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER]) == "[9007199254740991,-9007199254740991]"
    assert parse("[9007199254740991,-9007199254740991]").text == "[9007199254740991,-9007199254740991]"


def test_a_subclass_is_no_plain_data() -> None:
    class Word(str):
        pass

    with pytest.raises(NotJson):
        encode([Word("x")])


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}])
def test_foreign_data_has_at_most_128_levels(wrap: Any) -> None:
    value: Any = wrap(0)
    for _ in range(MAX_DEPTH - 1):
        value = wrap(value)
    assert parse(json.dumps(value)) == freeze(value)
    with pytest.raises(NotJson) as deep:
        freeze(wrap(value))
    assert deep.value.reason == "nested too deeply"
    with pytest.raises(NotJson):
        parse(json.dumps(wrap(value)))


def test_a_record_around_the_deepest_data_reads_back() -> None:
    text = encode({"calls": [{"arguments": freeze(nested(MAX_DEPTH))}]})
    assert encode(json.loads(text)) == text


def test_bottomless_data_is_refused_and_raises_nothing_else() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotJson):
        encode(loop)
    for text in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(NotJson):
            parse(text)


# ---- against ECMAScript ------------------------------------------------------------------------------------


def _node(script: str, data: str) -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: RFC 8785's own serializer is not at hand")
    done = subprocess.run(
        [node, "-e", script], input=data, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return done.stdout


def test_floats_equal_ecmascript() -> None:
    bits = [i * 0x9E3779B97F4A7C15 % 2**64 for i in range(1, 6001)]
    floats = [x for (x,) in (struct.unpack("<d", struct.pack("<Q", b)) for b in bits) if math.isfinite(x)]
    floats += [x * 10.0**e for x in (1.0, 1.5, 9.999999999999999, 1 / 3, 5e-17) for e in range(-30, 23)]
    ours = [x for x in floats if not (x.is_integer() and abs(x) > MAX_SAFE_INTEGER)]
    assert len(ours) > 3000
    script = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0,'utf8'))))"
    theirs = _node(script, json.dumps(ours)).strip()
    assert theirs == encode(ours)


def test_key_order_equals_ecmascript() -> None:
    keys = [chr(c) for c in (*range(0x20, 0x100), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFB33, 0xFFFD, 0xFFFF)]
    keys += [a + b for a in keys[::7] for b in keys[::11]]
    script = (
        "const k=JSON.parse(require('fs').readFileSync(0,'utf8'));"
        "console.log('{'+k.sort().map(x=>JSON.stringify(x)+':0').join(',')+'}')"
    )
    assert _node(script, json.dumps(keys)).strip("\n") == encode(dict.fromkeys(keys, 0))


# ---- invariants --------------------------------------------------------------------------------------------


@given(JSON)
def test_meaning_stays(value: Any) -> None:
    assert json.loads(encode(value)) == value
    assert freeze(value).value() == value


@given(JSON)
def test_parsing_is_idempotent(value: Any) -> None:
    text = encode(value)
    assert parse(text).text == text
    assert parse(json.dumps(value)).text == text
    assert parse(json.dumps(value, ensure_ascii=False, indent=2)).text == text


@given(st.dictionaries(KEYS, SCALARS, min_size=2), st.randoms())
def test_key_order_does_not_matter(value: dict[str, Any], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert encode(dict(items)) == encode(value)


@given(st.text())
def test_parsing_is_total(text: str) -> None:
    try:
        frozen = parse(text)
    except NotJson as error:
        assert error.reason.isascii()
    else:
        assert parse(frozen.text) == frozen


@given(JSON, JSON)
def test_a_fragment_stands_for_its_value(value: Any, beside: Any) -> None:
    assert encode({"a": freeze(value), "b": [beside, freeze(value)]}) == encode(
        {"a": value, "b": [beside, value]}
    )


@given(JSON)
def test_mapping_no_string_changes_nothing(value: Any) -> None:
    assert canonical_json.map_strings(value, lambda text: text) == value


# ---- what is read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"a":1}', "duplicate key"),
        ('{"a":1,"\\u0061":2}', "duplicate key"),
        ('[{"x":{"a":1,"b":2,"a":3}}]', "duplicate key"),
        ("[NaN]", "NaN or infinity"),
        ("[Infinity]", "NaN or infinity"),
        ("[-Infinity]", "NaN or infinity"),
        ("[1e999]", "NaN or infinity"),
        ('["\\ud800"]', "lone surrogate"),
        ('["\\udc00\\ud800"]', "lone surrogate"),
        ('["\ud800"]', "lone surrogate"),
        ('{"\\ud800":1}', "lone surrogate"),
        ("[9007199254740992]", "integer beyond 2^53"),
        ("[-9007199254740992]", "integer beyond 2^53"),
        ("[9007199254740993.0]", "integer beyond 2^53"),
        ("[" + "9" * 5000 + "]", "integer beyond 2^53"),
        ("", "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("{} {}", "not JSON"),
        ("{'a':1}", "not JSON"),
        ("[1,]", "not JSON"),
        ('["\n"]', "not JSON"),
        ("[01]", "not JSON"),
        ("\u00a0{}", "not JSON"),
        (" " * (MAX_TEXT + 1), "text too long"),
    ],
)
def test_parsing_is_strict(text: str, reason: str) -> None:
    with pytest.raises(NotJson) as refused:
        parse(text)
    assert refused.value.reason == reason


@given(JSON, st.integers(1, 12))
def test_values_are_counted(value: Any, most: int) -> None:
    def count(part: Any) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + sum(map(count, inner))

    for read in (lambda: freeze(value, most=most), lambda: parse(json.dumps(value), most=most)):
        if count(value) <= most:
            assert read() == freeze(value)
        else:
            with pytest.raises(NotJson, match=f"more than {most} values"):
                read()


def test_one_number_has_one_form() -> None:
    assert {parse(text).text for text in ("1", "1.0", "1e0", "10e-1", "100E-2")} == {"1"}
    assert {parse(text).text for text in ("0", "-0", "-0.0", "0e5")} == {"0"}


def test_a_pair_of_escaped_surrogates_is_one_character() -> None:
    assert parse('["\\ud83d\\ude00"]').text == '["\U0001f600"]'


def test_fragments_compare_by_text() -> None:
    assert Fragment("1") == Fragment("1") != Fragment("2")
    assert len({Fragment("1"), Fragment("1")}) == 1
    assert Fragment("1") != "1"
    assert repr(Fragment("[1]")) == "Fragment('[1]')"


def test_a_fragments_value_is_a_copy() -> None:
    frozen = freeze({"a": [1]})
    frozen.value()["a"].append(2)
    assert frozen.value() == {"a": [1]}


@pytest.mark.parametrize("text", ["", "{} {}", "{}x", " {}", "{"])
def test_a_fragment_that_is_no_json_has_no_value(text: str) -> None:
    with pytest.raises(ValueError):
        Fragment(text).value()


def test_digest_is_sha_256_of_utf_8() -> None:
    assert canonical_json.digest("é") == canonical_json.digest("é".encode())
    assert canonical_json.digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_map_strings_reaches_keys_and_leaves() -> None:
    assert canonical_json.map_strings({"a": ["b", 1, None, {"c": True}]}, str.upper) == {
        "A": ["B", 1, None, {"C": True}]
    }


TRUSTED = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | TEXT | TEXT.map(freeze),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(TRUSTED)
def test_the_fast_encoder_gives_the_same_text(value: Any) -> None:
    assert fast_encoder()(value) == encode(value)


def test_only_a_long_run_imports_the_fast_encoder() -> None:
    program = """if True:
        import sys
        from tachograph.runtime.formats.canonical_json import encode_trusted
        def all_encoded(texts):
            return all(encode_trusted({"b": i, "a": None}) == '{"a":null,"b":%d}' % i for i in range(texts))
        print(all_encoded(20), "orjson" in sys.modules, all_encoded(1000), "orjson" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True False True True\n"


@pytest.mark.parametrize("value", [2**53, -(2**53), "\ud800", {1: 2}, {"a": {3}}, [b"x"], [object()]])
def test_the_fast_encoder_refuses_what_the_other_refuses(value: Any) -> None:
    with pytest.raises(NotJson) as slow:
        encode(value)
    with pytest.raises(NotJson) as fast:
        fast_encoder()(value)
    assert fast.value.reason == slow.value.reason
