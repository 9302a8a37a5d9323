"""A policy drafted from a run: the run passes under it, and nothing in it can go."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Answer, LLMOutput, Policy, ToolCall, record
from tachograph.review.remedy.edits import apply
from tachograph.review.suggest.policy_writer import policy_text
from tachograph.review.suggest.suggest import RecordedRun, suggest, suggest_edits
from tachograph.review.suggest.text_edits import diff, edited_text
from tachograph.runtime.policy.policy import meta_schema
from tachograph.runtime.schema.schema_errors import DocumentValidator
from tests.evidence.project import all_runs
from tests.review.questions_heard import told_and_heard
from tests.review.runs import run_of
from tests.support import ROOT, Script, policy_data

Data = dict[str, Any]
RUNS = all_runs()
NAMES = [f"{run.parent.name}/{run.name}" for run in RUNS]


def steps_of(folder: Path) -> list[Data]:
    lines = (folder / "state.jsonl").read_text(encoding="utf-8").split("\n")[1:-2]
    return [json.loads(line) for line in lines]


# ---- the questions of a run ------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", RUNS, ids=NAMES)
def test_a_ledger_tells_what_the_loop_had_counted_at_each_question(folder: Path) -> None:
    """The counts read from the lines are those that the loop's own gate was given."""
    told, heard = told_and_heard(folder)
    assert told == heard


# ---- every committed run ---------------------------------------------------------------------------------

STUCK = {
    "failure_modes/schema_mismatch": "the tool's schema decides",
    "loop/hook_denies": "a hook denied it, and no policy allows what a hook denies",
    "loop/hook_raises": "a hook denied it, and no policy allows what a hook denies",
    "policy_gates/approval_offered_twice": "a person refused it",
    "policy_gates/approval_refused": "a person refused it",
    "policy_gates/pg2_sandbox_escape": "two programs may read differently",
    "policy_gates/pg2_sandbox_link": "follows no link",
    "policy_gates/pg4_forbidden_tool": "the run has no such tool",
    "policy_gates/pg4_forbidden_tool_with_arg_schema_violation": "the run has no such tool",
    "policy_gates/pg5_arg_schema": "the tool's schema decides",
    "policy_gates/redacted_write": "the call holds a placeholder",
    "tool_rules/amount_over_the_limit": "tools.send_money.arguments refuses it",
    "tool_rules/approval_on_a_condition": "a person refused it",
    "tool_rules/calls_of_a_tool_used_up": "tools.send_money.limits refuses it",
    "tool_rules/principal_refused": "principals refuses it",
    "tool_rules/body_of_a_request": "tools.orders.body refuses it",
    "tool_rules/reach_of_a_tool": "tools.fetch.urls refuses it",
    "tool_rules/rate_limit": "tools.send_money.limits refuses it",
    "tool_rules/time_window": "tools.deploy.between refuses it",
    "tool_rules/recipient_not_on_the_list": "tools.send_money.arguments refuses it",
}


@pytest.mark.parametrize("folder", RUNS, ids=NAMES)
def test_the_draft_is_a_policy_under_which_the_run_passes(folder: Path, tmp_path: Path) -> None:
    found = suggest(folder, root=ROOT)
    name = f"{folder.parent.name}/{folder.name}"
    assert found.proof.is_complete == (name not in STUCK)
    stuck = (*found.proof.refused, *found.proof.denied_by_hooks)
    assert [STUCK[name] in item[3] for item in stuck] == [True] * (name in STUCK)
    file = tmp_path / "draft.yaml"
    file.write_text(found.text)
    assert Policy.load(file, root=tmp_path).version == found.policy.version
    assert not list(DocumentValidator(meta_schema()).iter_errors(found.policy.data))
    refused = sum(
        decision["decision"] == "deny" and "approval" not in decision
        for step in steps_of(folder)
        for decision in step["policy_decisions"]
    )
    marked = found.text.count("# was refused: step")
    assert bool(marked) == bool(refused and name not in STUCK)
    behind = found.proof.replayed
    if not refused:
        assert behind.flip is None and behind.why is None and behind.behind == 0
    elif found.proof.is_complete:
        assert behind.why is not None or (behind.flip is not None and behind.flip.kind == "widening")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("amount_over_the_limit", "payments"),
        ("recipient_not_on_the_list", "payments"),
        ("approval_on_a_condition", "approval"),
        ("calls_of_a_tool_used_up", "limits"),
        ("rate_limit", "rate"),
        ("time_window", "window"),
    ],
)
def test_the_draft_keeps_the_rules_of_tools_and_their_lists(name: str, file: str) -> None:
    """What a person is asked about on a condition stays conditional."""
    draft = suggest(ROOT / "runs/tool_rules" / name, root=ROOT).policy
    recorded = Policy.load(ROOT / f"policy/rules/{file}.yaml", root=ROOT)
    assert recorded.tool_rules
    assert (draft.tool_rules, draft.lists) == (recorded.tool_rules, recorded.lists)
    assert draft.section("approval") == recorded.section("approval")


