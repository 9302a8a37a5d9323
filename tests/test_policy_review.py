"""Reviewing a policy: what each key changes, what would allow a call, drafts, and tests that notice nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tachograph.cli.common import as_yaml
from tachograph.evidence.project import Project
from tachograph.fail.errors import PolicyError
from tachograph.review.compare import diff, gates, wider
from tachograph.review.edit import LeastEdit, least_edit, with_leaf
from tachograph.review.explain import explain
from tachograph.review.replays import questions_of, what_if
from tachograph.review.suggest import suggest
from tachograph.runtime.log.values import Call, Reach
from tachograph.runtime.policy.gate import GATE_ERROR, Gate
from tachograph.runtime.policy.leaf import Leaf, Question, Step, Unreadable, Verdict
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.policy.sections import PolicyFile
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import parse
from tests import test_agent_corpora, test_corpora
from tests.commands import Capsys, exit_code, output_of
from tests.project import ROWS, folder_of_row, merged, task_of_row

ROOT = Path(__file__).parents[1]
BASE: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["get", "put"]},
    "url_allowlist": ["https://h.test/"],
    "sandbox": {"mounts": {"a": "write", "b": "read"}},
    "loop_budget": {
        **dict.fromkeys(("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"), 5),
        "max_cost": "1 USD",
    },
    "cycle_detection": {"max_repeats": 2},
    "retry": {"max_retries": 1, "backoff_base_ms": 1, "backoff_cap_ms": 2},
    "lists": {"few": [1, 2]},
    "redact": {"kinds": ["email"], "env": ["KEY"]},
    "prices": {"a:b": {"input": "3", "output": "4"}},
}
PRICE = {"input": "1", "output": "1"}
FEW, REVEALS = {"get": {"arguments": {"/x": {"in": "few"}}}}, {"reveal_to": {"put": ["jwt"]}}
RULES = {"urls": [], "methods": ["HEAD"], "mounts": [], "limits": {"calls": 1}, "resources": {}}
# each key of a policy: a change of it, and what the comparison calls that one and the change back
KEYS: dict[str, tuple[dict[str, Any], str, str]] = {
    "tool_registry.allowed": ({"tool_registry": {"allowed": ["get", "put", "cut"]}}, "WIDER", "TIGHTER"),
    "tool_registry.denied": ({"tool_registry": {"allowed": ["get"], "denied": ["put"]}}, "TIGHTER", "WIDER"),
    "url_allowlist": ({"url_allowlist": ["https://h.test/", "k.test"]}, "WIDER", "TIGHTER"),
    "private_networks": ({"private_networks": ["10.0.0.0/8"]}, "WIDER", "TIGHTER"),
    "sandbox.mounts": ({"sandbox": {"mounts": {"b": "write"}}}, "WIDER", "TIGHTER"),
    "arg_schema_enforcement": ({"arg_schema_enforcement": "shape"}, "WIDER", "TIGHTER"),
    "agents.max_depth": ({"agents": {"max_depth": 1}}, "WIDER", "TIGHTER"),
    "agents.max_children": ({"agents": {"max_children": 1}}, "WIDER", "TIGHTER"),
    "agents.max_parallel": ({"agents": {"max_parallel": 2}}, "WIDER", "TIGHTER"),
    "loop_budget.max_turn_iterations": ({"loop_budget": {"max_turn_iterations": 6}}, "TIGHTER", "WIDER"),
    "loop_budget.max_turn_tokens": ({"loop_budget": {"max_turn_tokens": 6}}, "TIGHTER", "WIDER"),
    "loop_budget.max_turn_tool_calls": ({"loop_budget": {"max_turn_tool_calls": 6}}, "TIGHTER", "WIDER"),
    "loop_budget.max_iterations": ({"loop_budget": {"max_iterations": 6}}, "WIDER", "TIGHTER"),
    "loop_budget.max_tokens": ({"loop_budget": {"max_tokens": 6}}, "WIDER", "TIGHTER"),
    "loop_budget.max_tool_calls": ({"loop_budget": {"max_tool_calls": 6}}, "WIDER", "TIGHTER"),
    "loop_budget.max_result_bytes": ({"loop_budget": {"max_result_bytes": 6}}, "WIDER", "TIGHTER"),
    "loop_budget.max_attempts": ({"loop_budget": {"max_attempts": 6}}, "TIGHTER", "WIDER"),
    "loop_budget.overdraft": ({"loop_budget": {"overdraft": "deny"}}, "TIGHTER", "WIDER"),
    "loop_budget.max_cost": ({"loop_budget": {"max_cost": "0.5 USD"}}, "TIGHTER", "WIDER"),
    "loop_budget.max_wall_clock_s": ({"loop_budget": {"max_wall_clock_s": 9}}, "TIGHTER", "WIDER"),
    "prices.input": ({"prices": {"a:b": {"input": "2"}}}, "WIDER", "TIGHTER"),
    "prices.output": ({"prices": {"a:b": {"output": "4.1"}}}, "TIGHTER", "WIDER"),
    "prices.cached": ({"prices": {"a:b": {"cached": "0.3"}}}, "WIDER", "TIGHTER"),
    "prices.cache_write": ({"prices": {"a:b": {"cache_write": "3.75"}}}, "TIGHTER", "WIDER"),
    "prices.dated": ({"prices": {"a:b": {"dated": "2026-01-01"}, "a:c": PRICE}}, "WIDER", "TIGHTER"),
    "cycle_detection.max_repeats": ({"cycle_detection": {"max_repeats": 3}}, "WIDER", "TIGHTER"),
    "retry.max_retries": ({"retry": {"max_retries": 2}}, "NOTE", "NOTE"),
    "retry.backoff_base_ms": ({"retry": {"backoff_base_ms": 2}}, "NOTE", "NOTE"),
    "retry.backoff_cap_ms": ({"retry": {"backoff_cap_ms": 3}}, "NOTE", "NOTE"),
    "on_deny": ({"on_deny": "inform"}, "NOTE", "NOTE"),
    "on_failure": ({"on_failure": "inform"}, "NOTE", "NOTE"),
    "on_failure.default": ({"on_failure": {"default": "inform"}}, "NOTE", "NOTE"),
    "on_failure.tools": ({"on_failure": {"tools": {"get": "inform"}}}, "NOTE", "NOTE"),
    "on_failure.max_failures": ({"on_failure": {"max_failures": 1}}, "NOTE", "NOTE"),
    "tools.urls": ({"tools": {"get": {"urls": []}}}, "TIGHTER", "WIDER"),
    "tools.methods": ({"tools": {"get": {"methods": ["HEAD"]}}}, "TIGHTER", "WIDER"),
    "tools.mounts": ({"tools": {"get": {"mounts": []}}}, "TIGHTER", "WIDER"),
    "tools.arguments": ({"tools": FEW}, "TIGHTER", "WIDER"),
    "tools.ask_if": ({"tools": {"get": {"ask_if": {"/x": {"maximum": 1}}}}}, "TIGHTER", "WIDER"),
    "tools.limits": ({"tools": {"get": {"limits": {"per_minute": 1}}}}, "TIGHTER", "WIDER"),
    "tools.resources": ({"tools": {"get": {"resources": {"/x": "text"}}}}, "WIDER", "TIGHTER"),
    "tools.effect": ({"tools": {"get": {"effect": "read"}}}, "WIDER", "TIGHTER"),
    "lists": ({"lists": {"few": [1]}, "tools": FEW}, "TIGHTER", "WIDER"),
    "approval.required_for": ({"approval": {"required_for": ["put"]}}, "TIGHTER", "WIDER"),
    "approval.timeout_s": ({"approval": {"timeout_s": 1}}, "NOTE", "NOTE"),
    "redact.kinds": ({"redact": {"kinds": ["email", "jwt"], **REVEALS}}, "TIGHTER", "EXPOSURE"),
    "redact.env": ({"redact": {"env": ["KEY", "OTHER"]}}, "TIGHTER", "EXPOSURE"),
    "redact.reveal_to": ({"redact": {"reveal_to": {"put": ["email"]}}}, "WIDER", "TIGHTER"),
}


def keys_of(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a section; those of its sections by their own names, of mappings by the last name."""
    for field in msgspec.structs.fields(kind):
        name = f"{prefix}{field.encode_name}"
        inner = [it for it in msgspec.inspect.multi_type_info([field.type]) for it in parts(it)]
        below = [key for it in inner for key in keys_of(it.cls, f"{name}.")] if name not in LEAVES else []
        yield from below or [name]


