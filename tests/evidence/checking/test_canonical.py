"""The canonical run: its shape, that it makes nothing up, and that its files follow from its ledger."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.tracing.spans import Span, trace_id_of
from tests.support import CANONICAL, FILES, ROOT, TASK, well_formed

RUN = ROOT / CANONICAL


@pytest.fixture(scope="module")
def lines_and_spans() -> tuple[list[dict[str, Any]], list[Span]]:
    return well_formed((RUN / "state.jsonl").read_bytes())


def test_the_committed_run_is_what_the_task_gives() -> None:
    assert examine(RUN).lines == []


def test_spans_of_the_canonical_run(lines_and_spans: Any) -> None:
    _, spans = lines_and_spans
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.name] = counts.get(span.name, 0) + 1
    assert counts == {
        "agent_run": 1,
        "agent_step": 5,
        "llm_call": 5,
        "policy_check": 4,
        "tool_call": 4,
        "retry_attempt": 4,
    }
    (root,) = [span for span in spans if span.parent_id is None]
    assert root.name == "agent_run" and root.attributes["agent.terminal_reason"] == "final_answer"
    assert {s.attributes.get("agent.policy.decision") for s in spans if s.name == "policy_check"} == {"allow"}
    assert {s.attributes.get("agent.retry.outcome") for s in spans if s.name == "retry_attempt"} == {
        "success"
    }
    assert {s.parent_id for s in spans if s.name == "agent_step"} == {root.span_id}


def test_the_canonical_run_calls_its_tools_and_answers(lines_and_spans: Any) -> None:
    lines, _ = lines_and_spans
    called = [call["name"] for step in lines[1:-1] for call in step["intended_tool_calls"]]
    assert called == ["search", "fetch", "read", "summarize"]
    assert lines[-1]["terminal_reason"] == "final_answer"


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list) else []


def test_every_argument_stands_in_an_earlier_result(lines_and_spans: Any) -> None:
    """A composed argument holds a string of an earlier result; what is left of it is no word of its own."""
    lines, _ = lines_and_spans
    known: list[str] = []
    for step in lines[1:-1]:
        for call, result in zip(step["intended_tool_calls"], step["tool_results"], strict=True):
            for text in _strings(call["arguments"]) if known else []:
                left = text
                for piece in sorted(known, key=len, reverse=True):
                    left = left.replace(piece, "\0")
                assert "\0" in left, text[:80]
                assert left.replace("\0", "") in ("", "\n", "https://corpus.test/.md", "corpus/.md")
            known += _strings(result["result"])


def test_every_sentence_of_the_answer_stands_in_the_fetched_document(lines_and_spans: Any) -> None:
    lines, _ = lines_and_spans
    fetched = " ".join(lines[2]["tool_results"][0]["result"]["text"].split())
    sentences = re.split(r"(?<=[.!?])\s", lines[-1]["final_answer"])
    assert len(sentences) == 3
    assert [sentence for sentence in sentences if sentence not in fetched] == []


def test_trace_ids_differ_between_run_ids() -> None:
    names = ["canonical-v1-s7", "canonical-v1-s8", "canonical-v2-s7", "run-s0-00000000"]
    found = [trace_id_of(name) for name in names]
    assert len(set(found)) == len(names)
    assert all(re.fullmatch("[0-9a-f]{32}", item) and int(item, 16) for item in found)


def test_the_three_other_files_follow_from_the_ledger_alone(tmp_path: Path) -> None:
    recorded = {
        "manifest.json": (RUN / "manifest.json").read_bytes()
    }  # what it says of inputs is its own claim
    made = rebuild((RUN / "state.jsonl").read_bytes(), "state.jsonl", recorded)
    for file in ("trace.json", "run_report.md"):
        assert made[file] == (RUN / file).read_bytes()
    committed = json.loads((RUN / "manifest.json").read_bytes())
    assert made["manifest.json"] == manifests.stable(committed).encode()


@pytest.mark.parametrize("seed", [0, 8, 2**53 - 1])
def test_a_run_of_another_seed_can_be_rebuilt_too(tmp_path: Path, seed: int) -> None:
    task = load_task(ROOT / TASK)
    changed = type(task)(task.root, task.file, task.digest, {**task.data, "seed": seed}, task.document)
    agent, setting = build(changed)
    out = tmp_path / "run"
    record_run(agent, setting, out)
    made = rebuild((out / "state.jsonl").read_bytes(), "state.jsonl")
    well_formed((out / "state.jsonl").read_bytes())
    assert made["trace.json"] == (out / "trace.json").read_bytes()
    assert made["run_report.md"] == (out / "run_report.md").read_bytes()
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert trace_id_of(setting.run_id).encode() in made["trace.json"]


def test_the_wall_clock_stands_in_volatile_keys_only() -> None:
    manifest = json.loads((RUN / "manifest.json").read_bytes())
    assert set(manifests.VOLATILE) < set(manifest)
    stamp = manifest["timestamp"][:10].encode()
    assert not [file for file in FILES[:3] if stamp in (RUN / file).read_bytes()]