def test_the_draft_keeps_the_principals() -> None:
    draft = suggest(ROOT / "runs/tool_rules/principal_refused", root=ROOT).policy
    recorded = Policy.load(ROOT / "policy/rules/principals.yaml", root=ROOT)
    assert draft.principals == recorded.principals == {"clerk": {}, "intern": {"send_money": "deny"}}


def narrowed(data: Data) -> Iterator[tuple[str, Data]]:
    """The policy with one entry less, or one limit lower."""
    for section, key in (("tool_registry", "allowed"), ("approval", "required_for"), (None, "url_allowlist"),
                         (None, "private_networks")):  # fmt: skip
        for entry in (data if section is None else data.get(section, {})).get(key, ()):
            less = copy.deepcopy(data)
            held = less if section is None else less[section]
            held[key].remove(entry)
            if key == "url_allowlist":
                less.pop("credentials", None)  # which apply to entries alone
            if key == "allowed":
                less.pop("tools", None)
                less.pop("principals", None)
            if key == "allowed" and entry in less.get("approval", {}).get("required_for", ()):
                less["approval"]["required_for"].remove(entry)
            yield f"{key} {entry}", less
    for name, mode in data.get("sandbox", {}).get("mounts", {}).items():
        less = copy.deepcopy(data)
        del less["sandbox"]["mounts"][name]
        yield f"mount {name}", less
        if mode == "write":
            less = copy.deepcopy(data)
            less["sandbox"]["mounts"][name] = "read"
            yield f"mount {name} for reading", less
    for section in ("loop_budget", "cycle_detection"):
        for name, limit in data.get(section, {}).items():
            if type(limit) is int and limit > (0 if name in ("max_tool_calls", "max_result_bytes") else 1):
                yield name, {**data, section: {**data[section], name: limit - 1}}
    if data["arg_schema_enforcement"] == "shape":
        yield "shape", {**data, "arg_schema_enforcement": "strict"}


def spoken_beyond(folder: Path, limit: int) -> bool:
    """Whether the model said more in some step than the limit would have left it."""
    used = 0
    for step in steps_of(folder):
        if step["usage"]["output_tokens"] > limit - used and step["llm_output"] is not None:
            return True
        used += step["usage"]["input_tokens"] + step["usage"]["output_tokens"]
    return False


@pytest.mark.parametrize("folder", RUNS, ids=NAMES)
def test_nothing_in_the_draft_can_go(folder: Path) -> None:
    """With an entry less or a limit lower the run could not begin, is refused, leaves its record, or is cut short."""
    case = RecordedRun(folder, ROOT)
    needs = case.requirements()
    whole = case.prove(Policy.from_dict(needs.data), needs.extra_calls, {})
    told = {**whole.replayed.to_dict(), "version": ""}
    for what, less in narrowed(needs.data):
        policy = Policy.from_dict(less)
        proof = case.prove(policy, needs.extra_calls, {})
        if proof.start_error is not None:
            continue  # a mount that the run binds
        if what.startswith("mount sandbox") and starts_without(case, policy):
            continue
        same = proof.refused == whole.refused and {**proof.replayed.to_dict(), "version": ""} == told
        if same and what == "max_tokens":
            same = not spoken_beyond(folder, policy.limits["max_tokens"])
        if same and what == "max_iterations":
            same = not told_otherwise(folder, policy.limits["max_iterations"])
        assert not same, (what, needs.data)


def told_otherwise(folder: Path, limit: int) -> bool:
    """Whether the model would have heard at another step that two are left."""
    asked = [step for step in steps_of(folder) if step["llm_input"] is not None]
    return any(
        (step.get("notice") == "two_left") != (limit - done == 2 < limit) for done, step in enumerate(asked)
    )


