"""Recorded runs under other policies: every flip against an oracle that decides the records again by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tachograph import Policy, VirtualClock, record
from tachograph.cli import main as command_line
from tachograph.evidence.queries import counterfactual
from tachograph.evidence.queries.counterfactual import against, under
from tachograph.evidence.recording.recorded import RecordedModel
from tachograph.fail.errors import RecordError
from tachograph.runtime.driver.live_executor import LiveExecutor
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.tools.contract import Tool
from tests.evidence.oracle import Oracle
from tests.evidence.project import FEW, all_runs, copy_inputs, edit_lines, first_line, replaced, tachograph
from tests.support import ROOT, Script, policy_data, tool

Line = dict[str, Any]
# runs under the shipped policy: the changes below are of its sections
RUNS = [
    path.relative_to(ROOT).as_posix()
    for path in all_runs()
    if [item["path"] for item in first_line(path)["policy"]["files"]][:1] == ["policy/v1.yaml"]
]
SHIPPED = "policy/v1.yaml"

# what is changed in the policy that a run stands on, its overlays merged
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tool dropped": {"tool_registry": {"allowed": ["search", "fetch", "write", "summarize"]}},
    "tool denied": {"tool_registry": {"allowed": ["fetch", "read", "write"], "denied": ["search"]}},
    "url removed": {"url_allowlist": []},
    "url moved": {"url_allowlist": ["https://corpus.test/op-a1.md"]},
    "url added": {"url_allowlist": ["https://corpus.test/", "https://news.example/"]},
    "mount for reading": {"sandbox": {"mounts": {"corpus": "read", "sandbox": "read"}}},
    "mount gone": {"sandbox": {"mounts": {"sandbox": "write"}}},
    "mount added": {"sandbox": {"mounts": {"corpus": "read", "sandbox": "write", "etc": "read"}}},
    "one step": {"loop_budget": {"max_iterations": 1}},
    "two steps": {"loop_budget": {"max_iterations": 2}},
    "many steps": {"loop_budget": {"max_iterations": 50}},
    "few tokens": {"loop_budget": {"max_tokens": 500}},
    "many tokens": {"loop_budget": {"max_tokens": 900_000}},
    "one call": {"loop_budget": {"max_tool_calls": 1}},
    "few bytes": {"loop_budget": {"max_result_bytes": 300}},
    "no repeats": {"cycle_detection": {"max_repeats": 1}},
    "many repeats": {"cycle_detection": {"max_repeats": 9}},
    "approval for reading": {"approval": {"required_for": ["read"], "timeout_s": 60}},
    "no approval": {"approval": {"required_for": [], "timeout_s": 60}},
    "told of denials": {"on_deny": "inform"},
    "told at the last step": {"on_deny": "inform", "loop_budget": {"max_iterations": 1}},
    "ended by denials": {"on_deny": "terminate"},
    "no retry": {"retry": {"max_retries": 0, "backoff_base_ms": 100, "backoff_cap_ms": 2000}},
    "more retries": {"retry": {"max_retries": 9, "backoff_base_ms": 100, "backoff_cap_ms": 2000}},
    "shape only": {"arg_schema_enforcement": "shape"},
    "wrap up": {"loop_budget": {"max_iterations": 2, "wrap_up": True}},
}


@pytest.fixture
def nothing_is_performed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools, models, people and workspaces raise."""

    def performs(*_: object, **__: object) -> None:
        raise AssertionError("something was performed")

    for where, name in ((LiveExecutor, "perform"), (RecordedModel, "__call__"), (Stub, "__call__")):
        monkeypatch.setattr(where, name, performs)
    monkeypatch.setattr("tachograph.runtime.workspace.workspace.Workspace.__init__", performs)
    monkeypatch.setattr(counterfactual, "_loaded", _inert(counterfactual._loaded, performs))


def _inert(load: Callable[..., Tool], performs: Callable[..., None]) -> Callable[..., Tool]:
    def loaded(*words: Any) -> Tool:
        found = load(*words)
        object.__setattr__(found, "run", performs)
        return found

    return loaded


def _lines(run: str) -> list[Line]:
    return [json.loads(text) for text in (ROOT / run / "state.jsonl").read_text("utf-8").split("\n")[:-1]]