LEAVES = {"url_allowlist", "tools.arguments", "tools.ask_if", "tools.limits"}


def parts(info: Any) -> list[Any]:
    """Return the sections in the type of a key."""
    match info:
        case msgspec.inspect.StructType():
            return [info]
        case msgspec.inspect.UnionType():
            return [part for each in info.types for part in parts(each)]
        case msgspec.inspect.DictType():
            return parts(info.value_type)
    return []


def test_every_key_has_a_row() -> None:
    assert {*keys_of(PolicyFile)} - {"schema"} == {*KEYS} - {"on_failure"}


def test_a_price_that_bounds_nothing_is_a_note() -> None:
    free = merged(BASE, {"loop_budget": {"max_cost": None}})
    changed = Policy.from_dict(merged(free, {"prices": {"a:b": {"input": "1"}, "x-1.2:c": PRICE}}))
    assert {it.kind for it in diff(Policy.from_dict(free), changed, {})} == {"NOTE"}


@pytest.mark.parametrize("key", KEYS)
def test_what_each_key_changes(key: str) -> None:
    delta, kind, back = KEYS[key]
    old, new = Policy.from_dict(BASE), Policy.from_dict(merged(BASE, delta))
    if key == "lists":
        old = Policy.from_dict(merged(BASE, {"tools": delta["tools"]}))
    told = [[it.kind for it in diff(*pair, {})] for pair in ((old, new), (new, old))]
    assert kind in told[0] and back in told[1]
    for policy in (old, new):
        assert diff(policy, policy, {}) == []
    if key == "redact.kinds":  # what was not hidden was given to every tool
        assert told == [[kind], [back]]
    if key in ("tools.urls", "tools.methods", "tools.mounts"):
        assert {change.place for change in diff(old, new, {})} == {"/tools/get"}


