"""Values and names are counted in canonical JSON without decoding it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.json_units import count_units

DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats(-2, 2) | st.text('a",:[]{}\\ü\n', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('a",:[]{}\\', max_size=3), inner, max_size=4)
    ),
)


def counted(data: Any) -> int:
    """Count the same in decoded data."""
    if isinstance(data, dict):
        return 2 + len(data) + sum(map(counted, data.values()))
    return 2 + sum(map(counted, data)) if isinstance(data, list) else 1


@given(DATA)
def test_the_text_tells_how_much_it_holds(data: Any) -> None:
    text = canonical_json.encode(data)
    assert count_units(text, 10_000) == counted(json.loads(text)) <= len(text)


@pytest.mark.parametrize("text", ['["",""]', '["\\"","\\\\"]', '{"a":"b"}', '{"\\\\":"\\\\\\""}'])
def test_strings_alone_are_counted_where_they_are_enough(text: str) -> None:
    assert count_units(text, 1) == 2
