"""`trace.json`: the tree of spans of each kind of run, and what holds for the spans of any log."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.log.events import Event
from tachograph.runtime.log.values import ModelName, Reach, Touch
from tachograph.tracing.otlp_json import trace_json
from tachograph.tracing.spans import Span, spans_of
from tachograph.tracing.viewers import for_viewers
from tests.logs import BEGAN, Log, call
from tests.smoke.test_traces import attributes_of, read

TOLD = (
    "agent.step_index agent.failure_mode agent.policy.phase agent.policy.decision agent.policy.rule_id "
    "agent.tool.status agent.retry.attempt agent.retry.outcome agent.retry.backoff_ms error.type"
).split()


def tree(spans: list[Span], parent: str = "", depth: int = 0) -> list[str]:
    """Return the spans below one as lines, each with the values that say what happened."""
    lines = []
    for span in spans:
        if span.parent_id == parent:
            values = [str(span.attributes[key]) for key in TOLD if key in span.attributes]
            lines += ["  " * depth + " ".join([span.name, *values]), *tree(spans, span.span_id, depth + 1)]
    return lines


def asked(*names: str, **head: Any) -> Log:
    return Log(**head).replied(*map(call, names))


URL = Reach("https://bad.test/")
RUNS: dict[str, tuple[list[Event], str]] = {
    "denied call, and one that is not reached": (
        asked("probe", "other").decided("c0.d", "deny", "url_allowlist")
        .stepped().ended("policy_denial_terminal"),
        """
        agent_step 1
          llm_call
          policy_check proposal deny url_allowlist
        """,
    ),
    "refused step": (
        Log().decided("d", "deny", "loop_budget").stepped().ended("loop_budget"),
        """
        agent_step 1
          policy_check step deny loop_budget
        """,
    ),
    "recovery": (
        asked("probe").decided("c0.d").failed("c0.i1").waited("c0.i1.w").returned("c0.i2")
        .stepped("tool_call_failure").answered(),
        """
        agent_step 1 tool_call_failure
          llm_call
          policy_check proposal allow tool_registry
          tool_call ok
            retry_attempt 1 transient_failure 5 ConnectionError
            retry_attempt 2 success 0
        agent_step 2
          llm_call
        """,
    ),
    "retries used up": (
        asked("probe").decided("c0.d").failed("c0.i1").waited("c0.i1.w")
        .failed("c0.i2", "TimeoutError", "timeout").gave_up("retry_exhaustion"),
        """
        agent_step 1 retry_exhaustion retry_exhaustion
          llm_call
          policy_check proposal allow tool_registry
          tool_call failed TimeoutError
            retry_attempt 1 transient_failure 5 ConnectionError
            retry_attempt 2 exhausted 0 TimeoutError
        """,
    ),
    "exception": (
        asked("probe").decided("c0.d").failed("c0.i1", "KeyError", "other").gave_up("catalogued_unhandled"),
        """
        agent_step 1 catalogued_unhandled catalogued_unhandled
          llm_call
          policy_check proposal allow tool_registry
          tool_call failed KeyError
            retry_attempt 1 failed 0 KeyError
        """,
    ),
    "result of no usable shape": (
        asked("probe").decided("c0.d").failed("c0.i1", "list", "invalid", place="no object")
        .gave_up("tool_output_invalid"),
        """
        agent_step 1 tool_output_invalid tool_output_invalid
          llm_call
          policy_check proposal allow tool_registry
          tool_call failed tool_output_invalid
            retry_attempt 1 failed 0 invalid_output
        """,
    ),
    "late denials: of the second fact, and of a result": (
        asked("probe", "other")
        .decided("c0.d").failed("c0.i1", "PermissionError", "other", met=[Touch("a"), URL])
        .decided("c0.i1.d2", "deny", "url_allowlist")
        .decided("c1.d").returned("c1.i1", [URL]).decided("c1.i1.d2", "deny", "loop_budget")
        .stepped().ended("loop_budget"),
        """
        agent_step 1
          llm_call
          policy_check proposal allow tool_registry
          policy_check proposal allow tool_registry
          tool_call denied
            retry_attempt 1 denied 0
              policy_check execution deny url_allowlist
          tool_call denied
            retry_attempt 1 denied 0
            policy_check execution deny loop_budget
        """,
    ),
    "stopped in an attempt": (
        asked("probe").decided("c0.d").stopped("c0.i1").gave_up("cancelled", "cancelled"),
        """
        agent_step 1 cancelled
          llm_call
          policy_check proposal allow tool_registry
          tool_call cancelled
            retry_attempt 1 cancelled 0
        """,
    ),
    "stopped in a wait": (
        asked("probe").decided("c0.d").failed("c0.i1").stopped("c0.i1.w", 3_000_000)
        .gave_up("cancelled", "cancelled"),
        """
        agent_step 1 cancelled
          llm_call
          policy_check proposal allow tool_registry
          tool_call cancelled
            retry_attempt 1 transient_failure 3 ConnectionError
        """,
    ),
    "call stopped before anything": (
        asked("probe").stopped("c0", 0).gave_up("cancelled", "cancelled"),
        """
        agent_step 1 cancelled
          llm_call
        """,
    ),
    "model asked twice": (
        Log().failed("m1", "TransientModelError").waited("m1.w").replied(attempt=2, answer="a")
        .stepped().ended(answer="a"),
        """
        agent_step 1
          llm_call
            retry_attempt 1 transient_failure 5 TransientModelError
            retry_attempt 2 success 0
        """,
    ),
    "model that cannot be asked": (
        Log().failed("m1", "ModelError", "other").gave_up("llm_failure"),
        """
        agent_step 1 llm_failure llm_failure
          llm_call llm_failure
        """,
    ),
    "side by side": (
        asked("probe", "probe").decided("c0.d").decided("c1.d").returned("c1.i1").returned("c0.i1")
        .stepped().answered(),
        """
        agent_step 1
          llm_call
          policy_check proposal allow tool_registry
          policy_check proposal allow tool_registry
          tool_call ok
            retry_attempt 1 success 0
          tool_call ok
            retry_attempt 1 success 0
        agent_step 2
          llm_call
        """,
    ),
}  # fmt: skip


def check(spans: list[Span], run_id: str) -> None:
    """What holds for the spans of any log."""
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    assert [span.name for span in spans if not span.parent_id] == ["agent_run"] == [spans[-1].name]
    for number, span in enumerate(spans):
        assert span.start_ns < span.end_ns
        assert span.attributes["agent.run_id"] == run_id
        assert span.attributes.get("error.type", "") == span.error_type
        if span.parent_id:
            parent = by_id[span.parent_id]
            assert parent.start_ns <= span.start_ns and span.end_ns <= parent.end_ns
            assert parent.name == "agent_run" or spans.index(parent) < number


def read_back(spans: list[Span]) -> None:
    """Read the file with the official types."""
    text = trace_json(spans)
    assert text.count(b"\n") == len(spans) + 2
    for span, source in zip(read(text), spans, strict=True):
        assert (span.trace_id.hex(), span.span_id.hex()) == (source.trace_id, source.span_id)
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        assert span.parent_span_id.hex() == source.parent_id
        assert (span.name, span.kind) == (source.name, source.kind)
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (source.start_ns, source.end_ns)
        assert span.status.code == (2 if source.error_type else 0)
        assert attributes_of(span) == source.attributes


@pytest.mark.parametrize("name", RUNS)
def test_the_tree_of_each_run(name: str) -> None:
    events, expected = RUNS[name]
    spans = spans_of(events)
    root, *others = tree(spans)
    assert root.split()[0] == "agent_run"
    assert others == indent(dedent(expected).strip(), "  ").splitlines()
    check(spans, "kind-name-s7")
    read_back(spans)


def test_what_spans_say() -> None:
    """Names, attributes and times that other programs rely on."""
    log = asked("probe", model=ModelName("maker", "model-1")).decided("c0.d", place="policy/v1.yaml#/x")
    spans = spans_of(log.returned("c0.i1").stepped().answered())
    step, model, policy, tool, attempt, *_, root = spans
    assert [span.kind for span in spans] == [1, 3, 1, 1, 1, 1, 3, 1]
    of_model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "maker",
        "gen_ai.request.model": "model-1",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 4,
        "agent.llm.execution_path": "live",
    }
    of_policy = {
        "agent.policy.at": "policy/v1.yaml#/x",
        "agent.policy.version": "0123456789ab",
        "agent.tool_name": "probe",
        "agent.tool_call_id": "tc_1_0",
    }
    of_tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "probe",
        "gen_ai.tool.call.id": "tc_1_0",
        "agent.tool_name": "probe",
    }
    of_root = {
        "gen_ai.operation.name": "invoke_agent",
        "agent.terminal_reason": "final_answer",
        "agent.policy.version": "0123456789ab",
    }
    for span, attributes in [(model, of_model), (policy, of_policy), (tool, of_tool), (root, of_root)]:
        assert span.attributes.items() >= attributes.items()
    all_spans = (step, model, policy, tool, attempt, root)
    times = [(span.start_ns - BEGAN, span.end_ns - BEGAN) for span in all_spans]
    assert times == [(0, 220), (0, 200), (200, 201), (200, 220), (200, 220), (0, 420)]


def test_a_wait_that_was_stopped_belongs_to_its_call() -> None:
    tool = next(span for span in spans_of(RUNS["stopped in a wait"][0]) if span.name == "tool_call")
    assert tool.end_ns - tool.start_ns == 3_000_020


def test_a_span_above_several_denials_tells_of_the_last() -> None:
    spans = spans_of(RUNS["late denials: of the second fact, and of a result"][0])
    held = trace_json(spans)
    told = [(span.name, span.attributes.get("tachograph.rule")) for span in for_viewers(spans)]
    late, last = "url_allowlist", "loop_budget"
    first = [("tool_call", late), ("retry_attempt", late), ("policy_check", late)]
    second = [("tool_call", last), ("retry_attempt", None), ("policy_check", last)]
    assert [(name, rule) for name, rule in told if rule or name == "retry_attempt"] == [
        ("agent_step", last), *first, *second, ("agent_run", last)
    ]  # fmt: skip
    assert trace_json(spans) == held


def test_an_added_span_moves_no_other() -> None:
    def ids(events: list[Event]) -> set[str]:
        return {span.span_id for span in spans_of(events)}

    less = ids(asked("probe").decided("c0.d").returned("c0.i1").stepped().answered())
    more = ids(RUNS["recovery"][0])
    assert less < more and len(more - less) == 1
    other = Log(run_id="another").answered()
    assert not ids(other) & ids(Log().answered())
    assert spans_of(other)[0].trace_id != spans_of(Log().answered())[0].trace_id


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Logs as the loop writes them: any number of calls, each denied, stopped or attempted some times."""
    log = Log()
    for _ in range(draw(st.integers(0, 3))):
        calls = draw(st.lists(st.text(max_size=9), min_size=1, max_size=3))
        log.replied(*map(call, calls))
        for n in range(draw(st.integers(0, len(calls)))):
            log.decided(f"c{n}.d", draw(st.sampled_from(["allow", "deny"])))
            if log.events[-1].decision == "deny":  # type: ignore[attr-defined]
                continue
            failures = draw(st.integers(0, 2))
            for attempt in range(1, failures + 1):
                log.failed(f"c{n}.i{attempt}").waited(f"c{n}.i{attempt}.w")
            last = f"c{n}.i{failures + 1}"
            end = draw(st.sampled_from(["returned", "failed", "stopped", "fact", "result"]))
            if end in ("returned", "failed", "stopped"):
                getattr(log, end)(last)
            else:
                log.returned(last, [URL, URL]).decided(f"{last}.d{2 if end == 'fact' else 3}", "deny")
        log.stepped()
    return log.answered() if draw(st.booleans()) else log.decided("d", "deny").stepped().ended("loop_budget")


@settings(max_examples=60, deadline=None)
@given(logs())
def test_any_log_has_a_whole_tree(events: list[Event]) -> None:
    spans = spans_of(events)
    check(spans, "kind-name-s7")
    read_back(spans)
