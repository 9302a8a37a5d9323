"""What `tachograph.testing.decide` counts over the calls that it is given."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from tachograph import InputError, LangChainModel, Policy, ToolCall, delegate, tool
from tachograph.runtime.tools.contract import without_marks
from tachograph.testing import Refused, decide, decide_fact, parse, run
from tests.project import POLICY, merged
from tests.tables.rows import closed, roomy

TOOLS = [{"name": "echo", "effect": "pure"}, {"name": "look", "effect": "pure"}]


def test_calls_are_counted_by_tool_and_together() -> None:
    delta = {"tools": {"echo": {"limits": {"calls": 2}}}, "loop_budget": {"max_tool_calls": 3}}
    policy = merged(POLICY, {**delta, "cycle_detection": {"max_repeats": 9}})
    calls = [{"name": name, "arguments": {}} for name in ("echo", "echo", "echo", "look", "look")]
    found = " ".join(f"{it.decision}:{it.rule_id}" for it in decide(policy, TOOLS, calls))
    allowed = "allow:tool_registry"
    assert found == f"{allowed} {allowed} deny:tool_limits {allowed} deny:loop_budget"


@pytest.mark.parametrize("call", [{"name": "echo"}, ToolCall("echo", {})])
def test_what_cannot_be_decided_is_refused(call: Any) -> None:
    with pytest.raises(InputError, match="a mapping with name and arguments"):
        decide(POLICY, TOOLS, [call])
    with pytest.raises(InputError, match="a mapping with rule and path"):
        decide_fact(POLICY, {"rule": "sandbox_path"})
    with pytest.raises(InputError, match="mean 'access'"):
        decide_fact(POLICY, {"rule": "sandbox_path", "path": "a/b", "acces": "write"})
    with pytest.raises(InputError, match="mean 'effect'"):
        decide(POLICY, [{"name": "echo", "efect": "external"}], [])
    with pytest.raises(InputError, match="must be an object schema"):
        decide(POLICY, [{"name": "echo", "input_schema": True}], [])
    with pytest.raises(InputError, match="two tools are called 'echo'"):  # the last one would decide for both
        decide(POLICY, [*TOOLS, TOOLS[0]], [])
    # keys of whoever asks
    own = {"name": "echo", "description": "Echo.", "output_schema": {}, "namespace": "n", 7: 7}
    assert decide(POLICY, [own], [{"name": "echo", "arguments": {}, "filename": "a"}])[0].decision == "allow"
    with pytest.raises(InputError, match="use plain data"):
        decide(Policy.from_dict(POLICY), TOOLS, [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call", [
        lambda: decide(POLICY, "", []), lambda: decide(POLICY, [], 5), lambda: decide(POLICY, [], [], mounts=5),
        lambda: run(POLICY, 5, []), lambda: run(POLICY, [], 5), lambda: decide_fact(POLICY, 3),
        lambda: parse("url", None), lambda: delegate(5), lambda: delegate(["x"]), lambda: LangChainModel(3),
        lambda: tool(agents=5)(test_repeats_are_counted),
    ],
)  # fmt: skip
def test_what_is_of_another_type_is_refused(call: Any) -> None:
    with pytest.raises((InputError, Refused)):
        call()


@pytest.mark.parametrize("odd", [None, 0, False, []])
def test_a_fact_that_is_no_text_is_not_passed_over(odd: Any) -> None:
    policy = roomy([], url_allowlist=["a.test"], sandbox={"mounts": {"box": "read"}})
    address = {"rule": "url_allowlist", "target": "https://a.test/", "address": odd}
    found = {"rule": "sandbox_path", "path": "box/a", "access": "read", "found": odd}
    facts = address, found, {**address, "target": odd, "address": ""}, {**found, "path": odd, "found": ""}
    for fact in facts:
        assert (it := decide_fact(policy, fact)).decision == "deny" and it.rule_id == fact["rule"]


def test_repeats_are_counted() -> None:
    echo = StrEnum("Names", ["echo"])("echo")  # as a run, it takes the plain text of it
    calls = [{"name": "echo", "arguments": {}}, *[{"name": echo, "arguments": {}}] * 2]
    assert [it.decision for it in decide(POLICY, TOOLS, calls)] == ["allow", "allow", "deny"]
    # beside keys that hold URLs, a text is compared as a text
    below = {**closed(say={"type": "string"}), "additionalProperties": {"x-resource": "url"}}
    keys = {"name": "keys", "effect": "pure", "input_schema": closed(o=below)}
    policy = roomy(["keys"], url_allowlist=["a.test"], cycle_detection={"max_repeats": 1})
    calls = [{"name": "keys", "arguments": {"o": {"say": f"https://{it}.test"}}} for it in "aA"]
    assert [it.decision for it in decide(policy, [keys], calls)] == ["allow", "allow"]


@pytest.mark.parametrize("before", ["al:", "boss:", "SUSSEX."])
def test_no_secret_stands_in_the_place_of_a_host(before: str) -> None:
    mail = {"name": "mail", "effect": "external", "input_schema": closed(text={"x-resource": "any"})}
    policy = roomy(["mail"], redact={"kinds": ["email"], "reveal_to": {"mail": ["email"]}})
    for secret in ("<secret:email:0123ab>", "zoe@example"):  # a run puts a placeholder in its place
        call = {"name": "mail", "arguments": {"text": f"see https://{before}{secret}.test"}}
        assert decide(policy, [mail], [call])[0].rule_id == "redact"


def test_an_argument_whose_name_begins_as_our_marks_do_is_offered() -> None:
    named = {"type": "string", "x-resource": "none"}
    given = {**closed(**{"x-id": named, "properties": named}), "odd": {"properties": named}}
    told = closed(**{"x-id": {"type": "string"}, "properties": {"type": "string"}})
    assert without_marks(given) == {**told, "odd": {"properties": {"type": "string"}}}


@pytest.mark.parametrize("line", ['id: "s-t\\n"', 'clock: {start: "2026-01-01T00:00:00Z\\n"}'])
def test_a_text_ends_where_its_pattern_does(line: str) -> None:
    """In Python `$` also stands before a last line feed."""
    task = "schema: task/v1\ntitle: t\nquestion: q\npolicy: {file: p}\ntools: []\nllm: {live: [m]}\n"
    rest = "" if line.startswith("id") else "id: s-t\n"
    parse("task", f"{task}id: s-t\n")
    with pytest.raises(Refused):
        parse("task", f"{task}{rest}{line}\n")