def _merged(run: str, change: dict[str, Any]) -> Policy:
    files = [ROOT / item["path"] for item in _lines(run)[0]["policy"]["files"]]
    data = Policy.load(files[0], files[1:], root=ROOT).data
    for key, value in change.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) and key != "sandbox" else value
    return Policy.from_dict(data)


@pytest.mark.usefixtures("nothing_is_performed")
@pytest.mark.parametrize("change", CHANGES)
def test_every_flip_is_the_oracles(change: str) -> None:
    for run in RUNS:
        policy = _merged(run, CHANGES[change])
        oracle = Oracle(_lines(run), policy)
        wanted = oracle.first()
        found = under(ROOT / run, policy, root=ROOT)
        assert found.undecided is None
        if found.flip is not None:
            assert wanted == (found.flip.kind, found.flip.step, found.flip.position), run
        else:
            assert wanted == (("leaves",) if found.why is not None else None), (run, found)
        assert found.same == oracle.same, run
        total = sum(len(line["policy_decisions"]) for line in _lines(run)[1:-1])
        here = found.flip is not None and found.flip.before is not None
        assert found.same + here + found.behind == total, run


def test_the_changes_reach_every_kind_of_flip() -> None:
    """An oracle that never says anything would agree with code that never does."""
    seen: dict[str, set[str]] = {}
    for change, parts in CHANGES.items():
        for run in RUNS:
            found = Oracle(_lines(run), _merged(run, parts)).first()
            seen.setdefault(change, set()).add(found[0] if found else "same")
    kinds = set().union(*seen.values())
    assert kinds == {"widening", "tightening", "needs approval", "leaves", "same"}
    still = {change for change, found in seen.items() if found == {"same"}}
    # the last two are of things that no recorded run meets
    assert still == {"nothing", "mount added", "shape only"}, still


# ---- a budget that said no and says nothing now ----------------------------------------------------------


def test_a_call_of_an_overdrawing_reply_that_is_let_through_is_a_widening() -> None:
    run = "runs/policy_gates/pg3_loop_budget_tokens"
    flip = under(ROOT / run, _merged(run, {"loop_budget": {"max_tokens": 90_000}}), root=ROOT).flip
    assert flip is not None and (flip.kind, flip.step, flip.position) == ("widening", 2, "d0")
    assert flip.before is not None and flip.before["rule_id"] == "loop_budget"
    assert flip.after is not None and flip.after["decision"] == "allow"


def test_a_refused_step_that_is_let_through_is_a_widening(tmp_path: Path) -> None:
    project = copy_inputs(tmp_path / "project", ["policy_gates/pg3_loop_budget_tokens"])
    from tachograph.evidence.recording.record import record_run
    from tachograph.evidence.tasks.task import build, load_task

    # the calls of a reply that overdraws are executed, and the next step is refused
    replaced(project / SHIPPED, "overdraft: deny", "overdraft: allow")
    task = project / "tasks/policy_gates/pg3_loop_budget_tokens.yaml"
    task.write_text(task.read_text(encoding="utf-8").split("expected:")[0], encoding="utf-8")
    run = project / "runs/policy_gates/pg3_loop_budget_tokens"
    agent, setting = build(load_task(task, root=project))
    record_run(agent, setting, run)
    data = {**agent.policy.data, "loop_budget": {**agent.policy.data["loop_budget"], "max_tokens": 90_000}}
    flip = under(run, Policy.from_dict(data), root=project).flip
    assert flip is not None and (flip.kind, flip.position, flip.after) == ("widening", "d", None)
    assert flip.before is not None and flip.before["rule_id"] == "loop_budget"


def test_a_result_that_was_too_big_and_fits_now_is_a_widening(tmp_path: Path) -> None:
    """The record does not hold the result, and the run must not be followed without it."""
    project = copy_inputs(tmp_path / "project", ["canonical/v1"])
    task = project / "tasks/canonical/v1.yaml"
    text = task.read_text(encoding="utf-8")
    replaced(project / SHIPPED, "max_result_bytes: 1000000", "max_result_bytes: 700")
    from tachograph.evidence.recording.record import record_run
    from tachograph.evidence.tasks.task import build, load_task

    task.write_text(text.split("expected:")[0], encoding="utf-8")
    agent, setting = build(load_task(task, root=project))
    record_run(agent, setting, project / "runs/canonical/v1")
    entries = [e for line in _state(project / "runs/canonical/v1")[1:-1] for e in line["policy_decisions"]]
    assert entries[-1]["position"].endswith(".r") and entries[-1]["decision"] == "deny"
    replaced(project / SHIPPED, "max_result_bytes: 700", "max_result_bytes: 1000000")
    found = under(project / "runs/canonical/v1", Policy.load(project / SHIPPED, root=project), root=project)
    assert found.flip is not None and found.flip.kind == "widening"
    assert found.flip.position == entries[-1]["position"] and found.flip.tool is not None


