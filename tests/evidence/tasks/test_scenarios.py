"""What each recorded run shows, as data, read from the structure of `trace.json` and `state.jsonl`.

Nothing here runs an agent: that the files are what the code gives is the check's business.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.files.words.rule_places import RulePlaces
from tachograph.fail.catalog import MODES, RULES
from tachograph.runtime.formats.document_digest import digest_of_document
from tachograph.runtime.loop.state import History
from tests.evidence.project import all_runs
from tests.support import FILES, ROOT

SPANS = ("agent_run", "agent_step", "llm_call", "policy_check", "tool_call", "retry_attempt")
BASE, OVERLAYS = "policy/v1.yaml", "policy/overlays"
RULES_OF_TOOLS = "policy/rules"
ANSWER, DENIED, FAILED = "final_answer", "policy_denial_terminal", "failure_mode_terminal"
BUDGET, REFUSED, CANCELLED = "loop_budget", "approval_refused", "cancelled"
REFUSED_BY_MODEL = "refused"

# (phase, decision, rule): what the gate said, in order
TOOL = ("proposal", "allow", "tool_registry")
URL = ("proposal", "allow", "url_allowlist")
PATH = ("proposal", "allow", "sandbox_path")
ASKED = ("proposal", "allow", "approval")
SENT = ("execution", "allow", "url_allowlist")


def deny(rule: str, phase: str = "proposal") -> tuple[str, str, str]:
    return phase, "deny", rule


OK = ("success",)


@dataclass(frozen=True)
class Row:
    """A scenario: `modes` of each step, `counts` of spans in the order of SPANS, `attempts` of each executed
    call, `model` attempts where it was asked more than once, `at` file and text of the line behind the denial,
    `hooks` how often hooks were asked.
    """

    ending: str
    decisions: tuple[tuple[str, str, str], ...]
    counts: tuple[int, ...]
    modes: tuple[str | None, ...] = (None,)
    attempts: tuple[tuple[str, ...], ...] = ()
    model: tuple[str, ...] = ()
    at: tuple[str, str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    exception: str | None = None
    hooks: int = 0


ONE_DENIAL = (1, 1, 1, 1, 0, 0)
ONE_CALL = (1, 1, 1, 1, 1, 1)
PLAN: dict[str, Row] = {
    "canonical/v1": Row(
        ANSWER, (TOOL, URL, PATH, TOOL), (1, 5, 5, 4, 4, 4), modes=(None,) * 5, attempts=(OK,) * 4
    ),
    # ---- policy gates ----------------------------------------------------------------------------------
    "policy_gates/pg1_off_allowlist_url": Row(
        DENIED,
        (deny("url_allowlist"),),
        ONE_DENIAL,
        at=(BASE, "url_allowlist:"),
        facts={"scheme": "https", "host": "news.example", "port": 443, "pointer": "/url"},
    ),
    "policy_gates/pg1_redirect_off_allowlist": Row(
        DENIED,
        (URL, deny("url_allowlist", "execution")),
        (1, 1, 1, 2, 1, 1),
        attempts=(("denied",),),
        at=(BASE, "url_allowlist:"),
        facts={"hop": 1, "host": "news.example", "target": "https://news.example/landing"},
    ),
    "policy_gates/pg2_sandbox_escape": Row(
        DENIED,
        (deny("sandbox_path"),),
        ONE_DENIAL,
        at=(BASE, "  mounts:"),
        facts={"access": "read", "pointer": "/path"},
    ),
    "policy_gates/pg2_sandbox_escape_write": Row(
        DENIED,
        (deny("sandbox_path"),),
        ONE_DENIAL,
        at=(BASE, "corpus: read"),
        facts={"access": "write", "mount": "corpus", "pointer": "/path"},
    ),
    "policy_gates/pg2_sandbox_link": Row(
        DENIED,
        (PATH, PATH, deny("sandbox_path", "execution")),
        (1, 2, 2, 3, 2, 2),
        modes=(None, None),
        attempts=(OK, ("denied",)),
        at=(BASE, "sandbox: write"),
        facts={"access": "read", "found": "link", "path": "sandbox/shortcut.md"},
    ),
    "policy_gates/pg3_loop_budget": Row(
        BUDGET,
        (PATH, PATH, PATH, deny("loop_budget", "step")),
        (1, 4, 3, 4, 3, 3),
        modes=(None,) * 4,
        attempts=(OK,) * 3,
        at=(f"{OVERLAYS}/three_iterations.yaml", "max_iterations: 3"),
        facts={"budget": "max_iterations", "used": 3, "limit": 3},
    ),
    "policy_gates/pg3_loop_budget_tokens": Row(
        BUDGET,
        (PATH, deny("loop_budget")),
        (1, 2, 2, 2, 1, 1),
        modes=(None,) * 2,
        attempts=(OK,),
        at=(f"{OVERLAYS}/few_tokens.yaml", "max_tokens: 1000"),
        facts={"budget": "max_tokens", "used": 1240, "limit": 1000},
    ),
    "policy_gates/pg4_forbidden_tool": Row(
        DENIED,
        (deny("tool_registry"),),
        ONE_DENIAL,
        at=(BASE, "allowed: [search"),
        facts={"tool": "shell"},
    ),
    "policy_gates/pg4_forbidden_tool_with_arg_schema_violation": Row(
        DENIED,
        (deny("tool_registry"),),
        ONE_DENIAL,
        at=(BASE, "allowed: [search"),
        facts={"tool": "shell"},
    ),
    "policy_gates/pg5_arg_schema": Row(
        FAILED,
        (deny("arg_schema"),),
        ONE_DENIAL,
        modes=("schema_mismatch",),
        at=("tools/search.py", '"type": "string"'),
        facts={"pointer": "/query", "keyword": "type", "limit": "string"},
    ),
    "policy_gates/inform_adapts": Row(
        ANSWER,
        (deny("url_allowlist"), URL, TOOL),
        (1, 4, 4, 3, 2, 2),
        modes=(None,) * 4,
        attempts=(OK,) * 2,
        at=(BASE, "url_allowlist:"),
        facts={"host": "news.example"},
    ),
    "policy_gates/one_of_several_denied": Row(
        ANSWER,
        (PATH, deny("url_allowlist"), URL, TOOL),
        (1, 3, 3, 4, 3, 3),
        modes=(None,) * 3,
        attempts=(OK,) * 3,
        at=(BASE, "url_allowlist:"),
        facts={"host": "news.example"},
    ),
    "policy_gates/approval_given": Row(
        ANSWER,
        (("proposal", "allow", "approval"),),
        (1, 2, 2, 1, 1, 1),
        modes=(None, None),
        attempts=(OK,),
    ),
    "policy_gates/approval_refused": Row(
        REFUSED,
        (deny("approval"),),
        ONE_DENIAL,
        at=(f"{OVERLAYS}/approve_write.yaml", "required_for: [write]"),
        facts={"timeout_s": 60},
    ),
    "policy_gates/approval_offered_twice": Row(
        REFUSED,
        (("proposal", "allow", "approval"), deny("approval")),
        (1, 2, 2, 2, 1, 1),
        modes=(None, None),
        attempts=(OK,),
        at=(f"{OVERLAYS}/approve_write.yaml", "required_for: [write]"),
        facts={"timeout_s": 60},
    ),
    "policy_gates/redacted_secret": Row(
        ANSWER, (PATH,), (1, 2, 2, 1, 1, 1), modes=(None, None), attempts=(OK,)
    ),
    "policy_gates/redacted_write": Row(
        DENIED,
        (PATH, deny("redact")),
        (1, 2, 2, 2, 1, 1),
        modes=(None, None),
        attempts=(OK,),
        at=(f"{OVERLAYS}/redact_email.yaml", "redact:"),
        facts={"kind": "email", "known": True},
    ),
    # ---- rules per tool --------------------------------------------------------------------------------
    "tool_rules/amount_over_the_limit": Row(
        ANSWER,
        (deny("arguments"), TOOL),
        (1, 3, 3, 2, 1, 1),
        modes=(None,) * 3,
        attempts=(OK,),
        at=(f"{RULES_OF_TOOLS}/payments.yaml", "/amount: {maximum: 100}"),
        facts={"pointer": "/amount", "keyword": "maximum", "limit": "100"},
    ),
    "tool_rules/recipient_not_on_the_list": Row(
        ANSWER,
        (deny("arguments"),),
        (1, 2, 2, 1, 0, 0),
        modes=(None, None),
        at=(f"{RULES_OF_TOOLS}/payments.yaml", "/recipient: {in: payees}"),
        facts={"pointer": "/recipient", "keyword": "in", "limit": "payees"},
    ),
    "tool_rules/attempts_used_up": Row(
        BUDGET,
        (TOOL, TOOL, deny("loop_budget")),
        (1, 3, 3, 3, 2, 3),
        modes=(None, "retry_exhaustion", None),
        attempts=(OK, ("transient_failure", "exhausted")),
        at=(f"{RULES_OF_TOOLS}/attempts.yaml", "max_attempts: 3"),
        facts={"budget": "max_attempts", "used": 3, "limit": 3},
        exception="ConnectionError",
    ),
    "tool_rules/approval_on_a_condition": Row(
        ANSWER,
        (TOOL, ("proposal", "allow", "approval"), deny("approval")),
        (1, 4, 4, 3, 2, 2),
        modes=(None,) * 4,
        attempts=(OK, OK),
        at=(f"{RULES_OF_TOOLS}/approval.yaml", "/amount: {exclusiveMinimum: 20}"),
        facts={"timeout_s": 300, "pointer": "/amount"},
    ),
    "tool_rules/body_of_a_request": Row(
        ANSWER,
        (TOOL, deny("url_allowlist", "execution"), TOOL, ("execution", "allow", "url_allowlist")),
        (1, 3, 3, 4, 2, 2),
        modes=(None,) * 3,
        attempts=(("denied",), OK),
        at=(f"{RULES_OF_TOOLS}/requests.yaml", "body:"),
        facts={"tool": "orders", "refused": "body /count violates maximum (10)"},
    ),
    "tool_rules/unsigned_answer": Row(
        ANSWER,
        (deny("approval"),),
        (1, 2, 2, 1, 0, 0),
        modes=(None,) * 2,
        at=(f"{RULES_OF_TOOLS}/signers.yaml", "required_for: [send_money]"),
        facts={"timeout_s": 300},
    ),
    "tool_rules/calls_of_a_tool_used_up": Row(
        ANSWER,
        (TOOL, TOOL, deny("tool_limits")),
        (1, 3, 3, 3, 2, 2),
        modes=(None,) * 3,
        attempts=(OK, OK),
        at=(f"{RULES_OF_TOOLS}/limits.yaml", "limits: {calls: 2}"),
        facts={"used": 2, "limit": 2},
    ),
    "tool_rules/time_window": Row(
        ANSWER,
        (TOOL, deny("time_window")),
        (1, 3, 3, 2, 1, 1),
        modes=(None,) * 3,
        attempts=(OK,),
        at=(f"{RULES_OF_TOOLS}/window.yaml", "between: {days: mon-fri"),
        facts={"local_times": {"Europe/Berlin": "2026-11-23T17:00"}},
    ),
    "tool_rules/rate_limit": Row(
        ANSWER,
        (TOOL, TOOL, deny("tool_limits")),
        (1, 3, 3, 3, 2, 2),
        modes=(None,) * 3,
        attempts=(OK, OK),
        at=(f"{RULES_OF_TOOLS}/rate.yaml", "limits: {per_minute: 2}"),
        facts={"used": 2, "limit": 2},
    ),
    "tool_rules/principal_refused": Row(
        ANSWER,
        (TOOL, deny("principal")),
        (1, 3, 3, 2, 1, 1),
        modes=(None,) * 3,
        attempts=(OK,),
        at=(f"{RULES_OF_TOOLS}/principals.yaml", "intern: {tools: {send_money: deny}}"),
        facts={"principal": "intern", "tool": "send_money"},
    ),
    "tool_rules/reach_of_a_tool": Row(
        ANSWER,
        (deny("url_allowlist"), URL, PATH),
        (1, 4, 4, 3, 2, 2),
        modes=(None,) * 4,
        attempts=(OK, OK),
        at=(f"{RULES_OF_TOOLS}/reach.yaml", 'urls: ["https://corpus.test/"]'),
        facts={"pointer": "/url", "scheme": "https", "host": "drafts.test", "port": 443, "tool": "fetch"},
    ),
    # ---- failure modes ---------------------------------------------------------------------------------
    "failure_modes/tool_call_failure": Row(
        ANSWER,
        (URL, TOOL),
        (1, 3, 3, 2, 2, 4),
        modes=("tool_call_failure", None, None),
        attempts=(("transient_failure", "transient_failure", "success"), OK),
    ),
    "failure_modes/retry_exhaustion": Row(
        FAILED,
        (URL,),
        (1, 1, 1, 1, 1, 4),
        modes=("retry_exhaustion",),
        attempts=(("transient_failure",) * 3 + ("exhausted",),),
        exception="ConnectionError",
    ),
    "failure_modes/schema_mismatch": Row(
        FAILED,
        (deny("arg_schema"),),
        ONE_DENIAL,
        modes=("schema_mismatch",),
        at=("tools/search.py", '"additionalProperties": False'),
        facts={"pointer": "", "keyword": "additionalProperties", "limit": "limit"},
    ),
    "failure_modes/cycle_detection": Row(
        DENIED,
        (TOOL, TOOL, TOOL, deny("cycle_detection")),
        (1, 4, 4, 4, 3, 3),
        modes=(None, None, None, "cycle_detection"),
        attempts=(OK,) * 3,
        at=(BASE, "max_repeats: 3"),
        facts={"used": 3, "limit": 3},
    ),
    "failure_modes/catalogued_unhandled": Row(
        FAILED,
        (URL,),
        ONE_CALL,
        modes=("catalogued_unhandled",),
        attempts=(("failed",),),
        exception="ZeroDivisionError",
    ),
    "failure_modes/llm_failure": Row(
        FAILED,
        (),
        (1, 1, 1, 0, 0, 4),
        modes=("llm_failure",),
        model=("transient_failure",) * 3 + ("exhausted",),
    ),
    "failure_modes/llm_invalid_output": Row(FAILED, (), (1, 1, 1, 0, 0, 0), modes=("llm_invalid_output",)),
    "loop/told_tool_failure": Row(
        ANSWER,
        (URL, TOOL, PATH, TOOL),
        (1, 4, 4, 4, 4, 7),
        modes=("retry_exhaustion", None, None, None),
        attempts=(("transient_failure",) * 3 + ("exhausted",), OK, OK, OK),
        exception="ConnectionError",
    ),
    "loop/told_invalid_reply": Row(
        ANSWER,
        (URL,),
        (1, 4, 4, 1, 1, 1),
        modes=("llm_invalid_output", "llm_invalid_output", None, None),
        attempts=(OK,),
    ),
    "failure_modes/output_mismatch": Row(
        FAILED,
        (PATH,),
        (1, 3, 3, 1, 1, 1),
        modes=(None, "output_mismatch", "output_mismatch"),
        attempts=(OK,),
    ),
    "loop/structured_answer": Row(
        ANSWER,
        (PATH,),
        (1, 4, 4, 1, 1, 1),
        modes=(None, "output_mismatch", "output_mismatch", None),
        attempts=(OK,),
    ),
    "failure_modes/llm_refusal": Row(
        REFUSED_BY_MODEL, (TOOL,), (1, 2, 2, 1, 1, 1), modes=(None, "llm_refusal"), attempts=(OK,)
    ),
    "failure_modes/tool_output_invalid": Row(
        FAILED, (URL,), ONE_CALL, modes=("tool_output_invalid",), attempts=(("failed",),)
    ),
    "failure_modes/timeout": Row(
        FAILED,
        (URL,),
        ONE_CALL,
        modes=("timeout",),
        attempts=(("failed",),),
        exception="TimeoutError",
    ),
    "loop/run_deadline": Row(
        FAILED, (TOOL, URL), (1, 3, 3, 2, 2, 2), modes=(None, None, "timeout"), attempts=(OK, OK)
    ),
    "loop/parallel_calls": Row(
        ANSWER,
        (PATH, TOOL, deny("sandbox_path"), PATH, PATH, URL, TOOL, TOOL),
        (1, 3, 3, 8, 7, 8),
        modes=("tool_call_failure", None, None),
        attempts=(OK, ("transient_failure", "success"), *(OK,) * 5),
        at=(BASE, "  mounts:"),
        facts={"access": "read", "pointer": "/path"},
    ),
    "loop/cancelled_call": Row(
        ANSWER,
        (PATH, TOOL, PATH, TOOL),
        (1, 3, 3, 4, 4, 4),
        modes=(None,) * 3,
        attempts=(OK, ("cancelled",), OK, OK),
    ),
    "loop/cancelled_calls": Row(
        CANCELLED,
        (PATH, TOOL, PATH, PATH),
        (1, 1, 1, 4, 4, 4),
        modes=("cancelled",),
        attempts=(OK, ("transient_failure",), ("cancelled",), ("cancelled",)),
    ),
    "loop/hook_denies": Row(
        ANSWER, (PATH, deny("hook"), PATH), (1, 3, 3, 3, 1, 1), modes=(None,) * 3, attempts=(OK,), hooks=2
    ),
    "loop/hook_rewrites": Row(
        ANSWER, (PATH, PATH), (1, 2, 2, 2, 1, 1), modes=(None, None), attempts=(OK,), hooks=2
    ),
    "loop/hook_raises": Row(ANSWER, (PATH, deny("hook")), (1, 2, 2, 2, 0, 0), modes=(None, None), hooks=1),
    "loop/hook_sends_back": Row(
        ANSWER, (PATH,), (1, 3, 3, 1, 1, 1), modes=(None,) * 3, attempts=(OK,), hooks=2
    ),
    "loop/instructions": Row(ANSWER, (TOOL,), (1, 2, 2, 1, 1, 1), modes=(None, None), attempts=(OK,)),
    "loop/answer_cut_off": Row(ANSWER, (), (1, 2, 2, 0, 0, 0), modes=(None, None)),
    "loop/wrap_up": Row(ANSWER, (TOOL, PATH), (1, 3, 3, 2, 2, 2), modes=(None,) * 3, attempts=(OK, OK)),
    "code/depots": Row(ANSWER, (TOOL,), (1, 2, 2, 1, 1, 1), modes=(None, None), attempts=(OK,)),
    "code/defect_reported": Row(ANSWER, (TOOL,), (1, 2, 2, 1, 1, 1), modes=(None, None), attempts=(OK,)),
    "examples/json_api": Row(
        ANSWER, (TOOL, SENT, TOOL, SENT), (1, 3, 3, 4, 2, 2), modes=(None,) * 3, attempts=(OK, OK)
    ),
    "examples/method_refused": Row(
        DENIED,
        (TOOL, deny("url_allowlist", "execution")),
        (1, 1, 1, 2, 1, 1),
        attempts=(("denied",),),
        at=("policy/examples/orders_api.yaml", "methods: [GET, POST]"),
        facts={"scheme": "https", "host": "orders.example", "port": 443, "method": "DELETE"},
    ),
    "examples/database": Row(ANSWER, (TOOL, ASKED), (1, 3, 3, 2, 2, 2), modes=(None,) * 3, attempts=(OK, OK)),
    "examples/mail": Row(ANSWER, (ASKED,), (1, 2, 2, 1, 1, 1), modes=(None, None), attempts=(OK,)),
    "failure_modes/cancelled": Row(
        CANCELLED, (URL,), ONE_CALL, modes=("cancelled",), attempts=(("cancelled",),)
    ),
    "failure_modes/interrupted": Row(
        CANCELLED, (URL,), ONE_CALL, modes=("interrupted",), attempts=(("cancelled",),)
    ),
}

# ---- a run, read back ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A span of `trace.json` with its attributes as plain values."""

    name: str
    id: str
    parent: str | None
    begin: int
    end: int
    attributes: dict[str, Any]
    failed: bool

    def __getitem__(self, key: str) -> Any:
        return self.attributes.get(key)


