"""Runs with hooks at the review desk: what the gate was asked, and that no edit of a policy undoes a hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tachograph import Answer, Hooks, LLMOutput, Policy, ToolCall
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.queries.explain import as_data, as_text, explain_run
from tachograph.review.remedy.explain_denial import add_explanations
from tachograph.review.suggest.suggest import suggest, suggest_edits
from tachograph.runtime.tools.hooks import load_hooks
from tachograph.views.model import run_of as views_run
from tests.review.questions_heard import told_and_heard
from tests.review.runs import run_of
from tests.support import ROOT

READ = ToolCall("read", {"path": "corpus/op-a1.md"})
OTHER = {"path": "corpus/op-e2.md"}
NO_EDIT = "no edit of the policy allows it: a hook denied it, and no policy allows what a hook denies"


ASKING = {"required_for": ["read"], "timeout_s": 60}


def _policy(folder: Path, **sections: Any) -> Policy:
    """A policy of a project in a folder, which a run is made again with."""
    data = Policy.load(ROOT / "policy/v1.yaml", [ROOT / "policy/overlays/inform.yaml"], root=ROOT).data
    (folder / "policy").mkdir(parents=True, exist_ok=True)
    (folder / "policy/v1.yaml").write_text(json.dumps({**data, **sections}))
    if not (folder / "data").exists():
        (folder / "data").symlink_to(ROOT / "data")
    return Policy.load(folder / "policy/v1.yaml", root=folder)


def _hooks(folder: Path, event: str, body: str, head: str = "") -> Hooks:
    """Hooks of a project in a folder: a file with one function."""
    (folder / "guard.py").write_text(f"{head}\n\ndef {event}(data):\n    {body}\n")
    return load_hooks(folder / "guard.py", "guard.py")


def _explained(folder: Path, root: Path) -> str:
    found = explain_run(folder, root=root)
    add_explanations(found, None, lambda text, _: text)
    return as_text(found, None, lambda text, _: text)


def _step(folder: Path, number: int = 1) -> dict[str, Any]:
    line: dict[str, Any] = json.loads((folder / "state.jsonl").read_text("utf-8").split("\n")[number])
    return line


def test_explain_and_suggest_say_in_a_line_that_a_hook_denied() -> None:
    folder = ROOT / "runs/loop/hook_denies"
    assert _explained(folder, ROOT).count(NO_EDIT) == 1
    draft = suggest(folder, root=ROOT)
    line = "cannot be allowed: step 1 read: a hook denied it, and no policy allows what a hook denies"
    assert draft.text.replace("\n#  ", "").count(line) == 1 and "was refused" not in draft.text
    (denied,) = draft.to_dict()["proof"]["denied_by_hooks"]
    assert (denied["step"], denied["position"], denied["what"]) == (1, "d0.2", "read")
    edits = suggest_edits(folder, Policy.load(ROOT / "policy/v1.yaml", root=ROOT), root=ROOT)
    assert edits.edits == () and not edits.proof.is_complete


def test_explain_shows_the_arguments_that_a_hook_gave_and_both_decisions() -> None:
    folder = ROOT / "runs/loop/hook_rewrites"
    text = _explained(folder, ROOT)
    assert text.count('a hook gave other arguments: {"path":"corpus/op-a1.md"}') == 1
    decisions = as_data(explain_run(folder, root=ROOT), 1)["steps"][0]["decisions"]
    assert [item["recorded"]["position"] for item in decisions] == ["d0", "d0.2"]
    assert all(item["explained"]["decision"] == "allow" for item in decisions)


def test_a_rewritten_call_is_explained_with_the_arguments_that_it_was_denied_for(tmp_path: Path) -> None:
    away = _hooks(tmp_path, "before_call", 'return {"arguments": {"path": "elsewhere/x"}}')
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[READ])], policy=_policy(tmp_path), hooks=away)
    found = explain_run(folder, root=tmp_path)
    add_explanations(found, None, lambda text, _: text)
    first, second = as_data(found, 1)["steps"][0]["decisions"]
    assert (first["why"], first["explained"]["decision"]) == (None, "allow")
    assert second["explained"]["decision"] == "deny"
    assert [item["pointer"] for item in second["why"]["edits"]] == ["/sandbox/mounts/elsewhere"]


def test_a_repeated_call_that_a_hook_denied_stays_denied_by_the_hook(tmp_path: Path) -> None:
    no = _hooks(tmp_path, "before_call", 'return {"deny": "no"}')
    folder = run_of(
        tmp_path,
        [LLMOutput(tool_calls=[READ]), LLMOutput(tool_calls=[READ])],
        policy=_policy(tmp_path),
        hooks=no,
    )
    again = _step(folder, 2)["policy_decisions"]
    assert [(entry["position"], entry["reason"]) for entry in again] == [
        ("d0", "this call was refused before")
    ]
    assert _explained(folder, tmp_path).count(NO_EDIT) == 2
    draft = suggest(folder, root=tmp_path)
    assert [item[:2] for item in draft.proof.denied_by_hooks] == [(1, "d0.2"), (2, "d0")]
    assert "was refused" not in draft.text


def test_an_escalation_that_a_hook_denied_is_one_denial(tmp_path: Path) -> None:
    no = _hooks(tmp_path, "before_call", 'return {"deny": "no"}')
    folder = run_of(
        tmp_path, [LLMOutput(tool_calls=[READ])], policy=_policy(tmp_path, approval=ASKING), hooks=no
    )
    made = [(entry["position"], entry["decision"]) for entry in _step(folder)["policy_decisions"]]
    assert made == [("d0", "escalate"), ("d0.2", "deny")]
    assert _step(folder, 3)["totals"]["denials"] == 1
    assert verify(folder, folder) == []
    assert under(folder, _policy(tmp_path, approval=ASKING), root=tmp_path).is_same
    flip = under(folder, _policy(tmp_path), root=tmp_path).flip
    assert flip is not None and (flip.kind, flip.position) == ("widening", "d0")
    _policy(tmp_path, approval=ASKING)
    text = _explained(folder, tmp_path)
    assert text.count(NO_EDIT) == 1 and "a hook decided on this call before a person was asked" in text
    assert [item[1] for item in suggest(folder, root=tmp_path).proof.denied_by_hooks] == ["d0.2"]


def test_an_escalation_before_other_arguments_is_no_denial(tmp_path: Path) -> None:
    swap = _hooks(tmp_path, "before_call", f"return {{'arguments': {OTHER!r}}}")
    folder = run_of(
        tmp_path,
        [LLMOutput(tool_calls=[READ])],
        policy=_policy(tmp_path, approval=ASKING),
        hooks=swap,
        approve=lambda _: True,
    )
    made = [(entry["position"], entry["decision"]) for entry in _step(folder)["policy_decisions"]]
    assert made == [("d0", "escalate"), ("d0.2", "allow")]
    assert _step(folder, 3)["totals"]["denials"] == 0
    assert (
        verify(folder, folder) == []
        and under(folder, _policy(tmp_path, approval=ASKING), root=tmp_path).is_same
    )
    assert suggest(folder, root=tmp_path).proof.is_complete


def test_a_person_whom_a_hook_asked_is_no_rule(tmp_path: Path) -> None:
    ask = _hooks(tmp_path, "before_call", 'return {"escalate": "large"}')
    folder = run_of(
        tmp_path,
        [LLMOutput(tool_calls=[READ])],
        policy=_policy(tmp_path),
        hooks=ask,
        approve=lambda _: Answer("deny", "someone", None),
    )
    assert "no edit of the policy allows it: a person refused it, whom a hook asked" in _explained(
        folder, tmp_path
    )
    assert under(folder, _policy(tmp_path), root=tmp_path).is_same


@pytest.mark.parametrize("event", ["before_model", "on_stop"])
def test_a_hook_that_ends_the_run_is_no_budget(event: str, tmp_path: Path) -> None:
    """Its decision stands where one on the budgets would."""

    ends = _hooks(tmp_path, event, "return {'stop': 'enough'} if data['event'] == 'before_model' else 1 / 0")
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[READ])], policy=_policy(tmp_path), hooks=ends)
    assert under(folder, _policy(tmp_path), root=tmp_path).is_same
    told, heard = told_and_heard(folder, tmp_path)
    assert told == heard
    assert NO_EDIT in _explained(folder, tmp_path)
    assert [item[2] for item in suggest(folder, root=tmp_path).proof.denied_by_hooks] == ["the step"]


def test_another_policy_decides_the_arguments_that_a_hook_gave(tmp_path: Path) -> None:
    """`replay --policy` names the decision on the call as the hook left it, not on the call as proposed."""
    away = _hooks(tmp_path, "before_call", "return {'arguments': {'path': 'sandbox/x'}}")
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[READ])], policy=_policy(tmp_path), hooks=away)
    assert under(folder, _policy(tmp_path), root=tmp_path).is_same
    less = _policy(tmp_path, sandbox={"mounts": {"corpus": "read"}})
    found = under(folder, less, root=tmp_path)
    assert found.flip is not None and found.same == 1
    assert (found.flip.kind, found.flip.position, found.flip.tool) == ("tightening", "d0.2", "read")


def test_a_result_of_a_hook_that_does_not_fit_is_no_widening_of_the_one_before(tmp_path: Path) -> None:
    """The gate has no objection to what the tool returned, and one to what the hook put in its place."""
    limits = {**Policy.load(ROOT / "policy/v1.yaml", root=ROOT).data["loop_budget"], "max_result_bytes": 5000}
    policy = _policy(tmp_path, loop_budget=limits)
    large = _hooks(tmp_path, "after_call", "return {'result': {'path': 'p', 'text': 'x' * 6000}}")
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[READ])], policy=policy, hooks=large)
    assert _step(folder)["policy_decisions"][-1]["rule_id"] == "loop_budget"
    assert under(folder, policy, root=tmp_path).is_same
    flip = under(folder, _policy(tmp_path), root=tmp_path).flip
    assert flip is not None and (flip.kind, flip.position) == ("widening", "d0.r")


ANSWERS = {
    "before_call": [None, {"deny": "no"}, {"escalate": "large"}, {"arguments": OTHER}, "garbage",
                    {"arguments": READ.arguments}, {"arguments": {"path": "elsewhere/x"}}, {"arguments": {"n": 1}}],
    "after_call": [None, {"deny": "no"}, {"result": {"path": "corpus/op-a1.md", "text": "short"}},
                   {"result": {"wrong": 1}}, {"result": {"path": "p", "text": "x" * 3000}}, 5],
}  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(st.sampled_from(ANSWERS["before_call"]), max_size=8),
    after=st.lists(st.sampled_from(ANSWERS["after_call"]), max_size=4),
    asks=st.booleans(),
    says_yes=st.booleans(),
)
def test_a_ledger_tells_what_the_gate_was_asked_whatever_hooks_said(
    before: list[Any], after: list[Any], asks: bool, says_yes: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    source = f"BEFORE, AFTER = iter({before!r}), iter({after!r})\n"
    source += "\ndef after_call(data):\n    return next(AFTER, None)\n"
    answering = _hooks(folder, "before_call", "return next(BEFORE, None)", source)
    limits = Policy.load(ROOT / "policy/v1.yaml", root=ROOT).data["loop_budget"]
    policy = _policy(
        folder,
        approval={"required_for": ["read"] if asks else [], "timeout_s": 60},
        loop_budget={**limits, "max_result_bytes": 5000},
    )
    calls = [LLMOutput(tool_calls=[READ, ToolCall("search", {"query": "x"})]), LLMOutput(tool_calls=[READ])]
    run = run_of(folder, calls, policy=policy, hooks=answering, approve=lambda _: says_yes)
    told, heard = told_and_heard(run, folder)
    assert told == heard
    assert verify(run, run) == []
    assert under(run, policy, root=folder).is_same
    denied = suggest(run, root=folder).proof.denied_by_hooks
    totals = json.loads((run / "state.jsonl").read_text("utf-8").split("\n")[-2])["totals"]
    assert len(denied) <= totals["denials"] <= 3


def test_report_and_page_show_the_decision_under_which_a_call_ran(tmp_path: Path) -> None:
    """The gate wanted a person, a hook gave other arguments, and a person allowed those."""
    swap = _hooks(tmp_path, "before_call", f"return {{'arguments': {OTHER!r}}}")
    policy = _policy(tmp_path, approval=ASKING)
    replies = [LLMOutput(tool_calls=[READ])]
    folder = run_of(tmp_path, replies, policy=policy, hooks=swap, approve=lambda _: True)
    (row,) = [line for line in (folder / "run_report.md").read_text("utf-8").splitlines() if "`read`" in line]
    assert "allow, `approval`" in row and "escalate" not in row
    assert views_run(folder).steps[0].calls[0].verdict == "allow"