def test_an_entry_names_every_tool_that_it_lets_do_more() -> None:
    narrowed = merged(BASE, {"tools": {"put": {"urls": []}}})  # so that it reached no network
    private = merged(BASE, {"private_networks": ["10.0.0.0/8"]})
    told = diff(Policy.from_dict(narrowed), Policy.from_dict(private), {})
    assert {it.place: sorted(it.tools) for it in told}["/private_networks"] == ["get", "put"]


@pytest.mark.parametrize("pointer", ["/*", "/text", "/*/x", "/~0", "/~1", "/"])
def test_a_text_of_a_tool_that_is_not_known_is_compared(pointer: str) -> None:
    rules = [{"get": {"resources": {pointer: kind}}} for kind in ("text", "any")]
    policies = [Policy.from_dict(merged(BASE, {"tools": it})) for it in rules]
    assert [(it.kind, it.place) for it in diff(*policies, {})] == [("WIDER", "/tools/get/resources")]


ODD: list[Any] = [
    True,
    False,
    {"enum": []},
    {"type": "string", "maxLength": 1, "in": 1},
    {"type": "array", "minItems": 2**53 - 1},
    {"type": "string", "minLength": 2**53 - 1},
]


@pytest.mark.parametrize("schema", ODD)
def test_no_schema_of_a_tool_hinders_a_comparison(schema: Any) -> None:
    fields = {"type": "object", "additionalProperties": False, "properties": {"x": schema}, "required": ["x"]}
    tool = Tool("get", "", fields, fields, "write", lambda arguments, io: arguments)
    delta = {"arg_schema_enforcement": "shape", "redact": {"reveal_to": {"get": ["email"]}}}
    told = diff(Policy.from_dict(BASE), Policy.from_dict(merged(BASE, delta)), {"get": tool})
    assert "/redact/reveal_to/get" in {it.place for it in told}