def _state(run: Path) -> list[Line]:
    return [json.loads(text) for text in (run / "state.jsonl").read_text("utf-8").split("\n")[:-1]]


# ---- what cannot be told ---------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", FEW)


def _old_and_new(project: Path, **sections: Any) -> tuple[Policy, Policy]:
    data = yaml.safe_load((project / SHIPPED).read_text(encoding="utf-8"))
    return Policy.load(project / SHIPPED, root=project), Policy.from_dict({**data, **sections})


@pytest.mark.usefixtures("nothing_is_performed")
@pytest.mark.parametrize("run", RUNS)
def test_under_its_own_policy_every_run_goes_as_recorded(run: str) -> None:
    old = _merged(run, {})
    found = against(ROOT / run, old, _merged(run, {"url_allowlist": []}), root=ROOT)
    assert found.undecided is None
    same = against(ROOT / run, old, old, root=ROOT)
    assert same.is_same and same.behind == 0


def test_a_run_that_the_old_policy_decides_otherwise_tells_nothing(project: Path) -> None:
    old, new = _old_and_new(project, url_allowlist=[])
    found = against(project / "runs/canonical/v1", new, old, root=project)
    assert found.flip is None and found.same == 0 and found.behind == 4
    assert found.undecided is not None
    assert found.undecided.startswith(
        "it does not go as recorded under the old policy either: step 2 d0: allow"
    )


def test_another_rule_for_the_same_denial_is_not_as_recorded(project: Path) -> None:
    run = project / "runs/policy_gates/pg5_arg_schema"
    old, _ = _old_and_new(project)
    data = yaml.safe_load((project / SHIPPED).read_text(encoding="utf-8"))
    data["tool_registry"]["allowed"] = ["write"]
    other = Policy.from_dict(data)
    assert "arg_schema -> deny tool_registry" in str(against(run, other, old, root=project).undecided)
    # under the new policy it only ends in another way: the decision is a denial in both
    found = against(run, old, other, root=project)
    assert (
        found.undecided is None and found.flip is None and str(found.why).startswith("it would have ended as")
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"maxLength": MAX_URL,', '"maxLength": 99,', "description or schemas moved"),
        ("IDEMPOTENT = True", "IDEMPOTENT = False", "idempotent moved"),
    ],
)
def test_a_tool_that_moved_tells_nothing(project: Path, old: str, new: str, said: str) -> None:
    before, after = _old_and_new(project, url_allowlist=[])
    assert against(project / "runs/canonical/v1", before, after, root=project).undecided is None
    replaced(project / "tools/fetch.py", old, new)
    found = against(project / "runs/canonical/v1", before, after, root=project)
    assert (
        found.undecided is not None
        and found.undecided.startswith("tools/fetch.py: ")
        and said in found.undecided
    )
    assert (found.same, found.flip, found.behind) == (0, None, 4)
    assert under(project / "runs/canonical/v1", after, root=project).undecided == found.undecided


def test_what_a_tool_does_itself_is_not_asked_for(project: Path) -> None:
    before, after = _old_and_new(project, url_allowlist=[])
    with (project / "tools/fetch.py").open("a", encoding="utf-8") as file:
        file.write("\n# another digest\n")
    found = against(project / "runs/canonical/v1", before, after, root=project)
    assert found.flip is not None and found.flip.kind == "tightening"


def test_task_and_documents_are_not_needed(project: Path) -> None:
    """A record answers by itself: what it was made from may have moved."""
    before, after = _old_and_new(project, sandbox={"mounts": {"sandbox": "write"}})
    shutil.rmtree(project / "data")
    replaced(project / "tasks/canonical/v1.yaml", "What must", "What may")
    found = against(project / "runs/canonical/v1", before, after, root=project)
    assert found.flip is not None and (found.flip.kind, found.flip.tool) == ("tightening", "read")


