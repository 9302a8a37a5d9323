"""What was said, added to the spans of every recorded run; and traces moved in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph.runtime.formats import canonical_json
from tachograph.tracing import content
from tachograph.tracing.content import moved, with_content
from tachograph.tracing.spans import Span, spans_of

ROOT = Path(__file__).resolve().parents[2]
RUNS = sorted(path.parent for path in (ROOT / "runs").glob("*/*/state.jsonl"))
NAMES = [f"{path.parent.name}/{path.name}" for path in RUNS]


def _lines(run: Path) -> list:
    return [json.loads(text) for text in (run / "state.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_every_run_says_what_was_said_and_nothing_else_changes(run: Path) -> None:
    lines = _lines(run)
    plain = spans_of(lines)
    full = with_content(lines, plain)
    for before, after in zip(plain, full, strict=True):
        assert after._replace(attributes=before.attributes) == before
        assert before.attributes.items() <= after.attributes.items()
    by_name: dict[str, list[Span]] = {}
    for span in full:
        by_name.setdefault(span.name, []).append(span)
    root = by_name["agent_run"][0].attributes
    assert root["input.value"] == lines[0]["question"]
    answer = lines[-1]["final_answer"]
    assert root["output.value"] == (answer or f"no answer: {lines[-1]['terminal_reason']}")
    decisions = [decision for line in lines[1:-1] for decision in line["policy_decisions"]]
    said = [str(span.attributes["output.value"]) for span in by_name.get("policy_check", ())]
    assert sorted(said) == sorted(
        f"{d['decision']}, {d['rule_id']}: {d['reason']} ({d['at']})" for d in decisions
    )
    _models(lines, by_name.get("llm_call", []))
    _tools(lines, by_name.get("tool_call", []))


def _models(lines: list, spans: list[Span]) -> None:
    asked = [line for line in lines[1:-1] if line["llm_attempts"]]
    for line, span in zip(asked, spans, strict=True):
        # the messages are there only where their digest is the one in the ledger
        messages = json.loads(str(span.attributes["gen_ai.input.messages"]))
        assert len(messages) == line["llm_input"]["messages"]
        earlier = lines[0].get("history", [])
        assert messages[len(earlier)]["parts"][0]["content"] == lines[0]["question"]
        for message, given in zip(messages, earlier, strict=False):
            assert message["role"] == given["role"]
        told = lines[0]["request_parts"].get("instructions", [])
        assert [
            part["content"]
            for part in json.loads(str(span.attributes.get("gen_ai.system_instructions", "[]")))
        ] == [entry["text"] for entry in told]
        if line["llm_output"] is not None:
            (reply,) = json.loads(str(span.attributes["gen_ai.output.messages"]))
            calls = [part for part in reply["parts"] if part["type"] == "tool_call"]
            assert [part["id"] for part in calls] == [call["id"] for call in line["intended_tool_calls"]]


def _tools(lines: list, spans: list[Span]) -> None:
    calls = {call["id"]: call for line in lines[1:-1] for call in line["intended_tool_calls"]}
    results = [r for line in lines[1:-1] for r in line["tool_results"] if r["attempts"]]
    for result, span in zip(results, spans, strict=True):
        given = json.loads(str(span.attributes["gen_ai.tool.call.arguments"]))
        assert given == calls[result["id"]]["arguments"]
        if result["result"] is not None:
            assert span.attributes["gen_ai.tool.call.result"] == canonical_json.encode(result["result"])


def test_messages_that_the_digest_does_not_vouch_for_are_left_out() -> None:
    lines = _lines(ROOT / "runs/canonical/v1")
    lines[1]["tool_results"][0]["result"]["hits"][0]["title"] = "something else"
    first, *later = [span for span in with_content(lines, spans_of(lines)) if span.name == "llm_call"]
    assert "gen_ai.input.messages" in first.attributes
    assert all("gen_ai.input.messages" not in span.attributes for span in later)


def test_what_is_too_long_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "CONTENT_CHARS", 300)
    lines = _lines(ROOT / "runs/canonical/v1")
    for span in with_content(lines, spans_of(lines)):
        for key, value in span.attributes.items():
            assert not isinstance(value, str) or key.startswith("gen_ai.output") or len(value) < 700
        if span.name == "llm_call" and "agent.llm.messages_left_out" in span.attributes:
            messages = json.loads(str(span.attributes["gen_ai.input.messages"]))
            left_out = int(str(span.attributes["agent.llm.messages_left_out"]))
            assert messages[0]["parts"][0]["content"] == lines[0]["question"]
            assert left_out > 0
    texts = [str(v) for s in with_content(lines, spans_of(lines)) for v in s.attributes.values()]
    assert any("characters left out" in text for text in texts)


@pytest.mark.parametrize("run", RUNS[:4], ids=NAMES[:4])
def test_a_moved_trace_is_the_same_trace_elsewhere(run: Path) -> None:
    plain = spans_of(_lines(run))
    end = 1_900_000_000_000_000_123
    there = moved(plain, end)
    assert there == moved(plain, end)
    assert max(span.end_ns for span in there) == end
    ids = {before.span_id: after.span_id for before, after in zip(plain, there, strict=True)}
    assert len(set(ids.values())) == len(plain) and not set(ids.values()) & set(ids)
    assert {span.trace_id for span in there}.isdisjoint({span.trace_id for span in plain})
    shift = there[0].start_ns - plain[0].start_ns
    for before, after in zip(plain, there, strict=True):
        assert (after.start_ns - before.start_ns, after.end_ns - before.end_ns) == (shift, shift)
        assert after.parent_id == (ids[before.parent_id] if before.parent_id else None)
        more = {} if before.parent_id else {
            "agent.recorded.trace_id": before.trace_id, "agent.recorded.moved_by_ns": shift
        }  # fmt: skip
        assert after.attributes == {**before.attributes, **more}
    assert {s.trace_id for s in moved(plain, end + 1)} != {s.trace_id for s in there}