def test_an_example_does_not_rest_on_a_default_that_is_denied() -> None:
    of_x = {"type": "integer", "default": 2}
    fields = {"type": "object", "additionalProperties": False, "properties": {"x": of_x}}
    tool = Tool("get", "", fields, fields, "pure", lambda arguments, io: arguments)
    old = merged(BASE, {"tools": {"get": {"arguments": {"/x": {"maximum": 1}}}}})
    new = merged(old, {"cycle_detection": {"max_repeats": 3}, "tool_registry": {"allowed": ["get"]}})
    (change, *_) = diff(Policy.from_dict(old), Policy.from_dict(new), {"get": tool})
    assert change.example is not None and change.example.now.decision == "allow"


def denied_in(source: Any, folder: Path) -> Iterator[tuple[Gate, Question]]:
    """Yield what the gate of a recorded run denies."""
    gate, questions, _ = questions_of(source, folder, str(folder))
    for question in questions:
        if gate.ask(question).decision == "deny":
            yield gate, question


def is_policy(least: LeastEdit, larger: Leaf[Any]) -> bool:
    assert least.refused is not None
    try:
        with_leaf(least.gate.policy, least.refused.pointer, larger)
    except PolicyError:
        return False
    return True


def edit_problem(gate: Gate, question: Question) -> str:
    """Return what is wrong with the least edit that would allow a question, "" if nothing is."""
    least = least_edit(gate, question)
    if least.refused is not None:
        point, leaf = least.refused.point, least.refused.leaf
        larger = None if isinstance(point, Unreadable) else leaf.plus(point)
        if larger is not None and is_policy(least, larger):
            return "an edit is known, and not made"
        return ""
    if least.gate.ask(question).decision == "deny":
        return "the edit does not allow it"
    opened = wider(gate, least.gate, {})
    if not opened or not least.edits:
        return "nothing is told to be opened"
    if any(opened for opened in wider(least.gate, gate, {})):
        return "the edit takes something away"
    return ""


@pytest.mark.parametrize("name", ROWS)
def test_the_least_edit_of_what_a_run_was_denied(project: Path, name: str) -> None:
    for gate, question in denied_in(task_of_row(project, name), folder_of_row(project, name)):
        assert edit_problem(gate, question) == "", question


CORPORA: list[Callable[[], Any]] = [
    test_corpora.test_urls,
    test_corpora.test_arguments,
    partial(test_agent_corpora.test_agentdojo, "L1"),
    partial(test_agent_corpora.test_agentdojo, "L2"),
    test_agent_corpora.test_bfcl_single_calls,
    test_agent_corpora.test_bfcl_conversations,
    partial(test_agent_corpora.test_tau_bench, "gpt4o_calls", 776),
    test_agent_corpora.test_agent_security_bench,
    test_agent_corpora.test_injecagent,
    partial(test_agent_corpora.test_loops, "inform"),
]


def test_the_least_edit_of_what_the_corpora_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    denied: list[tuple[Gate, Question]] = []
    asked = Gate.ask

    def ask(gate: Gate, question: Question, **how: bool) -> Verdict:
        verdict = asked(gate, question, **how)
        if verdict.decision == "deny" and verdict.rule != GATE_ERROR:
            denied.append((gate, question))
        return verdict

    with monkeypatch.context() as patched:
        patched.setattr(Gate, "ask", ask)
        for of_corpus in CORPORA:
            of_corpus()
    assert len(denied) > 3_000
    assert {edit_problem(gate, question) for gate, question in denied} == {""}


