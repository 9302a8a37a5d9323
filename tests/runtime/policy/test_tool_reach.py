"""What single tools may reach of what the policy allows: URLs, methods and mounts, named or met while they run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph import Agent, Policy, PolicyError, Stub
from tachograph.review.queries.recorded_queries import GateQuestion
from tachograph.review.remedy.minimal_edit import find_minimal_edit
from tachograph.review.suggest.kept_rules import rules_that_apply
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import ALLOW, Counters, Decision, Gate
from tachograph.runtime.resources.http_methods import METHODS
from tests.review.compare.test_tool_reach import TOOLS, URLS, generated, policy, reached

API = "https://a.test/x"


def met(made: Policy, tool: str | None, target: str, method: str = "GET") -> Decision:
    check = {"rule": "url_allowlist", "target": target, "hop": 1, "method": method}
    return Gate(made, TOOLS).decide_late(check, tool)


def named(made: Policy, tool: str, **arguments: Any) -> Decision:
    return Gate(made, TOOLS).decide(Call("tc_1_0", tool, freeze(arguments)), Counters())


def test_a_tool_is_held_to_its_urls_and_no_other_tool_is() -> None:
    narrow = policy({"post": {"urls": [API]}})
    assert named(narrow, "post", url=f"{API}/y").decision == ALLOW
    found = named(narrow, "post", url="https://a.test/w")
    assert (found.decision, found.rule_id, found.at) == ("deny", "url_allowlist", "<policy>#/tools/post/urls")
    assert found.reason == '"https://a.test" with this path is not in the urls of tool "post"'
    assert found.facts["tool"] == "post"
    assert named(narrow, "name", url="https://a.test/w").decision == ALLOW


@pytest.mark.parametrize(
    ("rules", "method", "reason"),
    [
        ({"urls": ["https://b.test/x"]}, "POST", 'tool "post" may not send "POST" to "https://b.test"'),
        ({"urls": ["https://b.test/x"], "methods": ["GET"]}, "POST",
         'tool "post" may not send "POST" to "https://b.test"'),
        ({"methods": ["GET"]}, "POST", 'tool "post" may not send "POST" to "https://b.test"'),
        ({"urls": ["https://b.test/x"], "methods": ["POST"]}, "GET",
         'tool "post" may not send "GET" to "https://b.test"'),
        ({"urls": []}, "GET", '"https://b.test" is not in the urls of tool "post"'),
    ],
)  # fmt: skip
def test_a_tool_is_held_to_its_methods(rules: dict[str, Any], method: str, reason: str) -> None:
    found = met(policy({"post": rules}), "post", "https://b.test/x", method)
    assert (found.decision, found.reason) == ("deny", reason)
    assert met(policy({"post": rules}), "crawl", "https://b.test/x", method).decision == ALLOW


def test_a_call_is_denied_of_which_no_method_is_left() -> None:
    found = named(policy({"post": {"methods": ["PUT"]}}), "post", url=API)
    assert found.reason == 'tool "post" may not send any method that url_allowlist allows to "https://a.test"'


def test_a_tool_is_held_to_its_mounts() -> None:
    narrow = policy({"read": {"mounts": ["m"]}, "write": {"mounts": []}})
    assert named(narrow, "read", path="m/x").decision == ALLOW
    found = named(narrow, "read", path="n/x")
    assert (found.rule_id, found.at) == ("sandbox_path", "<policy>#/tools/read/mounts")
    assert found.reason == 'mount "n" is not in the mounts of tool "read"'
    assert named(narrow, "label", path="n/x").decision == ALLOW
    check = {"rule": "sandbox_path", "path": "n/x", "access": "write"}
    assert Gate(narrow, TOOLS).decide_late(check, "write").decision == "deny"
    assert Gate(narrow, TOOLS).decide_late(check, "post").decision == ALLOW


def test_a_fact_of_which_nobody_says_what_tool_met_it_is_denied() -> None:
    narrow = policy({"post": {"urls": [API]}})
    assert met(narrow, None, API).rule_id == "gate_error"
    assert met(policy({}), None, API).decision == ALLOW


@settings(deadline=None, database=None, max_examples=150)
@given(st.randoms(use_true_random=False))
def test_rules_on_a_tool_never_let_it_reach_more(chance: Any) -> None:
    narrow = generated(chance)
    wide = Policy.from_dict({key: value for key, value in narrow.data.items() if key != "tools"})
    assert set(reached(Gate(narrow, TOOLS))) <= set(reached(Gate(wide, TOOLS)))


# ---- entries that cannot be read or decide nothing -----------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"post": {"urls": ["https://a.test/x y"]}}, "/tools/post/urls/0: malformed entry"),
        ({"post": {"urls": [API, f"{API}/y"]}}, "/tools/post/urls/1: this entry never applies, since 'https://a.test/x'"),
        ({"post": {"urls": ["https://c.test"]}},
         "/tools/post/urls/0: this entry never applies, since url_allowlist allows nothing of it"),
        ({"post": {"urls": [API], "methods": ["POST"]}}, "since url_allowlist allows it with GET, HEAD only"),
        ({"post": {"methods": ["GET", "PUT"]}}, "/tools/post/methods/1: PUT never applies"),
        ({"read": {"mounts": ["mm"]}}, "/tools/read/mounts/0: 'mm' is not in sandbox.mounts; did you mean 'm'"),
        ({"read": {"urls": [API]}}, "/tools/read/urls: these urls never apply, since 'read' reaches no host"),
        ({"name": {"mounts": ["m"]}},
         "/tools/name/mounts: these mounts never apply, since 'name' reads and writes no files"),
    ],
)  # fmt: skip
def test_an_entry_that_opens_nothing_is_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        Agent(Stub([{"answer": "done"}]), list(TOOLS.values()), policy(rules))
    assert message in str(refused.value)


# ---- in runs, edits and drafts -------------------------------------------------------------------------------


@pytest.mark.parametrize(("mounts", "decisions"), [(["m"], ["allow", "deny"]), (["n"], ["allow"])])
def test_what_a_tool_does_while_it_runs_is_held_to_its_rules(
    mounts: list[str], decisions: list[str], tmp_path: Path
) -> None:
    bound = {name: tmp_path / name for name in ("m", "n", "o")}
    for folder in bound.values():
        folder.mkdir()
    (bound["n"] / "file.txt").write_text("text")
    tool = dataclasses.replace(TOOLS["crawl"], name="look", effect="read", run=_look)
    rules = {
        "tool_registry": {"allowed": ["look"]},
        "url_allowlist": None,
        "tools": {"look": {"mounts": mounts}},
        "on_deny": "inform",
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    turns = [
        {"calls": [{"tool": "look", "arguments": {}}], "usage": usage},
        {"answer": "I looked.", "usage": usage},
    ]
    made = policy({}).data
    narrow = Policy.from_dict({key: value for key, value in {**made, **rules}.items() if value is not None})
    result = Agent(Stub(turns), [tool], narrow, mounts=bound).run("Look.")
    assert [entry["decision"] for entry in result.steps[0]["policy_decisions"]] == decisions


def _look(_arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    io.read("n/file.txt")
    return {}


def test_no_edit_of_other_sections_is_proposed_for_it() -> None:
    narrow = policy({"post": {"urls": [API]}})
    question = GateQuestion(
        check={"rule": "url_allowlist", "target": "https://a.test/w", "hop": 1}, tool="post"
    )
    found = find_minimal_edit(narrow, TOOLS, question)
    assert found.why_not == "tools.post.urls refuses it: what a single tool may reach is for a person"


def test_a_draft_keeps_of_them_what_can_apply() -> None:
    rules = {
        "post": {"urls": [API, "https://b.test/x"], "methods": ["GET", "POST"], "limits": {"calls": 2}},
        "crawl": {"methods": ["PUT"]},
        "read": {"mounts": ["m", "n"]},
    }
    data = {"url_allowlist": ["https://a.test/x/y"], "sandbox": {"mounts": {"n": "read"}}, "tools": rules}
    assert rules_that_apply(data) == {
        "post": {"urls": [API], "methods": ["GET"], "limits": {"calls": 2}},
        "crawl": {"urls": []},
        "read": {"mounts": ["n"]},
    }


def test_urls_and_methods_of_the_small_world_are_worth_trying() -> None:
    everything = policy({})
    assert {
        method for _, what in reached(Gate(everything, TOOLS)) for method in METHODS if method in what
    } >= {"GET", "POST"}
    assert len(URLS) == len(set(URLS))
