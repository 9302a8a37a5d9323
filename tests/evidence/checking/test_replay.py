"""Replay: the same bytes from the record alone; whatever differs is named at its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, LLMInput, LLMOutput, Policy, ToolCall, VirtualClock, record
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replay, replayed
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.queries.flips import NEEDS_APPROVAL, TIGHTENING, WIDENING
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.recorded import RecordedModel, is_live
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import RecordError, ReplayError
from tachograph.runtime.driver.live_executor import LiveExecutor
from tests.evidence.project import FEW, all_runs, copy_inputs, edit_lines, live_task
from tests.evidence.project import tachograph as command
from tests.support import ROOT, policy_data, tool

RUNS = [path.relative_to(ROOT).as_posix() for path in all_runs()]


@pytest.fixture
def nothing_is_performed(monkeypatch: pytest.MonkeyPatch) -> None:
    def performs(*_: object) -> None:
        raise AssertionError("a replay performed something")

    monkeypatch.setattr(LiveExecutor, "perform", performs)
    monkeypatch.setattr(RecordedModel, "__call__", performs)


@pytest.mark.usefixtures("nothing_is_performed")
@pytest.mark.parametrize("run", RUNS)
def test_every_recorded_run_replays(run: str) -> None:
    assert replayed(ROOT / run, root=ROOT).lines == []


# ---- a live run ------------------------------------------------------------------------------------------


class Live:
    """A model that no script stands behind."""

    def __init__(self, *answers: LLMOutput) -> None:
        self.answers = list(answers)

    def __call__(self, asked: LLMInput) -> LLMOutput:
        return self.answers.pop(0)


def _call(name: str, **arguments: Any) -> LLMOutput:
    usage = {"input_tokens": 11, "output_tokens": 7}
    return LLMOutput(text="so", tool_calls=[ToolCall(name, arguments)], usage=usage, model="m-1")


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A project with a run of a live model under `runs/live/`."""
    project = copy_inputs(tmp_path / "project", FEW)
    model = Live(
        _call("read", path="corpus/op-a4.md"),
        _call("write", path="sandbox/note.md", content="noted"),
        _call("fetch", url="https://corpus.test/op-a1.md"),
        LLMOutput(final_answer="done", raw={"signed": "x"}),
    )
    agent, setting = build(load_task(project / live_task(project), root=project), model=model)
    record_run(agent, setting, project / "runs/live/v1")
    return project


def test_a_live_run_is_its_own_cassette(live: Path) -> None:
    folder = live / "runs/live/v1"
    assert is_live(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["model"]["execution_path"] == "live" and manifest["environment"]["durability"] == "effect"
    assert replayed(folder, root=live).lines == []
    assert examine(folder, root=live).lines == []


def test_a_check_of_a_live_run_lets_tools_work_again(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = LiveExecutor.perform

    def perform(self: LiveExecutor, effect: Any, stamps: Any) -> Any:
        seen.append(effect.call.name)
        return real(self, effect, stamps)

    monkeypatch.setattr(LiveExecutor, "perform", perform)
    assert examine(live / "runs/live/v1", root=live).ok
    assert seen == ["read", "write", "fetch"]  # the host is mapped to a folder


def test_what_reached_the_network_comes_from_the_record(live: Path) -> None:
    task = live / "tasks/live/v1.yaml"
    text = task.read_text()
    task.write_text(text.replace("hosts:\n  corpus.test:\n    folder: data/corpus/v1\n", ""))
    found = examine(live / "runs/live/v1", root=live)
    # the fetch is not made again, so the run goes through; what moved is the task
    assert found.drift is not None and found.drift.kind in ("DIGEST-ONLY", "SHAPE"), found.lines
    assert list(found.moved) == ["tasks/live/v1.yaml"]


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "data/corpus/v1/op-a4.md",
            "20 minutes",
            "21 minutes",
            "input differs at step 2: the messages differ",
        ),
        ("tasks/live/v1.yaml", "What must", "What may", "input differs at step 1: the messages differ"),
    ],
    ids=["corpus", "question"],
)
def test_one_changed_byte_is_named_at_its_place(live: Path, file: str, old: str, new: str, said: str) -> None:
    path = live / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    found = examine(live / "runs/live/v1", root=live)
    assert found.lines[0] == said, found.lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: lines[1]["llm_output"].update(text="no"),
            "input differs at step 2: the messages differ",
        ),
        (
            lambda lines: lines[1]["tool_results"][0]["result"].update(text="other"),
            "input differs at step 2: the messages differ",
        ),
        (lambda lines: lines[2]["intended_tool_calls"][0].update(name="erase"), "was not asked for"),
        (lambda lines: lines[2]["tool_results"][0].update(attempts=[]), "is not in the record"),
    ],
    ids=["reply", "result", "tool", "attempt"],
)
def test_a_changed_record_does_not_replay(live: Path, change: Any, said: str) -> None:
    edit_lines(live / "runs/live/v1", change, chain=True)
    found = replayed(live / "runs/live/v1", root=live)
    assert any(said in line for line in found.lines), found.lines


def test_an_unused_recorded_outcome_is_an_error(live: Path) -> None:
    def stop_early(lines: list[dict[str, Any]]) -> None:
        lines[3]["llm_output"].update(final_answer="early", text=None)
        lines[3]["intended_tool_calls"] = []

    edit_lines(live / "runs/live/v1", stop_early, chain=True)
    found = replayed(live / "runs/live/v1", root=live)
    assert any("was not asked for" in line for line in found.lines), found.lines