@dataclass(frozen=True)
class Recorded:
    """The lines and spans of a committed run."""

    lines: list[dict[str, Any]]
    nodes: list[Node]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.lines[1:-1]

    @property
    def root(self) -> Node:
        (root,) = [node for node in self.nodes if node.parent is None]
        return root

    def named(self, name: str) -> list[Node]:
        """The spans of a name in the order in which they began."""
        return sorted((n for n in self.nodes if n.name == name), key=lambda node: node.begin)

    def parent(self, node: Node) -> Node:
        (parent,) = [other for other in self.nodes if other.id == node.parent]
        return parent

    def below(self, node: Node, name: str) -> list[Node]:
        return [child for child in self.named(name) if child.parent == node.id]

    @property
    def denials(self) -> list[dict[str, Any]]:
        return [d for step in self.steps for d in step["policy_decisions"] if d["decision"] == "deny"]


def _value(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [_value(item) for item in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def _node(span: dict[str, Any]) -> Node:
    return Node(
        span["name"],
        span["spanId"],
        span.get("parentSpanId"),
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
        {item["key"]: _value(item["value"]) for item in span["attributes"]},
        span.get("status", {}).get("code") == 2,
    )


@cache
def recorded(name: str) -> Recorded:
    folder = ROOT / "runs" / name
    spans = json.loads((folder / "trace.json").read_bytes())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    texts = (folder / "state.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return Recorded([json.loads(text) for text in texts], [_node(span) for span in spans])


every = pytest.mark.parametrize("name", PLAN)


# ---- the plan and the tree of files --------------------------------------------------------------------


def test_every_scenario_has_a_row_and_every_row_a_run() -> None:
    tasks = {f"{path.parent.name}/{path.stem}" for path in (ROOT / "tasks").glob("*/*.yaml")}
    runs = {path.relative_to(ROOT / "runs").as_posix() for path in all_runs()}
    assert tasks == runs
    assert {name for name in tasks if not name.startswith("live/")} == set(PLAN)


@every
def test_the_shipped_policy_and_the_real_tools(name: str) -> None:
    run = recorded(name).lines[0]
    assert run["run_id"] == f"{name.replace('/', '-')}-s{run['seed']}"
    if name.startswith("tool_rules/"):  # a policy of its own, and a tool in code
        assert [item["path"].rpartition("/")[0] for item in run["policy"]["files"]] == [RULES_OF_TOOLS]
        return
    if name.startswith("code/"):  # the policy and the tools of these are in code
        assert [item["path"] for item in run["modules"]] == [f"tasks/{name}.py"]
        return
    if name.startswith("examples/"):  # so are the tools of these, and a policy of their own
        [module], [policy] = run["modules"], run["policy"]["files"]
        assert Path(module["path"]).parent.as_posix() == "tasks/examples"
        assert Path(policy["path"]).parent.as_posix() == "policy/examples"
        return
    inputs = json.loads((ROOT / "runs" / name / "manifest.json").read_text())["inputs"]
    first, *overlays = [item["path"] for item in run["policy"]["files"]]
    assert first == BASE
    assert all(Path(overlay).parent.as_posix() == OVERLAYS for overlay in overlays)
    assert len(overlays) <= 1
    documents = {f"tasks/{name}.yaml", *(item["path"] for item in run["policy"]["files"])}
    assert {item["path"] for item in inputs if item.get("canonical")} == documents
    for item in inputs:
        text = (ROOT / item["path"]).read_bytes()
        sha = digest_of_document(text) if "canonical" in item else hashlib.sha256(text).hexdigest()
        assert sha == item["sha256"]
    assert {tool["name"] for tool in run["tools"]} == {path.stem for path in (ROOT / "tools").glob("*.py")}
    for tool in run["tools"]:
        assert tool["file"] == f"tools/{tool['name']}.py"
    called = {r["name"] for step in recorded(name).steps for r in step["tool_results"] if r["attempts"]}
    modules = {item["path"] for item in inputs if item["path"].startswith("tools/")}
    assert modules == {f"tools/{tool}.py" for tool in called}
    assert run["model"]["execution_path"] == "stub"


# ---- every row -----------------------------------------------------------------------------------------


@every
def test_the_spans(name: str) -> None:
    run, row = recorded(name), PLAN[name]
    counts = Counter(node.name for node in run.nodes)
    assert tuple(counts[span] for span in SPANS) == row.counts
    assert counts["hook"] == row.hooks
    assert sum(counts.values()) == sum(row.counts) + row.hooks


@every
def test_the_ending_and_the_mode_of_each_step(name: str) -> None:
    run, row = recorded(name), PLAN[name]
    end = run.lines[-1]
    assert run.root["agent.terminal_reason"] == end["terminal_reason"] == row.ending
    assert tuple(node["agent.failure_mode"] for node in run.named("agent_step")) == row.modes
    assert tuple(step["failure_mode"] for step in run.steps) == row.modes
    assert [node["agent.step_index"] for node in run.named("agent_step")] == list(
        range(1, len(row.modes) + 1)
    )
    last = row.modes[-1]
    assert run.root["agent.failure_mode"] == end["failure_mode"] == last
    assert run.root.failed == (row.ending == FAILED)
    assert (end["final_answer"] is not None) == (row.ending == ANSWER)


@every
def test_the_decisions(name: str) -> None:
    run, row = recorded(name), PLAN[name]
    traced = tuple(
        (node["agent.policy.phase"], node["agent.policy.decision"], node["agent.policy.rule_id"])
        for node in run.named("policy_check")
    )
    written = tuple(
        (d["phase"], d["decision"], d["rule_id"]) for step in run.steps for d in step["policy_decisions"]
    )
    assert traced == written == row.decisions
    assert not any(node.failed for node in run.named("policy_check"))  # a denial is not the gate's error
    version = run.lines[0]["policy"]["version"]
    assert {node["agent.policy.version"] for node in run.named("policy_check")} <= {version}
    assert run.root["agent.policy.version"] == version


@every
def test_the_line_of_the_policy_behind_a_denial(name: str) -> None:
    run, row = recorded(name), PLAN[name]
    if row.hooks:  # a denial by a hook stands in its file, and in no policy
        assert {denial["at"] for denial in run.denials} <= {f"tasks/{name}.py#/before_call"}
        return
    assert len(run.denials) == (0 if row.at is None else 1)
    checks = [node for node in run.named("policy_check") if node["agent.policy.decision"] == "deny"]
    for denial, node in zip(run.denials, checks, strict=True):
        place = RulePlaces(ROOT).find(denial["at"])
        assert row.at is not None and place is not None and place.file == row.at[0]
        assert row.at[1] in place.text
        assert node["agent.policy.at"] == denial["at"]
        assert node["agent.policy.reason"] == denial["reason"]
        assert row.facts.items() <= denial["facts"].items()


@every
def test_a_call_denied_when_proposed_has_no_tool_call(name: str) -> None:
    run = recorded(name)
    called = {node["gen_ai.tool.call.id"] for node in run.named("tool_call")}
    proposed = {
        node["agent.tool_call_id"]: node["agent.policy.decision"]
        for node in run.named("policy_check")
        if node["agent.policy.phase"] == "proposal"
    }
    assert called == {call for call, decision in proposed.items() if decision == "allow"}
    for step in run.steps:
        for result in step["tool_results"]:
            assert (result["id"] in called) == bool(result["attempts"])
            assert result["status"] == "ok" or result["result"] is None


@every
def test_where_each_check_stands(name: str) -> None:
    """Late decisions below the attempt that met them, all others below their step."""
    run = recorded(name)
    for check in run.named("policy_check"):
        parent = run.parent(check)
        if check["agent.policy.phase"] == "execution":
            denied = check["agent.policy.decision"] == "deny"
            outcome, status = ("denied", "denied") if denied else ("success", "ok")
            assert (parent.name, parent["agent.retry.outcome"]) == ("retry_attempt", outcome)
            tool_call = run.parent(parent)
            assert (tool_call.name, tool_call["agent.tool.status"]) == ("tool_call", status)
            assert parent.begin < check.begin and check.end < parent.end
            assert not tool_call.failed and not parent.failed
        else:
            assert parent.name == "agent_step"
            assert (check["agent.policy.phase"] == "step") == (run.below(parent, "llm_call") == [])


@every
def test_the_attempts(name: str) -> None:
    run, row = recorded(name), PLAN[name]
    found = []
    for tool_call in run.named("tool_call"):
        attempts = run.below(tool_call, "retry_attempt")
        assert [node["agent.retry.attempt"] for node in attempts] == list(range(1, len(attempts) + 1))
        found.append(tuple(node["agent.retry.outcome"] for node in attempts))
        _waits(attempts, is_stopped=tool_call["agent.tool.status"] == "cancelled")
    assert tuple(found) == row.attempts
    asked = [run.below(node, "retry_attempt") for node in run.named("llm_call")]
    assert tuple(node["agent.retry.outcome"] for attempts in asked for node in attempts) == row.model
    for attempts in asked:
        _waits(attempts)


def _waits(attempts: list[Node], *, is_stopped: bool = False) -> None:
    """Between two attempts lies the wait that the first names; the last one names none, or was stopped in it."""
    for before, after in pairwise(attempts):
        wait = before["agent.retry.backoff_ms"]
        assert 0 < wait <= 2000
        assert wait * 1_000_000 <= after.begin - before.end < (wait + 1) * 1_000_000
    assert is_stopped or not attempts or attempts[-1]["agent.retry.backoff_ms"] == 0


@every
def test_the_exception_of_a_tool_that_failed(name: str) -> None:
    run, row = recorded(name), PLAN[name]
    carried = [n["agent.tool.exception_class"] for n in run.nodes if n["agent.tool.exception_class"]]
    assert carried == ([row.exception] if row.exception else [])
    for node in run.named("tool_call"):
        assert node.failed == (node["agent.tool.status"] == "failed") == ("error.type" in node.attributes)
        if row.exception and node.failed:
            assert node["error.type"] == row.exception


# ---- single scenarios ----------------------------------------------------------------------------------


def test_a_refused_step_was_never_put_to_the_model() -> None:
    run = recorded("policy_gates/pg3_loop_budget")
    last = run.steps[-1]
    assert last["llm_input"] is None and last["llm_output"] is None and last["llm_attempts"] == []
    assert last["intended_tool_calls"] == [] and last["tool_results"] == []
    (check,) = run.below(run.named("agent_step")[-1], "policy_check")
    assert check["agent.policy.rule_id"] == "loop_budget" and check["agent.tool_name"] is None


def test_calls_of_a_reply_that_overdraws_the_tokens_are_not_executed() -> None:
    run = recorded("policy_gates/pg3_loop_budget_tokens")
    last = run.steps[-1]
    assert last["llm_output"] is not None and len(last["intended_tool_calls"]) == 1
    assert [result["status"] for result in last["tool_results"]] == ["denied"]
    (check,) = run.below(run.named("agent_step")[-1], "policy_check")
    assert check["agent.policy.rule_id"] == "loop_budget" and check["agent.tool_name"] == "read"


def test_the_words_of_a_refusal_are_recorded_and_are_no_answer() -> None:
    run = recorded("failure_modes/llm_refusal")
    said = run.steps[-1]["llm_output"]
    assert said["finish_reason"] == "refusal" and "forged record" in said["final_answer"]
    assert run.lines[-1]["final_answer"] is None and run.lines[-1]["failure_mode"] == "llm_refusal"


def test_the_tokens_that_were_used_are_those_of_the_replies() -> None:
    run = recorded("policy_gates/pg3_loop_budget_tokens")
    used = sum(
        node["gen_ai.usage.input_tokens"] + node["gen_ai.usage.output_tokens"]
        for node in run.named("llm_call")
    )
    assert run.denials[0]["facts"]["used"] == used == 1240


def test_a_forbidden_tool_with_broken_arguments_is_refused_by_the_registry() -> None:
    run = recorded("policy_gates/pg4_forbidden_tool_with_arg_schema_violation")
    (call,) = run.steps[0]["intended_tool_calls"]
    assert call["name"] == "shell" and call["arguments"] is None
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(call["arguments_text"])
    assert [denial["rule_id"] for denial in run.denials] == ["tool_registry"]


def test_a_link_touches_nothing_and_what_it_led_to_is_not_recorded() -> None:
    run = recorded("policy_gates/pg2_sandbox_link")
    (attempt,) = run.steps[1]["tool_results"][0]["attempts"]
    assert "reads" not in attempt
    assert attempt["checks"] == [
        {"rule": "sandbox_path", "path": "sandbox/shortcut.md", "access": "read", "found": "link"}
    ]
    text = (ROOT / "runs/policy_gates/pg2_sandbox_link/state.jsonl").read_text()
    assert "/etc/hostname" not in text


def test_a_redirect_is_kept_with_the_attempt_that_met_it() -> None:
    run = recorded("policy_gates/pg1_redirect_off_allowlist")
    (attempt,) = run.steps[0]["tool_results"][0]["attempts"]
    assert attempt["checks"] == [
        {"rule": "url_allowlist", "target": "https://news.example/landing", "hop": 1}
    ]


def test_the_told_model_goes_on() -> None:
    for name, index in (("inform_adapts", 0), ("one_of_several_denied", 1)):
        run = recorded(f"policy_gates/{name}")
        told = run.steps[0]["tool_results"][index]["told"]
        assert told == {
            "error": "policy_denied",
            "rule": "url_allowlist",
            "reason": run.denials[0]["reason"],
            "executed": False,
            "retryable": False,
        }
        assert run.lines[0]["policy"]["on_deny"] == "inform"
        assert _digests(run) == [step["llm_input"]["digest"] for step in run.steps]


def test_the_calls_of_one_reply_are_taken_in_order_and_one_denial_leaves_the_others() -> None:
    run = recorded("policy_gates/one_of_several_denied")
    assert [result["status"] for result in run.steps[0]["tool_results"]] == ["ok", "denied", "ok"]
    first = run.named("agent_step")[0]
    order = sorted(run.below(first, "policy_check") + run.below(first, "tool_call"), key=lambda n: n.begin)
    assert [(node.name, node["agent.tool_name"]) for node in order] == [
        ("policy_check", "read"),
        ("tool_call", "read"),
        ("policy_check", "fetch"),
        ("policy_check", "fetch"),
        ("tool_call", "fetch"),
    ]
    assert all(a.end <= b.begin for a, b in pairwise(order))


@pytest.mark.parametrize("name", ["approval_given", "approval_refused"])
def test_the_wait_for_a_person_lies_inside_the_check(name: str) -> None:
    run = recorded(f"policy_gates/{name}")
    (check,) = run.named("policy_check")
    (decision,) = run.steps[0]["policy_decisions"]
    given = name == "approval_given"
    assert check["agent.policy.approval"] == ("allow" if given else "deny")
    assert decision["approval"]["by"] == "shift lead" and decision["approval"]["why"]
    stamps = run.steps[0]["stamps"]
    decided, waited = stamps["d0"], stamps["h0"]
    assert waited[1] - waited[0] >= 1_000_000_000  # a person takes a second
    zero = run.named("llm_call")[0].begin - stamps["m.1"][0]
    assert (check.begin - zero, check.end - zero) == (decided[0], waited[1])
    for tool_call in run.named("tool_call"):
        assert check.end < tool_call.begin


def test_what_was_written_after_an_approval_is_recorded_and_nothing_after_a_refusal() -> None:
    (attempt,) = recorded("policy_gates/approval_given").steps[0]["tool_results"][0]["attempts"]
    sha = hashlib.sha256(b"The dispatch room is at Ollerbeck.").hexdigest()
    assert attempt["writes"] == [["sandbox/note.md", sha]]
    assert recorded("policy_gates/approval_refused").steps[0]["tool_results"][0]["attempts"] == []


def test_an_answer_that_is_offered_to_a_second_call_is_refused() -> None:
    first, second = (
        step["policy_decisions"][0]["approval"]
        for step in recorded("policy_gates/approval_offered_twice").steps
    )
    assert (first["answer"], first["by"]) == ("allow", "shift lead") and first["digest"] != second["digest"]
    assert (second["answer"], second["by"]) == ("deny", None)
    assert second["why"] == "the answer was given to another call or policy"


def _digests(run: Recorded) -> list[str]:
    """The digests of the model's inputs, from the lines alone."""
    history = History()
    history.add({"role": "user", "content": run.lines[0]["question"]})
    found = []
    for step in run.steps:
        found.append(history.digest)
        message: dict[str, Any] = {"role": "assistant", "content": step["llm_output"]["text"] or ""}
        calls = step["intended_tool_calls"]
        if calls:
            message["tool_calls"] = [
                {"id": c["id"], "name": c["name"], "arguments": _text(c["arguments"])} for c in calls
            ]
        history.add(message)
        for result in step["tool_results"]:
            content = _text(result.get("told", result["result"]))
            history.add(
                {"role": "tool", "tool_call_id": result["id"], "name": result["name"], "content": content}
            )
    return found


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def test_a_secret_reaches_neither_model_nor_record() -> None:
    name = "policy_gates/redacted_secret"
    task = (ROOT / f"tasks/{name}.yaml").read_text()
    secrets = re.findall(r"[\w.]+@[\w.]*\w", task)
    assert secrets == ["cards@ollerbeck.example", "lead@ollerbeck.example"]
    for file in FILES:
        text = (ROOT / "runs" / name / file).read_text()
        assert [word for word in (*secrets, "@ollerbeck") if word in text] == [], file
    run = recorded(name)
    placeholders = "write to <secret:email:1> and copy <secret:email:2>."
    result = run.steps[0]["tool_results"][0]
    assert placeholders in result["result"]["text"] and placeholders in run.lines[-1]["final_answer"]
    # what the model was asked is known by its digest alone: it is that of the placeholders
    given = [step["llm_input"]["digest"] for step in run.steps]
    assert _digests(run) == given
    shown = {**result["result"], "text": "Lost cards: " + f"write to {secrets[0]} and copy {secrets[1]}."}
    secret = Recorded([*json.loads(json.dumps(run.lines))], [])
    secret.steps[0]["tool_results"][0]["result"] = shown
    assert _digests(secret)[1] != given[1]


def test_a_cut_off_reply_is_not_acted_upon() -> None:
    run = recorded("failure_modes/llm_invalid_output")
    (step,) = run.steps
    assert step["llm_output"]["finish_reason"] == "length"
    assert [result["status"] for result in step["tool_results"]] == ["not_reached"]
    (llm_call,) = run.named("llm_call")
    assert llm_call.failed and llm_call["error.type"] == "llm_invalid_output"


def test_the_model_that_cannot_be_asked_is_asked_as_often_as_a_tool() -> None:
    run = recorded("failure_modes/llm_failure")
    (llm_call,) = run.named("llm_call")
    assert llm_call.failed and llm_call["error.type"] == "llm_failure"
    assert llm_call["gen_ai.usage.input_tokens"] is None
    assert [attempt["fault"] for attempt in run.steps[0]["llm_attempts"]] == [
        {"exception": "ConnectionError", "kind": "transient"}
    ] * 4


def test_a_recovered_failure_marks_the_attempt_not_the_call() -> None:
    run = recorded("failure_modes/tool_call_failure")
    first, _ = run.named("tool_call")
    assert not first.failed and first["agent.tool.status"] == "ok"
    attempts = run.below(first, "retry_attempt")
    assert [(node.failed, node["error.type"]) for node in attempts] == [
        (True, "ConnectionError"),
        (True, "TimeoutError"),
        (False, None),
    ]
    assert not run.named("agent_step")[0].failed


def test_a_timeout_takes_its_time() -> None:
    run = recorded("failure_modes/timeout")
    (attempt,) = run.named("retry_attempt")
    assert attempt.end - attempt.begin > 30_000_000_000
    assert run.lines[0]["policy"]["limits"]["max_retries"] == 0


def test_a_result_of_the_wrong_shape_is_not_recorded_as_one() -> None:
    run = recorded("failure_modes/tool_output_invalid")
    (tool_call,) = run.named("tool_call")
    assert tool_call.failed and tool_call["error.type"] == "tool_output_invalid"
    assert run.steps[0]["tool_results"][0]["result"] is None
    assert run.steps[0]["errors"][0]["keyword"] == "required"


def test_a_repeated_call_is_refused_after_the_third_same_result() -> None:
    run = recorded("failure_modes/cycle_detection")
    results = [_text(result["result"]) for step in run.steps[:3] for result in step["tool_results"]]
    calls = [_text(step["intended_tool_calls"][0]["arguments"]) for step in run.steps]
    assert len(set(results)) == 1 and len(set(calls)) == 1


# ---- together ------------------------------------------------------------------------------------------


def test_eight_of_eight_gates_and_five_of_five_modes() -> None:
    """Each rule of the gate has a run with its deny span, each early failure mode a run with its ending."""
    denied = {
        node["agent.policy.rule_id"]
        for name in PLAN
        for node in recorded(name).named("policy_check")
        if node["agent.policy.decision"] == "deny"
    }
    gates = set(RULES) - {"gate_error"}
    assert len(gates) == 13 and denied == gates
    pg = [name for name in PLAN if name.startswith("policy_gates/pg")]
    assert len(pg) >= 8 and all(len(recorded(name).denials) == 1 for name in pg)
    endings = {
        "tool_call_failure": ANSWER,
        "retry_exhaustion": FAILED,
        "schema_mismatch": FAILED,
        "cycle_detection": DENIED,
        "catalogued_unhandled": FAILED,
    }
    for mode, ending in endings.items():
        run = recorded(f"failure_modes/{mode}")
        assert mode in {node["agent.failure_mode"] for node in run.named("agent_step")}
        assert run.root["agent.terminal_reason"] == ending
    assert {mode for row in PLAN.values() for mode in row.modes if mode} == set(MODES)
    assert {name.partition("/")[2] for name in PLAN if name.startswith("failure_modes/")} == set(MODES)