def test_a_record_that_does_not_hold_is_untold(project: Path) -> None:
    old, new = _old_and_new(project, url_allowlist=[])
    edit_lines(project / "runs/canonical/v1", lambda lines: lines[1].update(failure_mode="x"))
    assert against(project / "runs/canonical/v1", old, new, root=project).undecided is not None
    edit_lines(project / "runs/canonical/v1", lambda lines: lines[1].pop("stamps"), chain=True)
    found = against(project / "runs/canonical/v1", old, new, root=project)
    assert "lines of an unknown shape" in str(found.undecided)
    with pytest.raises(RecordError, match="unknown shape"):
        under(project / "runs/canonical/v1", new, root=project)


def test_tools_from_code_are_untold(tmp_path: Path) -> None:
    from tachograph import Agent, LLMOutput

    agent = Agent(
        Script([LLMOutput(final_answer="x")]), [tool(), tool("echo")], Policy.from_dict(policy_data())
    )
    record(agent, "What now?", tmp_path / "run", clock=VirtualClock())
    policy = Policy.from_dict(policy_data())
    found = against(tmp_path / "run", policy, policy, root=tmp_path)
    assert "was made in code" in str(found.undecided)


def test_a_run_with_tools_from_code_does_not_stop_the_others(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tachograph import Agent, LLMOutput

    tools = [tool(), tool("echo")]
    agent = Agent(Script([LLMOutput(final_answer="x")]), tools, Policy.from_dict(policy_data()))
    record(agent, "What now?", tmp_path / "code", clock=VirtualClock())
    words = ("replay", "--policy", SHIPPED, str(tmp_path / "code"))
    code, out = tachograph(project, capsys, monkeypatch, *words, "runs/canonical/v1")
    skipped, same, last = out.splitlines()
    assert code == 0
    assert skipped.startswith("skip  ") and "was made in code" in skipped
    assert same.startswith("same  runs/canonical/v1")
    assert "0 of 1 run would have gone another way" in last and last.endswith("; 1 skipped")
    code, out = tachograph(project, capsys, monkeypatch, *words, "runs/canonical/v1", "--json")
    assert [(item["skipped"], item["untold"] is not None) for item in json.loads(out)] == [
        (True, True),
        (False, False),
    ]
    assert command_line.main(list(words)) == 2
    assert "was made in code" in capsys.readouterr().err


def test_the_line_before_is_one_of_the_old_policy(project: Path) -> None:
    """The old policy has the same rules elsewhere in its file, and they have the same names there."""
    text = (project / SHIPPED).read_text(encoding="utf-8")
    (project / SHIPPED).write_text("# one more line\n" + text, encoding="utf-8")
    old, new = _old_and_new(project, url_allowlist=[])
    flip = against(project / "runs/canonical/v1", old, new, root=project).flip
    assert (
        flip is not None
        and flip.before is not None
        and (flip.before["at"] == "policy/v1.yaml#/url_allowlist/https:~1~1corpus.test~1")
    )


def test_a_person_who_was_being_asked_when_the_run_was_stopped(project: Path) -> None:
    """The ledger says deny there: nobody allowed it. The gate had said escalate."""
    run = project / "runs/canonical/v1"

    def stop(lines: list[Line]) -> None:
        step, end = lines[1], lines[-1]
        del lines[2:-1]
        entry = step["policy_decisions"][0]
        entry.update(decision="deny", rule_id="approval", facts={"timeout_s": 60})
        at = step["stamps"]["d0"]
        step["stamps"] = {"m.1": step["stamps"]["m.1"], "d0": at, "h0": [at[1] + 1, at[1] + 2]}
        result = step["tool_results"][0]
        result.update(status="not_reached", attempts=[], result=None)
        step.update(stopped="cancelled", failure_mode="cancelled")
        end.update(terminal_reason="cancelled", failure_mode="cancelled", final_answer=None, lines=3)

    edit_lines(run, stop, chain=True)
    old, new = _old_and_new(project)
    data = {**new.data, "approval": {"required_for": ["search"], "timeout_s": 60}}
    asks = Policy.from_dict(data)
    assert under(run, asks, root=project).is_same
    flip = under(run, old, root=project).flip
    assert flip is not None and flip.kind == "widening"