def starts_without(case: RecordedRun, policy: Policy) -> bool:
    """Whether the run's task puts files into a private mount that a policy does not give it."""
    from tachograph.evidence.tasks.task import load_task

    task = case.recorded.run["task"]
    setup = load_task(ROOT / task["path"], root=ROOT).data.get("setup", ()) if task is not None else ()
    return any(policy.mounts.get(item["path"].partition("/")[0]) != "write" for item in setup)


def test_what_a_run_went_on_after_stays_refused_by_the_same_rule(tmp_path: Path) -> None:
    """Under `inform` the model was told the rule: the draft refuses what stays refused by the very same."""
    calls = [
        ToolCall("read", {"path": "../x"}),
        ToolCall("search", {"query": 5}),
        ToolCall("read", {"path": "corpus/op-a1.md"}),
    ]
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[call]) for call in calls])
    found = suggest(folder, root=ROOT)
    assert [(step, what) for step, _, what, _ in found.proof.refused] == [(1, "read"), (2, "search")]
    assert found.proof.replayed.flip is None and found.proof.replayed.why is None
    assert found.policy.data["tool_registry"] == {"allowed": ["read", "search"]}


# ---- other runs ------------------------------------------------------------------------------------------


def test_several_refused_calls_of_a_run_from_code_are_all_allowed(tmp_path: Path) -> None:
    calls = [
        ToolCall("fetch", {"url": "https://one.test/a"}),
        ToolCall("write", {"path": "corpus/x", "content": "x"}),
        ToolCall("fetch", {"url": "https://one.test/a/b"}),
        ToolCall("write", {"path": "sandbox/x", "content": "x"}),
    ]
    found = suggest(run_of(tmp_path, [LLMOutput(tool_calls=calls)]), root=ROOT)
    assert found.proof.is_complete and found.proof.replayed.flip is not None
    data = found.policy.data
    assert data["url_allowlist"] == ["https://one.test/a"]  # which is what the other is below
    assert data["sandbox"]["mounts"] == {"corpus": "write", "sandbox": "write"}
    assert data["loop_budget"]["max_tool_calls"] == 4  # one was made, three are allowed now
    assert len(found.widened) == 2
    assert "not known" in found.text
    for line in found.text.splitlines()[found.text.splitlines().index("schema: policy/v1") :]:
        assert ("was refused" in line) == line.startswith(('  - "https://one.test/a"', "    corpus: write"))


def test_a_run_whose_policy_was_made_in_code_has_a_draft_too(tmp_path: Path) -> None:
    data = policy_data(tool_registry={"allowed": ["fetch", "write"], "denied": []}, sandbox=None, on_deny="inform",
                       redact=["email"])  # fmt: skip
    calls = [
        ToolCall("fetch", {"url": "https://other.test/"}),
        ToolCall("write", {"path": "new/x", "content": "x"}),
    ]
    said = LLMOutput(text="I write to a@b.test", tool_calls=calls)
    folder = run_of(tmp_path, [said], policy=Policy.from_dict(data))
    found = suggest(folder, root=ROOT)
    assert found.proof.is_complete
    assert found.policy.data["url_allowlist"] == ["https://other.test/"]
    assert found.policy.data["sandbox"] == {"mounts": {"new": "write"}}
    assert found.policy.data["redact"] == ["email"]
    assert "the recorded policy cannot be had any more" in found.notes[0]


def test_a_private_folder_that_is_only_read_stays_a_mount_for_writing(tmp_path: Path) -> None:
    """There is none for a mount that is for reading: the same call would find no mount."""
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[ToolCall("read", {"path": "sandbox/none"})])])
    assert suggest(folder, root=ROOT).policy.data["sandbox"]["mounts"]["sandbox"] == "write"