def changed(root: Path, **sections: Any) -> str:
    """Write the shipped policy with other sections, and return its name."""
    data = yaml.safe_load((root / "policy/v1.yaml").read_text())
    (root / "policy/new.yaml").write_text(json.dumps({**data, **sections}))
    return "policy/new.yaml"


def test_a_comparison_is_printed(shipped: Path, capsys: Capsys) -> None:
    with (shipped / "tools/search.py").open("a") as tool:
        tool.write("\nraise SystemExit('a comparison runs nothing')\n")
    new = changed(shipped, url_allowlist=["https://news.test/"], on_deny="inform")
    assert exit_code("policy", "diff", "policy/v1.yaml", "policy/v1.yaml") == 0
    out = output_of(capsys, "policy", "diff", "policy/v1.yaml", new, code=1).out
    assert "WIDER /url_allowlist: GET, HEAD https://news.test/ for fetch" in out
    assert "TIGHTER /url_allowlist: GET, HEAD https://corpus.test/ for fetch" in out
    assert "NOTE /on_deny" in out
    found = json.loads(output_of(capsys, "policy", "diff", "policy/v1.yaml", new, "--json", code=1).out)
    assert [it["kind"] for it in found["changes"]] == ["WIDER", "TIGHTER", "NOTE"]
    assert found["changes"][0]["example"]["now"]["decision"] == "allow"
    out = output_of(capsys, "policy", "diff", "policy/v1.yaml", new, "--markdown", code=1).out
    assert "`GET, HEAD https://news.test/`" in out
    assert exit_code("policy", "diff", "policy/v1.yaml", "policy/none.yaml") == 2
    assert exit_code("policy", "diff", "policy/v1.yaml", new, "--json", "--markdown") == 2


def test_what_a_policy_below_allows_in_vain_is_told(shipped: Path, capsys: Capsys) -> None:
    told = output_of(capsys, "run", "agents/refused_by_the_policy_above", "agents/one_child").err
    assert "policy/editor.yaml" in told and "/tool_registry: write" in told and "team.yaml" not in told


def test_recorded_runs_go_another_way_under_another_policy(shipped: Path, capsys: Capsys) -> None:
    other = changed(shipped, url_allowlist=[])
    out = output_of(capsys, "policy", "diff", "policy/v1.yaml", other, "--runs").out
    assert "RUN runs/canonical/v1 goes another way" in out
    assert "runs/loop/hooks" not in out  # which decides nothing about a URL
    assert "of 18 recorded runs" in out
    same = output_of(capsys, "policy", "diff", "policy/v1.yaml", "policy/v1.yaml", "--runs").out
    assert same == "the policies allow the same, 0 of 18 recorded runs go another way\n"


def test_a_draft_lets_its_runs_pass_and_no_more(shipped: Path, capsys: Capsys) -> None:
    project = Project(ROOT)
    for name in project.run_names():
        if project.is_from_code(name):
            continue
        source, folder = project.source_of(name), project.folder(name)
        gate, questions, diverged = questions_of(source, folder, name)
        draft = suggest([(gate, questions)])
        assert (diverged, what_if(source, folder, name, draft)) == ("", None)
        assert wider(*gates(gate.policy, draft, dict(gate.tools)), {}) == []
        assert suggest([(Gate(draft, gate.tools.values()), questions)]).version == draft.version
    drafted = output_of(capsys, "policy", "suggest", "canonical/v1", "policy_gates/pg1_off_allowlist_url")
    (shipped / "policy/draft.yaml").write_text(drafted.out)
    assert exit_code("policy", "diff", "policy/v1.yaml", "policy/draft.yaml") == 0
    assert exit_code("policy", "suggest", "canonical/v1", "loop/secrets") == 2
    assert exit_code("policy", "suggest", "loop/none") == 2


