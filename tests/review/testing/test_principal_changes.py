"""Principals of a policy are dropped and added, as are their denials, and a test has to notice each change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tachograph.review.testing.coverage import EQUIVALENT, INVALID, NOTICED, UNGUARDED
from tachograph.review.testing.principal_changes import changed_principals
from tests.review.covering import covered, project
from tests.review.testing.test_tool_changes import BASE

PRINCIPALS: dict[str, Any] = {"ann": {"tools": {}}, "bob": {"tools": {"summarize": "deny"}}}


def call(tool: str, principal: str | None, rule: str) -> dict[str, Any]:
    arguments = {"query": "x"} if tool == "search" else {"text": "x"}
    return {
        "name": f"{tool} for {principal}",
        "call": {"tool": tool, "arguments": arguments},
        **({} if principal is None else {"principal": principal}),
        "expect": "deny" if rule == "principal" else "allow",
        "rule": rule,
    }


TESTS = [
    call("search", "ann", "tool_registry"),
    call("summarize", "ann", "tool_registry"),
    call("search", "bob", "tool_registry"),
    call("summarize", "bob", "principal"),
    call("search", "eve", "principal"),
]


def ours(root: Path) -> dict[str, Any]:
    words = ("principal", "denial of", "section principals")
    return {v.description: v for v in covered(root).verdicts if v.description.startswith(words)}


def test_every_principal_and_denial_is_dropped_and_added() -> None:
    found = {
        words: (keys, value)
        for keys, value, words, *_ in changed_principals(PRINCIPALS, ["x", "summarize"], [])
    }
    assert found == {
        "principal 'ann' dropped": (("principals", "ann"), None),
        "denial of 'x' for 'ann' added": (("principals", "ann", "tools", "x"), "deny"),
        "denial of 'summarize' for 'ann' added": (("principals", "ann", "tools", "summarize"), "deny"),
        "principal 'bob' dropped": (("principals", "bob"), None),
        "denial of 'summarize' for 'bob' dropped": (("principals", "bob", "tools", "summarize"), None),
        "denial of 'x' for 'bob' added": (("principals", "bob", "tools", "x"), "deny"),
        "principals that are not listed added, such as 'unlisted'": (
            ("principals",),
            {**PRINCIPALS, "unlisted": {"tools": {}}},
        ),
    }
    assert list(changed_principals({}, ["x"], ["eve"])) == []


def test_tests_of_each_principal_notice_each_change(tmp_path: Path) -> None:
    found = ours(project(tmp_path, {**BASE, "principals": PRINCIPALS}, *TESTS))
    assert {v.outcome for v in found.values()} == {NOTICED}, found
    assert "principals that are not listed added, such as 'eve'" in found and len(found) == 8


def test_a_test_is_suggested_that_names_the_principal(tmp_path: Path) -> None:
    root = project(tmp_path, {**BASE, "principals": PRINCIPALS})
    found = ours(root)
    assert {v.outcome for v in found.values()} == {UNGUARDED}
    assert not {EQUIVALENT, INVALID} & {v.outcome for v in found.values()}
    given = found["denial of 'summarize' for 'bob' dropped"].suggestion
    assert given is not None and (given["principal"], given["expect"], given["rule"]) == (
        "bob",
        "deny",
        "principal",
    )
    suggested = [dict(v.suggestion) for v in found.values() if v.suggestion is not None]
    assert len(suggested) == len(found)
    again = ours(project(tmp_path, {**BASE, "principals": PRINCIPALS}, *suggested))
    assert {v.outcome for v in again.values()} == {NOTICED}


def test_a_suggestion_for_another_section_is_asked_for_a_principal_too(tmp_path: Path) -> None:
    found = covered(project(tmp_path, {**BASE, "principals": PRINCIPALS}))
    (one,) = (v for v in found.verdicts if v.description == "max_tool_calls 10 instead of 9")
    assert one.outcome == UNGUARDED and one.suggestion is not None
    assert (one.suggestion["principal"], one.suggestion["rule"]) == ("ann", "loop_budget")
