"""Every `trace.json` below `runs/`, read with the official types: its tree, its ids, the attributes readers need."""

from __future__ import annotations

import base64
import json
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
    "policy_check": {f"agent.policy.{name}" for name in ("decision", "rule_id", "version", "phase")},
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


def test_every_trace() -> None:
    files = sorted(ROOT.glob("runs/*/*/trace.json"))
    assert files, "runs/ holds no trace"
    traces = set()
    for file in files:
        spans = read(file.read_bytes())
        by_id = {span.span_id: span for span in spans}
        assert len(by_id) == len(spans), file
        assert [span.name for span in spans if not span.parent_span_id] == ["agent_run"], file
        for span in spans:
            parent, has = by_id.get(span.parent_span_id), attributes_of(span)
            assert (parent.name if parent else span.parent_span_id.hex()) in PARENTS[span.name], file
            assert has.keys() >= ATTRIBUTES[span.name] | {"agent.run_id"}, file
            assert (len(span.trace_id), len(span.span_id)) == (16, 8), file
            begun, ended, whole = span.start_time_unix_nano, span.end_time_unix_nano, parent or span
            assert whole.start_time_unix_nano <= begun < ended <= whole.end_time_unix_nano, file
            assert has.get("agent.retry.outcome", "success") in OUTCOMES, file
        traces |= {span.trace_id for span in spans}
    assert len(traces) == len(files)  # two runs share no trace
