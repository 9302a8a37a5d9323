"""Spans of runs at an OTLP receiver of our own: what `trace.json` holds, and what viewers read beside it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tachograph.tracing import push as pushing
from tests.commands import Capsys, exit_code, output_of
from tests.providers.service import Service, answer
from tests.servers import unused_port
from tests.smoke.test_traces import attributes_of, read

ROOT = Path(__file__).parents[1]
KINDS = {
    "agent_run": "AGENT",
    "agent_step": "CHAIN",
    "llm_call": "LLM",
    "policy_check": "GUARDRAIL",
    "tool_call": "TOOL",
    "retry_attempt": "CHAIN",
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def push(name: str, *words: str, status: int = 200) -> tuple[int, str, list[tuple[dict[str, str], bytes]]]:
    """Push a recorded run to a receiver. Returns the exit code, the address, and headers and body of what came."""
    told = answer(b"no gzip: the status says it all", "Content-Encoding: gzip", status=status)
    with closing(Service(told)) as service:
        code = exit_code("push", name, "--endpoint", f"{service.url}/traces", *words)
    return code, f"{service.url}/traces", [(headers, body) for _, headers, body in service.requests]


def spans_in(body: bytes) -> list[Span]:
    (spans,) = otlp.ExportTraceServiceRequest.FromString(body).resource_spans
    assert [item.key for item in spans.resource.attributes] == ["service.name"]
    return list(spans.scope_spans[0].spans)


def pushed(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the names of the spans of a recorded run, each with its attributes, as they are pushed."""
    code, _, ((_, body),) = push(name)
    assert code == 0
    return [(span.name, attributes_of(span)) for span in spans_in(body)]


@pytest.mark.parametrize(
    "name", ["canonical/v1", "failure_modes/retry_exhaustion", "policy_gates/pg2_sandbox_escape"]
)
def test_a_receiver_gets_what_the_trace_holds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login other password other")
    otel = {"OTEL_ATTRIBUTE_COUNT_LIMIT": "1", "OTEL_SDK_DISABLED": "true"}
    for variable, value in {**otel, "NETRC": f"{tmp_path}/netrc"}.items():
        monkeypatch.setenv(variable, value)
    code, _, ((headers, body),) = push(name, "--header", "authorization=a=b")
    assert (code, headers["authorization"], headers["accept-encoding"]) == (0, "a=b", "identity")
    got = {span.span_id: span for span in spans_in(body)}
    held = read((ROOT / "runs" / name / "trace.json").read_bytes())
    assert len(got) == len(held)
    for span in held:
        other = got[span.span_id]
        for field in "trace_id parent_span_id name kind start_time_unix_nano end_time_unix_nano".split():
            assert getattr(other, field) == getattr(span, field), field
        assert other.status.code == span.status.code
        assert {str(it) for it in span.attributes} <= {str(it) for it in other.attributes}


@pytest.mark.parametrize(
    ("name", "rule", "above"),
    [
        ("policy_gates/pg2_sandbox_escape", "sandbox_path", []),
        ("policy_gates/pg3_loop_budget", "loop_budget", []),
        ("loop/approval_refused", "approval", []),
        ("loop/hooks", "hook", ["tool_call"]),
    ],
)
def test_a_denial_is_told_from_its_own_span_up_to_the_root(name: str, rule: str, above: list[str]) -> None:
    denied = [(span, said) for span, said in pushed(name) if said.get("tachograph.denied") is True]
    assert sorted(span for span, _ in denied) == ["agent_run", "agent_step", "policy_check", *above]
    own = next(said for span, said in denied if span == "policy_check")
    facts = (rule, own["agent.policy.at"], own["agent.policy.reason"])
    words = ("tachograph.rule", "tachograph.place", "tachograph.reason")
    assert {tuple(said[word] for word in words) for _, said in denied} == {facts}


@pytest.mark.parametrize("name", ["canonical/v1", "loop/approval_given"])
def test_nothing_is_told_of_denials_where_none_is(name: str) -> None:
    assert not [key for _, said in pushed(name) for key in said if key.startswith("tachograph.")]


@pytest.mark.parametrize("name", ["canonical/v1", "policy_gates/pg4_forbidden_tool"])
def test_spans_have_the_names_that_viewers_read(name: str) -> None:
    for span, said in pushed(name):
        assert said["openinference.span.kind"] == KINDS[span]
        is_operation = span in ("agent_run", "llm_call", "tool_call")
        assert said.get("gen_ai.conversation.id") == (said["agent.run_id"] if is_operation else None)
        # viewers add up tokens of all spans, and take each name of a tool for a call that was made
        assert ("gen_ai.usage.input_tokens" in said) is (span == "llm_call")
        assert ("gen_ai.tool.name" in said) is (span == "tool_call")


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_receiver_that_takes_nothing_is_told(
    status: int, capsys: Capsys, caplog: pytest.LogCaptureFixture
) -> None:
    code, url, _ = push("canonical/v1", status=status)
    assert code == 1 and not caplog.messages
    said = capsys.readouterr().err
    assert url in said and (status == 302 or str(status) in said)


@pytest.mark.parametrize(("scheme", "word"), [("http", "2 of them refused: too old"), ("https", "SSLError")])
def test_what_the_exporter_only_logs_is_told(
    scheme: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setattr(pushing, "_PATIENCE_S", 1)
    refused = otlp.ExportTracePartialSuccess(rejected_spans=2, error_message="too old\n")
    partly = otlp.ExportTraceServiceResponse(partial_success=refused).SerializeToString()
    with closing(Service(answer(partly))) as service:
        url = service.url.replace("http", scheme)
        told = output_of(capsys, "push", "canonical/v1", "--endpoint", url, code=1).err
    assert word in told and told.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--endpoint", "no address"],
        ["--endpoint", "ftp://127.0.0.1/"],
        *(["--header", it] for it in ("x", "=x", "a b=x", "a=b\nc: d", "a= b", "a=\N{SNOWMAN}")),
        [],
    ],
)
def test_bad_input_is_one_line(words: list[str], capsys: Capsys) -> None:
    more = ["--endpoint", f"http://127.0.0.1:{unused_port()}/"] if words[:1] == ["--header"] else []
    assert len(output_of(capsys, "push", "canonical/v1", *words, *more, code=2).err.splitlines()) == 1