def test_whoever_was_asked_is_asked_again(tmp_path: Path) -> None:
    policy = Policy.load(ROOT / "policy/v1.yaml", [ROOT / "policy/overlays/approve_write.yaml"], root=ROOT)
    call = LLMOutput(tool_calls=[ToolCall("write", {"path": "sandbox/x", "content": "x"})])
    folder = run_of(tmp_path, [call], policy=policy, approve=lambda _: Answer("allow", "someone", None))
    found = suggest(folder, root=ROOT)
    assert found.proof.is_complete and found.policy.data["approval"] == {
        "required_for": ["write"],
        "timeout_s": 60,
    }
    (refused,) = suggest(
        run_of(tmp_path, [call], policy=policy, name="no", approve=lambda _: False), root=ROOT
    ).proof.refused
    assert refused == (1, "d0", "write", "a person refused it")


def test_networks_that_a_record_does_not_name_are_kept_with_a_word(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "policy").mkdir(parents=True)
    data = {
        **Policy.load(ROOT / "policy/v1.yaml").data,
        "private_networks": ["10.0.0.0/8"],
        "on_deny": "inform",
        "on_failure": {"default": "inform", "tools": {"write": "terminate"}, "max_failures": 3},
    }
    (folder / "policy" / "v1.yaml").write_text(policy_text(data, (), {}))
    policy = Policy.load(folder / "policy" / "v1.yaml", root=folder)
    call = LLMOutput(tool_calls=[ToolCall("fetch", {"url": "https://127.0.0.1:1/"})])
    refused = suggest(run_of(tmp_path, [call], policy=replace_entry(policy, "https://o.test/")), root=folder)
    assert refused.policy.data["private_networks"] == ["127.0.0.1/32"]  # the address that its URL names
    near = replace_entry(policy, "https://inner.test/")
    (folder / "policy" / "v1.yaml").write_text(policy_text(near.data, (), {}))
    policy = Policy.load(folder / "policy" / "v1.yaml", root=folder)
    call = LLMOutput(tool_calls=[ToolCall("fetch", {"url": "https://inner.test/"})])
    kept = suggest(stub_fetch(tmp_path, policy, call), root=folder)
    assert kept.policy.data["private_networks"] == ["10.0.0.0/8"]
    assert kept.policy.data["on_failure"] == data["on_failure"]
    assert '- "10.0.0.0/8"' in kept.text or "- 10.0.0.0/8" in kept.text
    assert "# kept: the network, the record has no allowed address" in kept.text


def replace_entry(policy: Policy, entry: str) -> Policy:
    return Policy.from_dict({**policy.data, "url_allowlist": [entry]})


def stub_fetch(tmp_path: Path, policy: Policy, call: LLMOutput) -> Path:
    """A run whose fetch fails at once: nobody listens."""
    script = Script([call, LLMOutput(final_answer="done")])
    from tachograph.runtime.tools.loader import load_named

    def run(args: Data, io: Any) -> Any:
        return {"url": args["url"], "status": 200, "content_type": "text/plain", "text": "x"}

    fetch = replace(load_named("fetch", ROOT / "tools"), run=run)
    agent = Agent(script, [fetch], policy)
    record(agent, "What now?", out=tmp_path / "fetched")
    return tmp_path / "fetched"


def test_the_draft_of_a_long_run_names_each_url_once(tmp_path: Path) -> None:
    calls = [ToolCall("fetch", {"url": f"https://o.test/d/{n % 40}"}) for n in range(60)]
    replies = [LLMOutput(tool_calls=calls[:20]), LLMOutput(tool_calls=calls[20:40])]
    found = suggest(run_of(tmp_path, replies), root=ROOT)
    assert found.proof.is_complete
    assert found.policy.data["url_allowlist"] == [f"https://o.test/d/{n}" for n in range(40)]


# ---- edits of a policy -----------------------------------------------------------------------------------


def test_edits_of_a_policy_come_as_a_diff_that_keeps_its_comments() -> None:
    file = ROOT / "policy/v1.yaml"
    policy = Policy.load(file, root=ROOT)
    found = suggest_edits(ROOT / "runs/policy_gates/one_of_several_denied", policy, root=ROOT)
    assert found.edits is not None
    assert [item.text for item in found.edits] == [
        'policy/v1.yaml:6: under url_allowlist add "https://news.example/seals"'
    ]
    text = edited_text(file.read_text(), found.edits, apply(policy, found.edits).data)
    assert text is not None
    changed = [
        line for line in diff(file.read_text(), text, "policy/v1.yaml").splitlines() if line[0] in "+-"
    ]
    assert changed == ["--- a/policy/v1.yaml", "+++ b/policy/v1.yaml", '+  - "https://news.example/seals"']