def test_what_no_test_notices_comes_with_one_that_does(shipped: Path, capsys: Capsys) -> None:
    assert exit_code("policy", "coverage") == 0
    file = shipped / "policy/tests/v1.yaml"
    file.write_text(file.read_text().replace("expect: allow", "expect: deny", 1))
    assert exit_code("policy", "coverage") == 2  # a test that fails notices nothing
    for policy in ("policy/v1.yaml", "policy/desk.yaml", "policy/secrets.yaml"):
        head = f"schema: policy-tests/v1\npolicy: {policy}\ntests:\n"
        first = "- {name: one, call: {tool: shell}, expect: deny}\n"
        file.write_text(head + first)
        printed = output_of(capsys, "policy", "coverage", code=1).out
        assert "at: /loop_budget/max_wall_clock_s" not in printed  # which the policy leaves out
        file.write_text(head + first + printed.partition("\n")[2])
        assert exit_code("policy", "test") == 0
        assert exit_code("policy", "coverage") == 0


@pytest.mark.parametrize(
    "value", ["08", "1e5", "+.1", "no", "a\nb", "x " * 200, 0.5, 0.0000001, {"a": ["b"]}], ids=str
)
def test_what_is_printed_as_yaml_is_read_as_the_same(value: Any) -> None:
    assert parse("yaml", as_yaml([value, {"twice": value}])) == [value, {"twice": value}]


def test_a_draft_never_allows_more_than_the_policy_of_the_runs() -> None:
    gate = Gate(Policy.from_dict(merged(BASE, {"loop_budget": {"max_attempts": 1}})))
    assert wider(gate, Gate(suggest([(gate, [Question(Step())])])), {}) == []


@pytest.mark.parametrize("own", [{}, {"methods": ["POST"]}])
def test_a_draft_has_no_method_that_the_policy_of_the_runs_lacks(own: dict[str, Any]) -> None:
    methods = ["POST"] if not own else ["GET", "POST"]
    api = {"url_allowlist": [{"url": "https://h.test/", "methods": methods}], "tools": {"get": own}}
    url = {"type": "string", "x-resource": "url"}
    fields = {"type": "object", "additionalProperties": False, "properties": {"x": url}}
    tool = Tool("get", "", fields, fields, "external", lambda arguments, io: {})
    gate = Gate(Policy.from_dict(merged(BASE, api)), [tool])
    question = Question(Call("c", "get", {"x": "https://h.test/"}), "get")
    draft = suggest([(gate, [question])])
    assert Gate(draft, gate.tools.values()).ask(question).decision == "allow"
    assert wider(*gates(gate.policy, draft, dict(gate.tools)), {}) == []


@pytest.mark.parametrize(
    "reach",
    [
        Reach("https://h.test/a/../b"),
        Reach("https://h.test/a;b"),
        Reach("https://h.test/", "GET", "64:ff9b::a00:1"),
    ],
    ids=str,
)
def test_a_draft_takes_from_the_policy_what_no_least_edit_allows(reach: Reach) -> None:
    policy = Policy.from_dict(merged(BASE, {"private_networks": ["10.0.0.0/8"]}))
    gate = gates(policy, policy, {})[0]
    question = Question(reach, "get")
    draft = Gate(suggest([(gate, [question])]), gate.tools.values())
    assert gate.ask(question).decision == draft.ask(question).decision == "allow"
    assert wider(gate, draft, {}) == []


def test_what_a_tool_met_is_explained_too(project: Path) -> None:
    name = "method_of_a_tool"
    lines = explain(task_of_row(project, name), folder_of_row(project, name), name)
    said = "page sends GET to https://good.test/a.txt: deny"
    (late,) = [number for number, line in enumerate(lines) if said in line]
    assert any("to allow /tools/page/methods: GET" in line for line in lines[late:])
