"""The page of queries: what it says over files is performed, and what viewers accept is what a push holds."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tachograph.evidence.sending.push import trace_of
from tachograph.tracing.export import sdk_spans
from tachograph.tracing.otlp_json import document
from tachograph.tracing.push import Sender
from tests.evidence.project import all_runs
from tests.support import ROOT
from tests.tracing import scripted

PAGE = (ROOT / "docs/queries.md").read_text(encoding="utf-8")
TEMPO_ATTRIBUTE_BYTES = 2048  # its default of max_attribute_bytes
TEMPO_TRACE_BYTES = 5_000_000  # its default of max_bytes_per_trace
RUNS = [run for run in all_runs() if (run / "trace.json").is_file()]


def blocks(kind: str) -> list[str]:
    """The blocks of the page in one language."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S)


def ledger(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "state.jsonl").read_bytes().splitlines()]


def denials() -> Counter[str]:
    """Denials by rule as the ledgers have them."""
    decided = (
        decision for run in RUNS for line in ledger(run) for decision in line.get("policy_decisions", ())
    )
    return Counter(decision["rule_id"] for decision in decided if decision["decision"] == "deny")


def test_the_queries_in_sql_give_what_the_ledgers_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page: dict[str, Any] = {}
    (load,) = blocks("python")
    exec(compile(load, "docs/queries.md", "exec"), page)
    by_rule, repeated, tokens = (page["base"].execute(query).fetchall() for query in blocks("sql"))
    assert dict(by_rule) == denials() and len(by_rule) > 5

    wanted = {}
    sums: Counter[str] = Counter()
    for run in RUNS:
        retried = 0
        for line in ledger(run):
            attempts = [attempt for result in line.get("tool_results", ()) for attempt in result["attempts"]]
            attempts += line.get("llm_attempts", ())
            retried += sum(attempt["attempt"] > 1 for attempt in attempts)
            if line["type"] == "end":
                sums.update(input=line["totals"]["input_tokens"], output=line["totals"]["output_tokens"])
        if retried:
            wanted[run.relative_to(ROOT).as_posix()] = retried
    assert dict(repeated) == wanted and wanted
    assert sum(row[2] or 0 for row in tokens) == sums["input"]
    assert sum(row[3] or 0 for row in tokens) == sums["output"]
    assert all(agent for agent, *_ in tokens) and len({model for _, model, *_ in tokens}) > 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_queries_with_jq_give_what_the_ledgers_hold() -> None:
    files = [str(run / "state.jsonl") for run in RUNS]
    by_rule, totals = (
        subprocess.run(
            ["jq", "-c", query, *files], capture_output=True, text=True, timeout=60, check=True
        ).stdout.splitlines()
        for query in blocks("jq")
    )
    assert Counter(json.loads(rule) for rule in by_rule) == denials()
    assert [json.loads(line)["retries"] for line in totals] == [
        line["totals"]["retries"] for run in RUNS for line in ledger(run) if line["type"] == "end"
    ]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.relative_to(ROOT / "runs").as_posix())
def test_tempo_can_query_each_value_and_cuts_none(run: Path) -> None:
    spans = trace_of(run, ROOT).spans
    assert len(document(spans)) < TEMPO_TRACE_BYTES
    for span in sdk_spans(spans):
        for key, value in (span.attributes or {}).items():
            parts = value if isinstance(value, list | tuple) else (value,)
            assert len({type(part) for part in parts}) <= 1, key
            assert all(isinstance(part, str | bool | int | float) for part in parts), key
            assert len(key.encode()) <= TEMPO_ATTRIBUTE_BYTES
            assert all(len(str(part).encode()) <= TEMPO_ATTRIBUTE_BYTES for part in parts), key


def test_attributes_that_the_page_names_are_in_traces() -> None:
    named = set(re.findall(r"\b(?:agent|gen_ai)\.[a-z_.]*[a-z]", PAGE)) - {"gen_ai.usage"}
    there = {key for run in RUNS for span in trace_of(run, ROOT).spans for key in span.attributes}
    assert len(named) > 8 and named <= there


def test_langfuse_gets_protobuf_at_its_address_with_keys_as_basic_authentication() -> None:
    keys = "Basic " + base64.b64encode(b"pk-lf-public:sk-lf-private").decode()
    trace = trace_of(ROOT / "runs/canonical/v1", ROOT, content=True)
    with scripted.Http() as collector:
        url = f"{collector.endpoint}/api/public/otel/v1/traces"
        receipt = Sender(url, headers=[("Authorization", keys)]).send(trace.spans)
    assert receipt.spans == len(trace.spans) and receipt.rejected == 0
    assert collector.paths == ["/api/public/otel/v1/traces"]
    assert collector.kinds == ["application/x-protobuf"]
    assert collector.headers[0]["authorization"] == keys
    asked = ExportTraceServiceRequest.FromString(collector.bodies[0])
    spans = [
        {item.key: item.value for item in span.attributes}
        for span in asked.resource_spans[0].scope_spans[0].spans
    ]
    models = [span for span in spans if "gen_ai.request.model" in span]
    assert models
    for model in models:
        assert model["gen_ai.request.model"].string_value and model["gen_ai.response.model"].string_value
        assert model["gen_ai.usage.input_tokens"].int_value > 0
        assert model["gen_ai.usage.output_tokens"].int_value > 0
    (root,) = (span for span in spans if "gen_ai.agent.name" in span)
    assert "What must a driver do" in root["input.value"].string_value
    assert "Ollerbeck within 20 minutes" in root["output.value"].string_value
