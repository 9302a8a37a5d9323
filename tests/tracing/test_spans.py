"""Ledger lines become spans: ids by position, attributes by kind, errors where something failed."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.fail.errors import TransientModelError
from tachograph.tracing.spans import CLIENT, INTERNAL, Projector, Span, span_id_of, spans_of, trace_id_of
from tests.support import Ran, answer, ask, failing, perform, policy_data, probe, tool


@pytest.fixture(scope="module")
def eventful() -> Ran:
    """Retries of model and tool, a person, a denial, a failure."""
    return perform(
        [
            TransientModelError(),
            ask(probe(n=1), probe("echo"), usage={"input_tokens": 3, "output_tokens": 4}),
            ask(probe("nope")),
            ask(probe("echo", n=1)),
        ],
        [tool(run=failing(ConnectionError())), tool("echo", failing(then={"said": "x"}))],
        policy_data(on_deny="inform", approval={"required_for": ["probe"], "timeout_s": 1}),
        approve=lambda asked: True,
    )


def test_ids_come_from_position(eventful: Ran) -> None:
    trace = trace_id_of("test-run")
    by_id = {span.span_id: span.name for span in eventful.spans}
    wanted = {
        "run": "agent_run",
        "s1": "agent_step",
        "s1/m": "llm_call",
        "s1/m/2": "retry_attempt",
        "s1/d0": "policy_check",
        "s1/t0": "tool_call",
        "s1/t0/2": "retry_attempt",
        "s1/t1/1": "retry_attempt",
        "s2/d0": "policy_check",
    }
    assert {path: by_id.get(span_id_of(trace, path)) for path in wanted} == wanted


def test_an_added_span_moves_no_other() -> None:
    def ids(*errors: Exception) -> set[str]:
        done = perform([ask(probe(), probe("echo")), answer()], [tool(run=failing(*errors))])
        return {span.span_id for span in done.spans}

    calm, bumpy = ids(), ids(ConnectionError(), ConnectionError())
    assert calm < bumpy and len(bumpy - calm) == 2


def test_attributes_by_kind(eventful: Ran) -> None:
    first = {name: eventful.named(name)[0].attributes for name in ("llm_call", "policy_check", "tool_call")}
    assert first["llm_call"]["gen_ai.operation.name"] == "chat"
    assert first["llm_call"]["gen_ai.usage.input_tokens"] == 3
    assert first["llm_call"]["gen_ai.usage.output_tokens"] == 4
    assert first["policy_check"]["agent.policy.rule_id"] == "approval"
    assert first["policy_check"]["agent.tool_name"] == "probe"
    assert first["tool_call"]["gen_ai.operation.name"] == "execute_tool"
    assert first["tool_call"]["gen_ai.tool.name"] == "probe"
    versions = {span.attributes["agent.policy.version"] for span in eventful.named("policy_check")}
    assert versions == {eventful.lines[0]["policy"]["version"]}
    (root,) = eventful.named("agent_run")
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["agent.terminal_reason"] == eventful.result.ending


def test_a_stub_is_internal_and_a_live_model_a_client(eventful: Ran) -> None:
    assert {span.kind for span in eventful.spans} == {INTERNAL}
    live = perform(lambda asked: answer())
    assert {span.name: span.kind for span in live.spans} == {
        "agent_run": INTERNAL,
        "agent_step": INTERNAL,
        "llm_call": CLIENT,
    }


def test_waits_lie_between_attempts_and_say_how_long(eventful: Ran) -> None:
    (call,) = [s for s in eventful.named("tool_call") if s.attributes["gen_ai.tool.name"] == "probe"]
    one, two = [s for s in eventful.named("retry_attempt") if s.parent_id == call.span_id]
    assert (one.attributes["agent.retry.attempt"], two.attributes["agent.retry.attempt"]) == (1, 2)
    wait = one.attributes["agent.retry.backoff_ms"]
    assert (two.start_ns - one.end_ns) // 1_000_000 == wait and two.attributes["agent.retry.backoff_ms"] == 0


def _failed(spans: list[Span]) -> dict[str, str | None]:
    return {span.name: span.error_type for span in spans if span.error_type is not None}


@pytest.mark.parametrize(
    ("done", "failed"),
    [
        (perform([answer()]), {}),
        (perform([ask(probe("nope"))]), {}),
        (perform([ask(probe(n=99))]), {"agent_run": "schema_mismatch"}),
        (
            perform([ask(probe())], [tool(run=failing(KeyError()))]),
            {
                "agent_run": "catalogued_unhandled",
                "agent_step": "catalogued_unhandled",
                "tool_call": "KeyError",
                "retry_attempt": "KeyError",
            },
        ),
        (
            perform([ValueError()]),
            {"agent_run": "llm_failure", "agent_step": "llm_failure", "llm_call": "llm_failure"},
        ),
        (
            perform([ask(probe()), answer()], [tool(run=failing(ConnectionError()))]),
            {"retry_attempt": "ConnectionError"},
        ),
        (perform([ask(probe())], [tool(run=failing(KeyboardInterrupt()))]), {}),
    ],
    ids=["answer", "denial", "schema", "unhandled", "model", "recovered", "interrupted"],
)
def test_an_error_stands_where_something_failed(done: Ran, failed: dict[str, Any]) -> None:
    assert _failed(done.spans) == failed
    for span in done.spans:
        assert span.attributes.get("error.type") == span.error_type


def test_step_by_step_or_as_a_whole_the_spans_are_the_same(eventful: Ran) -> None:
    projector = Projector(eventful.lines[0])
    spans = [span for line in eventful.steps for span in projector.step(line)]
    assert [*spans, projector.end(eventful.end)] == spans_of(eventful.lines) == eventful.spans
