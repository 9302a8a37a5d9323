"""No tool that is loaded takes a URL where nobody looks: under a name that says so, or one that it does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import ToolError
from tachograph.runtime.schema.dialect import check_input, shape
from tachograph.runtime.schema.resource_places import Resource
from tachograph.runtime.schema.validator import SchemaValidator

EVIL = "https://evil.test/"
NAMES = ("a", "n", "name", "url")
URL = {"type": "string", "x-resource": "url"}
Schemas = st.SearchStrategy[Any]

leaves: Schemas = st.sampled_from(
    [
        {}, True, False, {"type": "string"}, {"type": "integer"}, {"type": "object"}, {"type": "array"},
        {"type": "null"}, {"type": ["string", "null"]}, {"enum": ["a", 1]}, {"const": "a"},
        {"const": {"url": "b"}}, {"minLength": 2}, {"type": "string", "pattern": "^h"},
        {"type": "string", "format": "uri"}, {"type": "string", "maxLength": 99}, {"$ref": "#/$defs/d"},
        {"$ref": "#/$defs/e"}, {"$ref": "#/$defs/d", "title": "t"}, {"required": ["a"]},
        {"type": "object", "additionalProperties": False}, {"type": ["string", "null"], "x-resource": "url"}, URL, URL,
    ]
)  # fmt: skip


def _objects(inner: Schemas) -> Schemas:
    closing = st.just(False) | st.just(False) | st.just(False) | inner
    return st.fixed_dictionaries(
        {"properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=2), "type": st.just("object")},
        optional={"additionalProperties": closing},
    )


def _arrays(inner: Schemas) -> Schemas:
    return st.fixed_dictionaries({"items": inner}, optional={"type": st.just("array")})


def _choices(inner: Schemas) -> Schemas:
    several = st.lists(inner, min_size=1, max_size=3) | inner.map(lambda schema: [schema, {"type": "null"}])
    declared = st.just({}) | st.just({}) | st.just({"x-resource": "url"})
    return st.builds(
        lambda keyword, subs, more: {keyword: subs, **more},
        st.sampled_from(["anyOf", "oneOf"]),
        several,
        declared,
    )


def _closed(inner: Schemas) -> Schemas:
    return _objects(inner).map(lambda schema: {**schema, "additionalProperties": False})


parts: Schemas = st.recursive(
    leaves, lambda inner: _closed(inner) | _objects(inner) | _arrays(inner) | _choices(inner), max_leaves=6
)
roots: Schemas = st.builds(
    lambda root, d, e: {**root, "$defs": {"d": d, "e": e}}, _closed(parts), parts, leaves
)


def _values(depth: int) -> Iterator[Any]:
    yield from (EVIL, [EVIL], {EVIL: 1}, 1)
    if depth:
        for value in _values(depth - 1):
            yield from ({name: value} for name in (*NAMES, "zz"))
            yield [value]


BASES: list[dict[str, Any]] = [{}, {"a": 1}, {"a": "a"}, {"n": 1}, {"name": None}]
DATA = [
    {**base, **value}
    for value in _values(2)
    if isinstance(value, dict)
    for base in BASES
    if not base.keys() & value.keys()
]


def _seen(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the URL stands, as a value or (then None comes last) as a key."""
    if data == EVIL:
        yield path
    elif isinstance(data, dict):
        for key, value in data.items():
            if key == EVIL:
                yield (*path, None)
            yield from _seen(value, (*path, key))
    elif isinstance(data, list):
        for i, item in enumerate(data):
            yield from _seen(item, (*path, i))


def _needs_a_word(path: tuple[Any, ...], free_keys: bool) -> bool:
    """Whether a URL there is one that the schema's author has to speak of."""
    names = [step for step in path if not isinstance(step, int)]
    if names[-1] in ("url", "zz"):
        return True
    # a name that the arguments chose says nothing of what is inside
    return not free_keys and names[-1] in (None, "name") and names[-2:-1] == ["url"]


def _resources(schema: dict[str, Any]) -> tuple[Resource, ...] | None:
    try:
        return check_input(schema, "t")
    except ToolError as error:
        event(f"refused: {' '.join(error.message.split()[1:5])}")
        return None


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(roots)
def test_no_url_stands_where_nobody_looks(schema: dict[str, Any]) -> None:
    resources = _resources(schema)
    if resources is None:
        return
    event("loaded")
    text = json.dumps(schema)
    free = 'additionalProperties": {' in text
    judges = [SchemaValidator(schema), SchemaValidator(shape(schema))]
    for data in DATA:
        needy = [path for path in _seen(data) if _needs_a_word(path, free)]
        accepted = [judge.accepts(data) for judge in judges] if needy else [False]
        assert not accepted[0] or accepted[-1]  # what fits the schema fits its shape
        if any(accepted):
            followed = {pointer for resource in resources for pointer, _ in resource.find(data)}
            unseen = [path for path in needy if "".join(f"/{step}" for step in path) not in followed]
            assert not unseen, (unseen, data)


SAID: Schemas = st.sampled_from(
    [
        {"enum": ["https://good.test/", 1]}, {"type": "string", "enum": ["https://good.test/"]},
        {"const": "https://good.test/"}, {"anyOf": [{"const": "https://good.test/"}, {"enum": [1]}]},
        {"enum": [{"url": "https://good.test/"}]}, {"const": 1},
        {"type": "string", "enum": ["https://good.test/"], "maxLength": 99},
        {"oneOf": [{"const": 1}, {"const": 2}]},
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    SAID,
    st.sampled_from([*_values(1), "https://good.test/", {"url": "https://good.test/"}, 2, None, True, 1.0]),
)
def test_of_a_closed_list_only_what_is_listed_passes(said: dict[str, Any], value: Any) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"url": said}}
    assert _resources(schema) == ()
    listed = [1, "https://good.test/", {"url": "https://good.test/"}, 2]
    for judge in (SchemaValidator(schema), SchemaValidator(shape(schema))):
        if judge.accepts({"url": value}):
            assert value in listed and not isinstance(value, bool)
    loose, strict = SchemaValidator(shape(schema)), SchemaValidator(schema)
    assert loose.first_mismatch({"url": value}) == strict.first_mismatch({"url": value})