def test_a_record_of_another_schema_is_refused_with_a_way_forward(live: Path) -> None:
    edit_lines(live / "runs/live/v1", lambda lines: lines[0].update(schema="ledger/v0"), chain=True)
    found = replayed(live / "runs/live/v1", root=live)
    assert "this version reads 'ledger/v2' and 'ledger/v1'" in found.lines[0] and "; " in found.lines[0]


# ---- from code -------------------------------------------------------------------------------------------


def _agent(*answers: LLMOutput, policy: dict[str, Any] | None = None) -> Agent:
    return Agent(Live(*answers), [tool(), tool("echo")], Policy.from_dict(policy or policy_data()))


def test_replay_from_code(tmp_path: Path) -> None:
    out = tmp_path / "run"
    agent = _agent(_call("probe", n=1), LLMOutput(final_answer="done"))
    record(agent, "What now?", out, clock=VirtualClock())
    assert tachograph.replay(_agent(), out).answer == "done"
    with pytest.raises(ReplayError, match="was not asked for"):
        replay(
            _agent(policy=policy_data(arg_schema_enforcement="strict", loop_budget={"max_tool_calls": 0})),
            out,
        )
    with pytest.raises(
        ReplayError, match="input differs at step 1: the tools that the model is offered differ"
    ):
        replay(_agent(policy=policy_data(on_deny="inform", tool_registry={"allowed": ["echo"]})), out)
    with pytest.raises(RecordError):
        replay(_agent(), tmp_path / "nowhere")
    found = replayed(out, root=ROOT)
    assert "was made in code" in found.lines[0] and "tachograph.replay" in found.lines[0]


# ---- another policy --------------------------------------------------------------------------------------

FORBIDS = {"tool_registry": {"allowed": ["search", "read", "write", "summarize"]}, "url_allowlist": []}


def _policy(tmp_path: Path, overlay: str) -> Policy:
    (tmp_path / "other.yaml").write_text(overlay)
    return Policy.load(ROOT / "policy/v1.yaml", [tmp_path / "other.yaml"], root=ROOT)


@pytest.mark.usefixtures("nothing_is_performed")
def test_another_policy_is_followed_to_the_frontier(tmp_path: Path) -> None:
    tight = _policy(tmp_path, "tool_registry: {allowed: [search, read, write, summarize]}\n")
    found = under(ROOT / "runs/canonical/v1", tight, root=ROOT)
    assert found.flip is not None and found.flip.kind == TIGHTENING
    assert (found.same, found.flip.step, found.flip.tool, found.behind) == (1, 2, "fetch", 2)
    assert found.flip.after is not None and found.flip.after["rule_id"] == "tool_registry"
    # two calls of one step would be denied: only the first is told
    few = _policy(tmp_path, "tool_registry: {allowed: [search, summarize]}\non_deny: inform\n")
    flip = under(ROOT / "runs/policy_gates/one_of_several_denied", few, root=ROOT).flip
    assert flip is not None and (flip.step, flip.position, flip.tool) == (1, "d0", "read")
    asks = _policy(tmp_path, "approval: {required_for: [read]}\n")
    flip = under(ROOT / "runs/canonical/v1", asks, root=ROOT).flip
    assert flip is not None and (flip.kind, flip.step) == (NEEDS_APPROVAL, 3)
    wide = _policy(tmp_path, 'url_allowlist: ["https://corpus.test/", "https://news.example/"]\n')
    flip = under(ROOT / "runs/policy_gates/pg1_off_allowlist_url", wide, root=ROOT).flip
    assert flip is not None and flip.kind == WIDENING
    flip = under(ROOT / "runs/policy_gates/pg1_redirect_off_allowlist", wide, root=ROOT).flip
    assert flip is not None and flip.kind == WIDENING and ".c" in flip.position


@pytest.mark.usefixtures("nothing_is_performed")
@pytest.mark.parametrize("run", RUNS)
def test_under_its_own_policy_nothing_flips(run: str) -> None:
    line = json.loads((ROOT / run / "state.jsonl").read_bytes().split(b"\n", 1)[0])
    files = [ROOT / item["path"] for item in line["policy"]["files"]]
    if files:
        policy = Policy.load(files[0], files[1:], root=ROOT)
    else:
        policy = build(load_task(ROOT / line["task"]["path"], root=ROOT))[0].policy
    found = under(ROOT / run, policy, root=ROOT)
    assert policy.version == line["policy"]["version"] and found.undecided is None
    assert (found.flip, found.why, found.behind) == (None, None, 0)


def test_replay_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_inputs(tmp_path / "project", FEW)
    code, out = command(project, capsys, monkeypatch, "replay")
    assert code == 0 and out == "replay: 3 runs answered from the record alone, all files identical\n"
    (project / "other.yaml").write_text("url_allowlist: []\n")
    words = ("replay", "--policy", "policy/v1.yaml", "--overlay", "other.yaml")
    code, out = command(project, capsys, monkeypatch, *words)
    assert code == 1 and "tightening  runs/canonical/v1\n  step 2 d0 fetch: allow url_allowlist" in out
    code, out = command(project, capsys, monkeypatch, *words, "--json")
    assert code == 1 and json.loads(out)[0]["frontier"]["kind"] == "tightening"
    shutil.rmtree(project / "tools")
    code, out = command(project, capsys, monkeypatch, "replay", "runs/canonical/v1", "--json")
    assert json.loads(out)["runs"] == 1


def test_a_record_of_another_shape_is_told(live: Path) -> None:
    def change(lines: list[dict[str, Any]]) -> None:
        lines[0]["model"]["name"] = False

    edit_lines(live / "runs/live/v1", change, chain=True)
    for found in (replayed(live / "runs/live/v1", root=live), examine(live / "runs/live/v1", root=live)):
        assert not found.ok and any("of an unknown shape" in line for line in found.lines)
