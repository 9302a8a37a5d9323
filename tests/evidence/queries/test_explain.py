"""What `explain` and `policy decide` say of a refusal: its smallest edit, and what else that would open."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tachograph import LLMOutput, Policy, ToolCall
from tachograph.cli import main as cli
from tachograph.evidence.queries.explain import as_data, as_text, explain_run
from tachograph.review.queries.witness import Witness
from tachograph.review.remedy.edits import Edit
from tachograph.review.remedy.explain_denial import (
    DenialExplanation,
    OpenedAccess,
    add_explanations,
    text_lines,
)
from tachograph.review.remedy.minimal_edit import MinimalEdit
from tachograph.runtime.formats.invisible_chars import HIDDEN
from tests.evidence.project import all_runs, copy_inputs, replaced, tachograph
from tests.review.runs import run_of
from tests.support import ROOT
from tests.tables.output_texts import TEXTS

RUN = "runs/policy_gates/inform_adapts"
RUNS = [run for run in all_runs() if b'"decision":"deny"' in (run / "state.jsonl").read_bytes()]


def plain(text: str, _colour: str) -> str:
    return text


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", ("policy_gates/inform_adapts", "policy_gates/pg3_loop_budget"))


@pytest.mark.parametrize("folder", RUNS, ids=[f"{run.parent.name}/{run.name}" for run in RUNS])
def test_each_refusal_of_a_recorded_run_has_an_edit_or_a_reason(folder: Path) -> None:
    found = explain_run(folder, root=ROOT)
    add_explanations(found, None, plain)
    for step in as_data(found, None)["steps"]:
        for decision in step["decisions"]:
            why = decision["why"]
            assert (why is None) == (decision["recorded"]["decision"] == "allow")
            if why is None:
                continue
            assert bool(why["edits"]) != bool(why["why_not"])
            assert all(item["at"] and item["text"].startswith(item["at"]) for item in why["edits"])
            assert bool(why["opens"]) == bool(why["edits"])


def test_explain_says_of_a_refusal_what_would_allow_it_and_what_that_opens(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = tachograph(project, capsys, monkeypatch, "explain", RUN)
    url = "https://news.example/recorder-failures"
    assert code == 0 and out.count("to allow it: ") == 1
    assert f'    to allow it: policy/v1.yaml:6: under url_allowlist add "{url}"\n' in out
    assert f"    that opens: fetch may reach {url}\n" in out
    assert f'        such as: fetch {{"url": "{url}/x"}}: deny -> allow\n' in out
    code, out = tachograph(project, capsys, monkeypatch, "explain", RUN, "--step", "2")
    assert "to allow it" not in out
    code, out = tachograph(
        project, capsys, monkeypatch, "explain", "runs/policy_gates/pg3_loop_budget", "--json"
    )
    (decision,) = json.loads(out)["steps"][3]["decisions"]
    (edit,) = decision["why"]["edits"]
    at = "policy/overlays/three_iterations.yaml:3"
    assert edit == {
        "pointer": "/loop_budget/max_iterations",
        "op": "replace",
        "value": 4,
        "at": at,
        "text": f"{at}: loop_budget.max_iterations: 4",
    }


def test_counters_are_those_of_the_moment_in_mid_run(tmp_path: Path) -> None:
    """The third call fails on what two have used, whatever came after."""
    policy = Policy.from_dict(
        {
            **Policy.load(ROOT / "policy/v1.yaml").data,
            "on_deny": "inform",
            "cycle_detection": {"max_repeats": 2},
        }
    )
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "v1.yaml").write_text(json.dumps(policy.data))
    policy = Policy.load(tmp_path / "policy" / "v1.yaml", root=tmp_path)
    call = ToolCall("summarize", {"text": "One. Two."})
    other = ToolCall("fetch", {"url": "https://o.test/"})
    folder = run_of(tmp_path, [LLMOutput(tool_calls=[call, other, call, call])], policy=policy)
    (tmp_path / "data/corpus").mkdir(parents=True)
    (tmp_path / "data/corpus/v1").symlink_to(ROOT / "data/corpus/v1")
    found = explain_run(folder, root=tmp_path)
    add_explanations(found, None, plain)
    edits = {place: [item["text"] for item in data["edits"]] for place, (data, _) in found.more.items()}
    assert edits == {
        (1, "d1"): ['policy/v1.yaml:1: under url_allowlist add "https://o.test/"'],
        (1, "d3"): ["policy/v1.yaml:1: cycle_detection.max_repeats: 3"],
    }


def test_a_policy_that_allows_it_by_now_needs_no_edit(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(
        project / "policy/v1.yaml", '  - "https://corpus.test/"\n', "  - corpus.test\n  - news.example\n"
    )
    _, out = tachograph(project, capsys, monkeypatch, "explain", RUN)
    assert "    the policy allows it today\n" in out


def decide(
    call: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str
) -> str:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(call)))
    code = cli.main(["policy", "decide", "-", *more])
    out, err = capsys.readouterr()
    assert code == int("to allow it" in out or "no edit of" in out or '"why": {' in out) and err == ""
    return out


def test_a_call_from_a_file_is_answered_alike(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = {"tool": "fetch", "arguments": {"url": "https://o.test/a"}, "used": {"tool_calls": 40}}
    out = decide(call, capsys, monkeypatch)
    assert 'to allow it: policy/v1.yaml:6: under url_allowlist add "https://o.test/a"\n' in out
    assert "        and: policy/v1.yaml:17: loop_budget.max_tool_calls: 41\n" in out
    data = json.loads(decide(call, capsys, monkeypatch, "--json"))["why"]
    assert [item["op"] for item in data["edits"]] == ["add", "replace"] and data["why_not"] is None
    assert (
        json.loads(decide({"tool": "search", "arguments": {"query": "x"}}, capsys, monkeypatch, "--json"))[
            "why"
        ]
        is None
    )
    overlay = tmp_path / "less.yaml"
    overlay.write_text("tool_registry: {allowed: [read]}\n")
    out = decide(
        {"tool": "search", "arguments": {"query": "x"}}, capsys, monkeypatch, "--overlay", str(overlay)
    )
    assert "add search to tool_registry.allowed" in out  # a tool of the project that the policy leaves out
    out = decide({"tool": "shell", "arguments": {}}, capsys, monkeypatch)
    assert "no edit of the policy allows it: the run has no such tool" in out


HOSTILE = [text for kind in sorted(TEXTS) for text in list(TEXTS[kind]())[::29]]


def test_no_text_of_a_model_acts_on_a_terminal(tmp_path: Path) -> None:
    calls = []
    for text in (text.encode("utf-8", "replace").decode() for text in HOSTILE):
        calls += [ToolCall(text, {"x": text}), ToolCall("fetch", {"url": f"https://evil.test/{text}"})]
        calls.append(ToolCall("summarize", {"text": text, text[:40]: 1}))
        calls.append(ToolCall("write", {"path": f"nowhere/{text}", "content": text}))
    folder = run_of(tmp_path, [LLMOutput(tool_calls=calls[at : at + 40]) for at in range(0, 240, 40)])
    found = explain_run(folder, root=ROOT)
    add_explanations(found, None, plain)
    assert len(found.more) > 100
    text = as_text(found, None, plain)
    assert not HIDDEN.search(text.replace("\n", ""))
    json.dumps(as_data(found, None))
    said = [line for _, lines in found.more.values() for line in lines]
    begins = ("to allow it: ", "        and: ", "       note: ", "that opens: ", "    such as: ", "    unknown: ",
              "no edit of the policy allows it: ", "the policy allows it today")  # fmt: skip
    assert all(line.startswith(begins) for line in said)


def test_lines_of_a_refusal_are_inert_whatever_is_in_them() -> None:
    """Text of a record comes into reasons and witnesses; a record may have been edited."""
    for text in HOSTILE:
        witness = Witness(
            "say", {"text": text}, {}, {"target": text}, None, {"decision": "deny"}, {"decision": "allow"}
        )
        one = Edit("/redact", "add", [], text, text)
        found = [
            DenialExplanation(MinimalEdit(why_not=text)),
            DenialExplanation(
                MinimalEdit((one, one), remark=text), (OpenedAccess("x", text, text, witness),), (text,)
            ),
        ]
        for line in (line for why in found for line in text_lines(why, plain)):
            assert not HIDDEN.search(line), text
