"""Every `trace.json` below `runs/`, read with the official types: its tree, its ids, the attributes readers need."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

ROOT = Path(__file__).parents[2]
# what each kind of span has, and under which it may stand
ATTRIBUTES = {
    "agent_run": {"gen_ai.operation.name", "agent.terminal_reason", "agent.policy.version"},
    "agent_step": {"agent.step_index"},
    "llm_call": {"gen_ai.operation.name", "gen_ai.request.model", "agent.llm.execution_path"},
    "policy_check": {
        "agent.policy.decision",
        "agent.policy.rule_id",
        "agent.policy.version",
        "agent.policy.phase",
    },
    "tool_call": {"gen_ai.operation.name", "gen_ai.tool.name", "agent.tool_name"},
    "retry_attempt": {"agent.retry.attempt", "agent.retry.outcome", "agent.retry.backoff_ms"},
}
PARENTS = {
    "agent_run": {"", "tool_call"},
    "agent_step": {"agent_run"},
    "llm_call": {"agent_step"},
    "policy_check": {"agent_step", "tool_call", "retry_attempt"},
    "tool_call": {"agent_step"},
    "retry_attempt": {"llm_call", "tool_call"},
}
OUTCOMES = {"success", "transient_failure", "exhausted", "failed", "denied", "cancelled"}


def read(trace: bytes) -> list[Span]:
    """Return the spans of a `trace.json`; JSON of protobuf has ids in base64 where OTLP has hex."""
    plain = json.loads(trace)
    for span in plain["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
            span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    message = json_format.ParseDict(plain, TracesData())
    return list(message.resource_spans[0].scope_spans[0].spans)


def attributes_of(span: Span) -> dict[str, Any]:
    return {item.key: value_of(item.value) for item in span.attributes}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(value_of(item) for item in value.array_value.values)
    return getattr(value, kind)


def problems(spans: Iterable[Span]) -> list[str]:
    by_id = {span.span_id: span for span in spans}
    found = []
    for span in by_id.values():
        parent = by_id.get(span.parent_span_id)
        has = attributes_of(span)
        if (parent.name if parent else span.parent_span_id.hex()) not in PARENTS[span.name]:
            found.append(f"{span.name} stands under the wrong parent")
        if lacks := (ATTRIBUTES[span.name] | {"agent.run_id"}) - has.keys():
            found.append(f"{span.name} lacks {lacks}")
        if (len(span.trace_id), len(span.span_id)) != (16, 8):
            found.append(f"{span.name} has an id of another length")
        if not span.start_time_unix_nano < span.end_time_unix_nano:
            found.append(f"{span.name} does not last")
        if parent and not (
            parent.start_time_unix_nano <= span.start_time_unix_nano
            and span.end_time_unix_nano <= parent.end_time_unix_nano
        ):
            found.append(f"{span.name} reaches beyond its parent")
        if has.get("agent.retry.outcome", "success") not in OUTCOMES:
            found.append("an attempt has an unknown outcome")
    return found


def test_every_trace() -> None:
    files = sorted(ROOT.glob("runs/*/*/trace.json"))
    assert files, "runs/ holds no trace"
    traces = set()
    for file in files:
        spans = read(file.read_bytes())
        assert len({span.span_id for span in spans}) == len(spans), file
        assert [span.name for span in spans if not span.parent_span_id] == ["agent_run"], file
        assert problems(spans) == [], file
        traces |= {span.trace_id for span in spans}
    assert len(traces) == len(files)  # two runs share no trace


def test_denied_calls_have_no_span_of_a_call() -> None:
    """The missing span is the proof that a call which was denied when it was proposed did not run."""
    denied = 0
    for file in ROOT.glob("runs/policy_gates/*/trace.json"):
        spans = [attributes_of(span) for span in read(file.read_bytes())]
        made = {span.get("gen_ai.tool.call.id") for span in spans}
        for span in spans:
            if span.get("agent.policy.phase") == "proposal" and span["agent.policy.decision"] == "deny":
                denied += 1
                assert span["agent.tool_call_id"] not in made
    assert denied
