"""Rules per tool and named lists are changed bit by bit, and a test or a run has to notice each change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tachograph import Policy, PolicyError
from tachograph.review.testing.coverage import EQUIVALENT, INVALID, NOTICED, UNGUARDED, cover
from tachograph.review.testing.tool_changes import MOST_VALUES, rules_of_tool, values_of_list
from tests.review.covering import covered, project
from tests.support import ROOT

BASE: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["search", "summarize"]},
    "loop_budget": {"max_iterations": 9, "max_tokens": 99, "max_tool_calls": 9, "max_result_bytes": 99},
    "cycle_detection": {"max_repeats": 9},
}


def words(rules: dict[str, Any]) -> set[str]:
    return {what for _, _, what in rules_of_tool(rules)}


def outcomes(tmp_path: Path, data: dict[str, Any], *tests: dict[str, Any]) -> dict[str, Any]:
    found = covered(project(tmp_path, data, *tests))
    ours = ("rules of", "list ", "section tools", "section lists")
    return {v.description: v for v in found.verdicts if v.description.startswith(ours)}


def test_every_rule_of_a_tool_is_dropped_and_moved_both_ways() -> None:
    rules = {
        "arguments": {"/a": {"maximum": 5, "type": "number"}, "/b": {"in": "some"}},
        "ask_if": {"/a": {"exclusiveMinimum": 0.5}},
        "limits": {"calls": 2, "per_minute": 3},
    }
    assert words(rules) == {
        "arguments dropped",
        "arguments /a dropped",
        "arguments /a maximum dropped",
        "arguments /a maximum 4 instead of 5",
        "arguments /a maximum 6 instead of 5",
        "arguments /a type dropped",
        "arguments /b dropped",
        "ask_if dropped",
        "ask_if /a exclusiveMinimum -0.5 instead of 0.5",
        "ask_if /a exclusiveMinimum 1.5 instead of 0.5",
        "limits dropped",
        "limits calls dropped",
        "limits calls 1 instead of 2",
        "limits calls 3 instead of 2",
        "limits per_minute dropped",
        "limits per_minute 2 instead of 3",
        "limits per_minute 4 instead of 3",
    }


def test_windows_lose_a_key_and_each_edge_is_moved() -> None:
    window = {"days": "fri-sat", "hours": "00:00-24:00", "zone": "UTC"}
    found = words({"between": window})
    assert {what.removeprefix("between ") for what in found if "days [" not in what} == {
        "days dropped",
        "hours dropped",
        "hours 00:01-24:00 instead of 00:00-24:00",
        "hours 00:00-23:59 instead of 00:00-24:00",
    }
    days = {what for what in found if "days [" in what}
    assert len(days) == 7 and 'between days ["fri"] instead of "fri-sat"' in days
    listed = words({"between": [{"days": "mon", "zone": "UTC"}, {"hours": "08:00-09:00", "zone": "UTC"}]})
    assert {"between window 1 dropped", "between window 2 dropped"} <= listed


def test_conditions_are_changed_at_any_depth_and_never_to_nothing() -> None:
    condition = {
        "items": {"properties": {"x": {"enum": ["p", "q"]}}, "required": ["x"]},
        "anyOf": [{"maxItems": 0}, {"uniqueItems": True}],
    }
    found = words({"arguments": {"": condition}})
    assert {what.removeprefix("arguments  ") for what in found} == {
        "items dropped",
        "items properties dropped",
        "items properties x enum dropped",
        'items properties x enum "p" dropped',
        'items properties x enum "q" dropped',
        "items required dropped",
        "anyOf dropped",
        "anyOf 1 dropped",
        "anyOf 1 maxItems dropped",
        "anyOf 1 maxItems 1 instead of 0",
        "anyOf 2 dropped",
        "anyOf 2 uniqueItems dropped",
    }
    assert all(
        rules["arguments"][""]
        for rules, _, _ in rules_of_tool({"arguments": {"": {"in": "some"}}, "x": 1})
        if "arguments" in rules
    )


def test_whatever_a_tool_may_have_rules_on_is_changed() -> None:
    """A new kind of rule per tool needs changes of its own: that it is dropped shows no limit moved by one."""
    schema = json.loads((ROOT / "policy/v1.schema.json").read_text(encoding="utf-8"))
    kinds = schema["properties"]["tools"]["additionalProperties"]["properties"]
    samples: dict[str, Any] = {
        "arguments": {"/a": {"maximum": 1}},
        "ask_if": {"/a": {"maximum": 1}},
        "headers": {"/a": {"maxLength": 1}},
        "body": {"/a": {"maximum": 1}},
        "limits": {"calls": 1},
        "urls": ["https://a.test"],
        "methods": ["GET"],
        "mounts": ["m"],
        "between": {"days": "mon", "zone": "UTC"},
    }
    assert samples.keys() == kinds.keys()
    assert all(words({kind: sample}) for kind, sample in samples.items())


def test_values_of_a_list_are_dropped_and_those_that_are_met_are_added() -> None:
    found = list(values_of_list(["a", "b"], [7, "b", "c", None]))
    assert [values for values, _, _ in found] == [["b"], ["a"], ["a", "b", "c"]]
    assert [place for _, place, _ in found] == ["/0", "/1", ""]
    assert list(values_of_list([1, 2.5], ["x"]))[-1][0] == [1, 2.5, 3.5]
    assert list(values_of_list(["a"], [1]))[-1][0] == ["a", "unlisted"]
    assert list(values_of_list([], [1, "x"]))[-1][0] == [1, "x"]
    assert len(list(values_of_list([*range(20_000)], []))) == MOST_VALUES + 1


def test_questions_about_limits_are_asked_with_what_they_count(tmp_path: Path) -> None:
    data = {**BASE, "tools": {"search": {"limits": {"calls": 2, "per_minute": 1}}}}
    used = {
        what: verdict.suggestion["used"]
        for what, verdict in outcomes(tmp_path, data).items()
        if verdict.suggestion is not None and " instead of " in what
    }
    assert used == {
        "rules of 'search': limits calls 1 instead of 2": {"calls_of_tool": 1},
        "rules of 'search': limits calls 3 instead of 2": {"calls_of_tool": 2},
        "rules of 'search': limits per_minute 2 instead of 1": {"calls_in_minute": 1},
    }


def test_what_is_suggested_guards_the_rules_of_a_tool(tmp_path: Path) -> None:
    """Nothing notices a change at first; with the tests that are suggested, all of them are."""
    data = {
        **BASE,
        "lists": {"words": ["x", "y"]},
        "approval": {"required_for": [], "timeout_s": 9},
        "tools": {
            "search": {"arguments": {"/query": {"in": "words"}}, "limits": {"calls": 2, "per_minute": 2}},
            "summarize": {"ask_if": {"/text": {"minLength": 2}}, "arguments": {"/text": {"maxLength": 3}}},
        },
    }
    before = outcomes(tmp_path, data)
    tests = [v.suggestion for v in before.values() if v.outcome == UNGUARDED]
    assert len(tests) > 12 and None not in tests
    after = outcomes(tmp_path, data, *tests)
    assert {v.outcome for v in after.values()} <= {NOTICED, EQUIVALENT, INVALID}
    assert "rules of 'search': limits per_minute 3 instead of 2" in after
    assert after["rules of 'search': limits calls 3 instead of 2"].outcome == NOTICED
    assert after["list 'words': value \"x\" dropped"].outcome == NOTICED


def test_a_list_in_a_file_of_its_own_is_changed_too(tmp_path: Path) -> None:
    data = {
        **BASE,
        "lists": {"words": {"file": "words.yaml"}},
        "tools": {"search": {"arguments": {"/query": {"in": "words"}}}},
    }
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/words.yaml").write_text("- x\n- y\n", encoding="utf-8")
    test = {"name": "x", "call": {"tool": "search", "arguments": {"query": "x"}}, "expect": "allow"}
    found = outcomes(tmp_path, data, test)
    assert found["list 'words': value \"x\" dropped"].outcome == NOTICED
    other = found["list 'words': value \"y\" dropped"]
    assert (other.outcome, other.line) == (UNGUARDED, 1)
    assert other.suggestion["call"]["arguments"] == {"query": "y"}


def test_a_policy_that_only_tests_name_is_covered_and_stands_alone_where_another_is_named() -> None:
    tests = [ROOT / "policy/tests/rules_payments.yaml"]
    found = cover(ROOT, tests, ROOT / "runs/loop", jobs=1)
    assert {v.outcome for v in found.verdicts if v.file == "policy/rules/payments.yaml"} == {
        NOTICED, EQUIVALENT, INVALID,
    }  # fmt: skip
    named = cover(ROOT, tests, ROOT / "runs/loop", base=ROOT / "policy/rules/payments.yaml", jobs=1)
    assert {v.file for v in named.verdicts} == {"policy/rules/payments.yaml"}


def test_the_window_of_the_shipped_policy_is_guarded() -> None:
    found = cover(ROOT, [ROOT / "policy/tests/rules_window.yaml"], ROOT / "runs/loop", jobs=1)
    ours = [v for v in found.verdicts if v.file == "policy/rules/window.yaml" and "between" in v.description]
    assert len(ours) > 10 and {v.outcome for v in ours} == {NOTICED}


def test_one_of_several_lists_is_refused() -> None:
    """A value that stands in both would meet neither: one more value of a list could deny more."""
    lists = {"some": ["a"], "one": ["b"]}
    for condition in (
        {"oneOf": [{"in": "some"}, {"in": "one"}]},
        {"items": {"oneOf": [{"items": {"in": "some"}}]}},
    ):
        with pytest.raises(PolicyError, match="/oneOf: a value that two of its lists share"):
            Policy.from_dict(
                {**BASE, "lists": lists, "tools": {"search": {"arguments": {"/query": condition}}}}
            )
    Policy.from_dict(
        {
            **BASE,
            "lists": lists,
            "tools": {"search": {"arguments": {"/query": {"anyOf": [{"in": "some"}, {"in": "one"}]}}}},
        }
    )


def test_what_a_tool_may_reach_is_dropped_one_by_one() -> None:
    rules = {"urls": ["https://a.test", "https://b.test/x"], "methods": ["GET", "PUT"], "mounts": ["m"]}
    assert words(rules) == {
        "urls dropped",
        "urls https://a.test dropped",
        "urls https://b.test/x dropped",
        "methods dropped",
        "methods GET dropped",
        "methods PUT dropped",
        "methods HEAD and all others added",
        "mounts dropped",
        "mounts m dropped",
    }
