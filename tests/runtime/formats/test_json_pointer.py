"""JSON Pointers (RFC 6901)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.formats.json_pointer import escape_pointer, get, join, parse, put, unescape_pointer

# section 5 of the RFC
DOCUMENT: dict[str, Any] = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, " ": 7, "m~n": 8, "~1": 9}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        *[("", DOCUMENT), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1)],
        *[("/c%d", 2), ("/ ", 7), ("/m~0n", 8), ("/~01", 9)],
    ],
)
def test_get_and_put(pointer: str, value: Any) -> None:
    assert get(DOCUMENT, pointer) == value
    if pointer:
        changed = copy.deepcopy(DOCUMENT)
        put(changed, pointer, "new")
        assert get(changed, pointer) == "new"


@pytest.mark.parametrize(
    "pointer", ["foo", "/foo/2", "/foo/01", "/foo/-", "/foo/-1", "/foo/x", "/none", "/a~1b/x"]
)
def test_what_is_not_there_is_an_error(pointer: str) -> None:
    with pytest.raises((KeyError, IndexError, ValueError, TypeError)):
        get(DOCUMENT, pointer)


@given(st.lists(st.text("a~/01", max_size=4)))
def test_keys_come_back(keys: list[str]) -> None:
    assert join(keys) == "".join(f"/{escape_pointer(key)}" for key in keys)
    assert all(unescape_pointer(escape_pointer(key)) == key for key in keys)
    assert parse(join(keys)) == keys
