"""What `tachograph.testing.decide` counts over the calls that it is given."""

from __future__ import annotations

from tachograph.testing import decide
from tests.project import POLICY, merged

TOOLS = [{"name": "echo", "effect": "pure"}, {"name": "look", "effect": "pure"}]


def test_calls_are_counted_by_tool_and_together() -> None:
    delta = {"tools": {"echo": {"limits": {"calls": 2}}}, "loop_budget": {"max_tool_calls": 3}}
    policy = merged(POLICY, {**delta, "cycle_detection": {"max_repeats": 9}})
    calls = [{"name": name, "arguments": {}} for name in ("echo", "echo", "echo", "look", "look")]
    found = [(it.decision, it.rule_id) for it in decide(policy, TOOLS, calls)]
    assert found == [
        ("allow", "tool_registry"),
        ("allow", "tool_registry"),
        ("deny", "tool_limits"),
        ("allow", "tool_registry"),
        ("deny", "loop_budget"),
    ]


def test_repeats_are_counted() -> None:
    calls = [{"name": "echo", "arguments": {}}] * 3
    assert [it.decision for it in decide(POLICY, TOOLS, calls)] == ["allow", "allow", "deny"]
