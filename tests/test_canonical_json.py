"""Canonical JSON beside RFC 8785: what a browser's JSON.stringify writes, and what the RFC shows."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.formats.strict_json import MAX_SAFE_INTEGER, canonical

KEYS = st.text(st.characters(max_codepoint=127), max_size=6)
ODD = st.sampled_from('\0\b\x1f\x7f\u2028\ufeff\U0001f600"\\/')
LEAVES = (
    st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    | st.text(ODD | st.characters(exclude_categories=["Cs"]))
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda below: st.lists(below) | st.dictionaries(KEYS, below), max_leaves=20)
# RFC 8785 is JSON.stringify with the keys of objects sorted by their UTF-16 units, which is what `sort` compares
SORTED = """
const sorted = value => Array.isArray(value) ? "[" + value.map(sorted).join(",") + "]"
  : value !== null && typeof value === "object"
    ? "{" + Object.keys(value).sort().map(key => JSON.stringify(key) + ":" + sorted(value[key])).join(",") + "}"
    : JSON.stringify(value);
console.log(JSON.parse(require("fs").readFileSync(0)).map(sorted).join("\\n"));
"""


def test_what_others_write() -> None:
    values: list[Any] = [0.00001, 0.000012, 0.5, 333333333.33333329, -4503599627370495.5, 1e-7, 5e-324]

    @settings(max_examples=200)
    @given(VALUES)
    def draw(value: Any) -> None:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        assert canonical(value) == text.encode()
        values.append(value)

    draw()
    if shutil.which("node") is None:
        pytest.skip("compares with what node writes, too")
    texts = subprocess.check_output(["node", "-e", SORTED], input=json.dumps(values).encode())
    assert [canonical(value) for value in values] == texts.removesuffix(b"\n").split(b"\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # section 3.2.2: literals, and a string with escapes
        ([None, True, False], "[null,true,false]"),
        ('\u20ac$\x0f\nA\'B"\\\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        # section 3.2.2.2: controls have their short escape or a lower-case \u, and nothing else is escaped
        ("\b\t\n\f\r\0\x0b\x1f", r'"\b\t\n\f\r\u0000\u000b\u001f"'),
        ("\x7f\x80\u2028\u2029/", '"\x7f\x80\u2028\u2029/"'),
        ("A\u030a", '"A\u030a"'),  # section 3.1: no normalization
        # section 3.2.3: the order of keys, but for the emoji, which UTF-16 puts before U+FB33
        (
            {"\u20ac": 0, "\r": 1, "\ufb33": 2, "1": 3, "\U0001f600": 4, "\x80": 5, "\u00f6": 6},
            '{"\\r":1,"1":3,"\x80":5,"\u00f6":6,"\u20ac":0,"\ufb33":2,"\U0001f600":4}',
        ),
        ([56, {"d": True, "10": None, "1": []}], '[56,{"1":[],"10":null,"d":true}]'),
        # appendix B: numbers
        ([0, -0, MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER], "[0,0,9007199254740991,-9007199254740991]"),
        ([4.50, 2e-3, 333333333.33333329, 5e-324], "[4.5,0.002,333333333.3333333,5e-324]"),
    ],
)
def test_what_the_rfc_shows(value: Any, text: str) -> None:
    assert canonical(value).decode() == text
