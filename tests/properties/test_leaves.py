"""Every leaf is ordered: what explaining, comparing, drafting and coverage of policies rest on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.policy.leaf import Leaf
from tachograph.runtime.policy.rules import RULES
from tachograph.runtime.policy.rules.approval import CallPoint, UnaskedCall, Unattended
from tachograph.runtime.policy.rules.arg_schema import ArgumentsPoint, Enforcement
from tachograph.runtime.policy.rules.arguments import Demanded, Judgeable, Unasked
from tachograph.runtime.policy.rules.loop_budget import Limits, Need
from tachograph.runtime.policy.rules.redact import Revealed
from tachograph.runtime.policy.rules.resources import Places, TextPoint
from tachograph.runtime.policy.rules.sandbox_path import Mounts, PathPoint
from tachograph.runtime.policy.rules.tool_registry import Names
from tachograph.runtime.policy.rules.url_allowlist import Methods, Networks, UrlPoint, Urls
from tachograph.runtime.resources.url import parse_url
from tachograph.runtime.tools.contract import Tool

# for each kind of leaf: how to draw one, its small world of points, and whether `beyond` is exact there

names = st.lists(st.sampled_from("abc"), unique=True)
URLS = "https://h.test/ https://h.test/a https://h.test/a/ https://h.test/a/b http://h.test/ k.test".split()
METHODS = ("GET", "HEAD", "POST")
url_entries = st.lists(
    st.tuples(st.sampled_from(URLS), st.lists(st.sampled_from(METHODS), min_size=1, unique=True)), max_size=3
)
url_points = [
    UrlPoint(parse_url(f"{origin}{path}"), method)
    for origin in ("https://h.test", "http://h.test", "https://k.test")
    for path in ("/", "/a", "/ab", "/a/", "/a/b", "/a/c", "/a/b/c", "/a?q")
    for method in (*METHODS, "")
]
CIDRS = ["10.0.0.0/8", "10.1.0.0/16", "192.168.0.0/16", "fd00::/8"]
addresses = ["10.1.2.3", "10.2.0.1", "192.168.1.1", "127.0.0.1", "fd00::1", "8.8.8.8", "fe80::1%eth0", "x"]
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["n"],
    "properties": {
        "n": {"type": "integer", "maximum": 3},
        "o": {"oneOf": [{"maximum": 0}, {"minimum": 2}]},  # of which any number meets both without the limits
    },
}
_TOOL = Tool("t", "", _SCHEMA, _SCHEMA, "pure", lambda arguments, io: arguments)
RESOURCES = ("url", "path:read", "path:write", "text", "any")
BUDGETS = ("max_iterations", "max_tokens", "max_result_bytes", "max_attempts", "max_cost", "max_wall_clock_s")
limits = st.dictionaries(st.sampled_from(BUDGETS), st.integers(0, 3))

condition = st.fixed_dictionaries(
    {},
    optional={
        "maximum": st.integers(0, 2),
        "exclusiveMinimum": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "in": st.lists(st.sampled_from([0, 1, "a"]), max_size=2, unique=True),
        "pattern": st.sampled_from(["^a", "b"]),
    },
).filter(bool)
conditions = st.dictionaries(st.sampled_from(["/x", "/l/*"]), condition, max_size=2)
values: list[Any] = [0, 1, 2, 3, 0.5, "", "a", "ab", "bab", True, None, [0], {"a": 1}]
arguments: list[Any] = [
    {},
    *({"x": value} for value in values),
    *({"l": [value, 1]} for value in values),
    {"l": 7},
]

KINDS: dict[type[Leaf[Any]], tuple[st.SearchStrategy[Any], list[Any], bool]] = {
    Names: (st.builds(Names, names, names), [*"abcd", "another_tool"], True),
    Urls: (st.builds(Urls, url_entries), url_points, True),
    Networks: (
        st.lists(st.sampled_from(CIDRS), unique=True).map(Networks),
        [UrlPoint(parse_url("https://h.test/"), "GET", address) for address in addresses],
        False,
    ),
    Methods: (
        st.builds(
            Methods, st.lists(st.sampled_from(METHODS), unique=True), st.just(Urls([("h.test", METHODS)]))
        ),
        url_points,
        True,
    ),
    Mounts: (
        st.builds(Mounts, st.dictionaries(st.sampled_from("ab"), st.sampled_from(["read", "write"]))),
        [PathPoint(mount, access, f"{mount}/x") for mount in ("a", "b", "c") for access in ("read", "write")],
        True,
    ),
    Enforcement: (
        st.builds(Enforcement, st.sampled_from(["strict", "shape"])),
        [ArgumentsPoint(point, _TOOL) for point in ({"n": 1}, {"n": 9}, {"n": "1"}, {"n": 1, "o": 0})],
        True,
    ),
    Revealed: (
        st.builds(Revealed, st.lists(st.sampled_from(["email", "jwt"]))),
        ["email", "jwt", "env"],
        True,
    ),
    Places: (
        st.builds(
            Places, st.dictionaries(st.sampled_from(["/x", "/l/*", "/l/x"]), st.sampled_from(RESOURCES))
        ),
        [
            TextPoint(path, kind)
            for path in (("x",), ("y",), ("l", "*"), ("l", "x"), ("l", "y"))
            for kind in ("", *RESOURCES)
        ],
        True,
    ),
    Limits: (
        st.builds(Limits, limits),
        [Need(name, used, more) for name in BUDGETS for used in range(4) for more in (0, 1, 2)],
        True,
    ),
}
for _kind in (Demanded, Unasked, Judgeable):
    KINDS[_kind] = (st.builds(_kind, conditions), arguments, False)
KINDS[UnaskedCall] = (
    st.builds(UnaskedCall, conditions),
    [CallPoint("t", point) for point in arguments],
    False,
)
KINDS[Unattended] = (
    st.builds(Unattended, names),
    [CallPoint(name, {}) for name in [*"abcd", "another_tool"]],
    True,
)
# of these an entry may cover another one, so that a change of it changes nothing
OVERLAPPING = {Urls, Networks, Places, Demanded, Unasked, Judgeable, UnaskedCall}


def test_every_leaf_of_every_rule_is_held_to_its_order() -> None:
    from tachograph.runtime.policy.policy import Policy

    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tools": {"t": {"urls": [], "methods": ["GET"], "mounts": []}},
            "redact": {"kinds": ["email"]},
        }
    )
    found = {type(leaf) for rule in RULES for _, leaf in rule.leaves(policy, "t")}
    assert found | {Unasked} == set(KINDS)  # which is a part of UnaskedCall


def beyond_is_sound(kind: type[Leaf[Any]], a: Any, b: Any) -> None:
    _, points, exact = KINDS[kind]
    entries = list(a.beyond(b))
    wider = [point for point in points if a.allows(point) and not b.allows(point)]
    if not entries:
        assert wider == []
    for _, point in entries:
        assert point is None or (a.allows(point) and not b.allows(point))
    if exact and not wider:
        assert entries == []


def a_leaf_is_not_beyond_itself(kind: type[Leaf[Any]], a: Any, b: Any) -> None:
    assert list(a.beyond(a)) == []


def plus_allows_the_point_and_little_else(kind: type[Leaf[Any]], a: Any, b: Any) -> None:
    _, points, exact = KINDS[kind]
    for point in points:
        larger = a.plus(point)
        if larger is None:
            continue
        assert larger.allows(point)
        assert list(a.beyond(larger)) == []
        if a.allows(point) and exact:
            assert list(larger.beyond(a)) == []
        # no other one that does so is smaller; a point may leave the method of HTTP open
        if exact and kind not in (Urls, Methods) and b.allows(point) and not list(a.beyond(b)):
            assert list(larger.beyond(b)) == []


def a_leaf_that_says_so_allows_every_point(kind: type[Leaf[Any]], a: Any, b: Any) -> None:
    assert not a.allows_all or all(map(a.allows, KINDS[kind][1]))


def every_other_leaf_differs(kind: type[Leaf[Any]], a: Any, b: Any) -> None:
    others = list(a.others() if kind in OVERLAPPING else a.changes())
    assert others
    for words, other in others:
        assert words
        assert list(a.beyond(other)) or list(other.beyond(a)), words


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_what_holds_of_any_two_leaves(kind: type[Leaf[Any]], data: st.DataObject) -> None:
    pair = [data.draw(KINDS[kind][0]) for _ in "ab"]
    for holds in (
        beyond_is_sound,
        a_leaf_is_not_beyond_itself,
        plus_allows_the_point_and_little_else,
        a_leaf_that_says_so_allows_every_point,
        every_other_leaf_differs,
    ):
        holds(kind, *pair)
