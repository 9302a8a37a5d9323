"""Project ledger lines to a span tree. Everything in it follows from the ledger.

    agent_run
      agent_step
        llm_call                 (none in a refused step)
          retry_attempt          only where the model was asked more than once
        policy_check             one for each call that was decided; spans the wait for a person
        tool_call                only after allow
          retry_attempt
            policy_check         a late decision, phase `execution`
          policy_check           a late decision on the result

Ids come from position: the trace id from the run id, a span id from the trace id and the span's structural
path, so that an added span moves no other. Attribute names follow the OpenTelemetry GenAI conventions where
they have one (`gen_ai.*`), OpenInference for the kind that viewers show, and `agent.*` for what is ours.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from ..fail.catalog import BROKEN, Ending
from ..runtime.core.clock import epoch_ns
from ..runtime.core.lines import Line

INTERNAL: Final = 1  # opentelemetry.proto.trace.v1.Span.SpanKind
CLIENT: Final = 3

Value = str | int | bool | list[str]


class Span(NamedTuple):
    """One span. Ids are lower-case hex, times nanoseconds since 1970; `error_type` None leaves status unset."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    error_type: str | None = None


def trace_id_of(run_id: str) -> str:
    """Return 32 hex digits that follow from the run id."""
    return hashlib.sha256(f"tachograph/trace/{run_id}".encode()).hexdigest()[:32]


def span_id_of(trace_id: str, path: str) -> str:
    """Return 16 hex digits for a structural path within a trace."""
    return hashlib.sha256(f"{trace_id}/{path}".encode()).hexdigest()[:16]


class Projector:
    """Projects the lines of one run, in order: `step` for each step line, `end` for the last one."""

    def __init__(self, run_line: Line) -> None:
        self._run = run_line
        self._run_id: str = run_line["run_id"]
        self._policy_version: str = run_line["policy"]["version"]
        self.zero = epoch_ns(run_line["clock"]["start"])
        self._first: int | None = None
        self.trace_id = trace_id_of(self._run_id)
        self._root_id = span_id_of(self.trace_id, "run")

    def begin(self, stamp: int) -> None:
        """Take note of the run's first stamp, where the root span begins; later ones are ignored."""
        if self._first is None:
            self._first = stamp

    def step(self, line: Line) -> list[Span]:
        """Return the spans of a step, the step's own first."""
        stamps = line["stamps"]
        index = line["step_index"]
        begin = min([pair[0] for pair in stamps.values()])
        self.begin(begin)
        step = _Step(self, line, f"s{index}")
        mode = line["failure_mode"]
        attributes: dict[str, Value] = {"agent.step_index": index, "openinference.span.kind": "CHAIN"}
        if mode is not None:
            attributes["agent.failure_mode"] = mode
        step.add(
            "agent_step",
            "",
            self._root_id,
            [begin, max([pair[1] for pair in stamps.values()])],
            attributes,
            error=mode if mode in BROKEN else None,
        )
        step.add_model()
        for decision in line["policy_decisions"]:
            if decision["phase"] != "execution":
                step.add_decision(decision, "")
        for entry in line.get("hooks", ()):
            step.add_hook(entry)
        for number, result in enumerate(line["tool_results"]):
            if result["attempts"]:
                step.add_tool(number, result)
        return step.spans

    def end(self, line: Line) -> Span:
        """Return the root span."""
        task = self._run["task"]
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": self._run["model"]["provider"],
            "gen_ai.agent.name": "tachograph",
            "agent.terminal_reason": line["terminal_reason"],
            "agent.policy.version": self._policy_version,
            "openinference.span.kind": "AGENT",
        }
        if task is not None:
            attributes["agent.task_id"] = task["id"]
        if line["failure_mode"] is not None:
            attributes["agent.failure_mode"] = line["failure_mode"]
        return self._span(
            "agent_run",
            self._root_id,
            None,
            [self._first or 0, line["stamp"]],
            attributes,
            error=line["failure_mode"] if line["terminal_reason"] == Ending.FAILURE else None,
        )

    def _span(
        self,
        name: str,
        span_id: str,
        parent: str | None,
        times: list[int],
        attributes: dict[str, Value],
        kind: int = INTERNAL,
        error: str | None = None,
    ) -> Span:
        attributes["agent.run_id"] = self._run_id
        if error is not None:
            attributes["error.type"] = error
        return Span(
            name,
            self.trace_id,
            span_id,
            parent,
            kind,
            self.zero + times[0],
            self.zero + times[1],
            attributes,
            error,
        )


class _Step:
    """The spans of one step line under way."""

    def __init__(self, projector: Projector, line: Line, path: str) -> None:
        self._projector = projector
        self._line = line
        self._stamps: dict[str, list[int]] = line["stamps"]
        self._path = path
        self._ids: dict[str, str] = {}  # a parent is asked for once by each child
        self.spans: list[Span] = []

    def id(self, path: str) -> str:
        span_id = self._ids.get(path)
        if span_id is None:
            where = f"{self._path}/{path}" if path else self._path
            span_id = self._ids[path] = span_id_of(self._projector.trace_id, where)
        return span_id

    def add(
        self,
        name: str,
        path: str,
        parent: str,
        times: list[int],
        attributes: dict[str, Value],
        *,
        kind: int = INTERNAL,
        error: str | None = None,
    ) -> None:
        self.spans.append(self._projector._span(name, self.id(path), parent, times, attributes, kind, error))

    def add_model(self) -> None:
        attempts = self._line["llm_attempts"]
        if not attempts:
            return
        model, output = self._projector._run["model"], self._line["llm_output"]
        live = model["execution_path"] == "live"
        times = [self._stamps["m.1"][0], self._stamps[f"m.{attempts[-1]['attempt']}"][1]]
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": model["provider"],
            "gen_ai.request.model": model["name"],
            "agent.llm.execution_path": model["execution_path"],
            "openinference.span.kind": "LLM",
        }
        if output is not None:
            usage = self._line["usage"]
            attributes["gen_ai.usage.input_tokens"] = usage["input_tokens"]
            attributes["gen_ai.usage.output_tokens"] = usage["output_tokens"]
            if output["finish_reason"] is not None:
                attributes["gen_ai.response.finish_reasons"] = [output["finish_reason"]]
            if output["model"] is not None:
                attributes["gen_ai.response.model"] = output["model"]
        failed = (
            self._line["failure_mode"]
            if self._line["failure_mode"] in ("llm_failure", "llm_invalid_output")
            else None
        )
        self.add(
            "llm_call", "m", self.id(""), times, attributes, kind=CLIENT if live else INTERNAL, error=failed
        )
        if len(attempts) > 1:
            for attempt in attempts:
                self.add_attempt(attempt, f"m.{attempt['attempt']}", f"m/{attempt['attempt']}", self.id("m"))

    def add_decision(self, decision: Line, parent_path: str, path: str | None = None) -> None:
        position = decision["position"]
        times = list(self._stamps[position])
        asked = "approval" in decision or "." not in position
        waited = self._stamps.get("h" + position[1:].partition(".")[0]) if asked else None
        if waited is not None:
            times[1] = waited[1]
        attributes: dict[str, Value] = {
            "agent.policy.decision": decision["decision"],
            "agent.policy.rule_id": decision["rule_id"],
            "agent.policy.version": self._projector._policy_version,
            "agent.policy.phase": decision["phase"],
            "agent.policy.reason": decision["reason"],
            "agent.policy.at": decision["at"],
            "openinference.span.kind": "GUARDRAIL",
        }
        if decision["id"] is not None:
            attributes["agent.tool_call_id"] = decision["id"]
            attributes["agent.tool_name"] = self._tool_name(decision["id"])
        if "approval" in decision:
            attributes["agent.policy.approval"] = decision["approval"]["answer"]
        self.add("policy_check", path or position, self.id(parent_path), times, attributes)

    def add_hook(self, entry: Line) -> None:
        attributes: dict[str, Value] = {
            "agent.hook.name": entry["hook"],
            "agent.hook.event": entry["event"],
            "openinference.span.kind": "GUARDRAIL",
        }
        error = entry["fault"]["exception"] if "fault" in entry else None
        position = entry["position"]
        self.add("hook", position, self.id(""), self._stamps[position], attributes, error=error)

    def _tool_name(self, call_id: str) -> str:
        names = {call["id"]: str(call["name"]) for call in self._line["intended_tool_calls"]}
        return names[call_id]

    def add_tool(self, number: int, result: Line) -> None:
        attempts = result["attempts"]
        path = f"t{number}"
        times = [self._stamps[f"i{number}.1"][0], self._stamps[f"i{number}.{attempts[-1]['attempt']}"][1]]
        late = [
            d for d in self._line["policy_decisions"] if d["phase"] == "execution" and d["id"] == result["id"]
        ]
        for decision in late:
            times[1] = max(times[1], self._stamps[decision["position"]][1])
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": result["name"],
            "gen_ai.tool.call.id": result["id"],
            "agent.tool_name": result["name"],
            "agent.tool.status": result["status"],
            "openinference.span.kind": "TOOL",
        }
        error = None
        if result["status"] == "failed":
            fault = attempts[-1].get("fault")
            error = fault["exception"] if fault else "tool_output_invalid"
            if fault:
                attributes["agent.tool.exception_class"] = error
        self.add("tool_call", path, self.id(""), times, attributes, error=error)
        for attempt in attempts:
            n = attempt["attempt"]
            self.add_attempt(attempt, f"i{number}.{n}", f"{path}/{n}", self.id(path))
            for decision in late:
                prefix = f"i{number}.{n}."
                if decision["position"].startswith(prefix):
                    self.add_decision(
                        decision, f"{path}/{n}", f"{path}/{n}/{decision['position'][len(prefix) :]}"
                    )
        for decision in late:
            if decision["position"].startswith("d"):
                self.add_decision(decision, path, f"{path}/r")

    def add_attempt(self, attempt: Line, position: str, path: str, parent: str) -> None:
        attributes: dict[str, Value] = {
            "agent.retry.attempt": attempt["attempt"],
            "agent.retry.outcome": attempt["outcome"],
            "agent.retry.backoff_ms": attempt.get("backoff_ms", 0),
        }
        error = None
        if attempt["outcome"] in ("transient_failure", "exhausted", "failed"):
            error = attempt["fault"]["exception"] if "fault" in attempt else "invalid_output"
        self.add("retry_attempt", path, parent, self._stamps[position], attributes, error=error)


def spans_of(lines: list[Line]) -> list[Span]:
    """Return all spans of a whole ledger, in the order of `trace.json`: steps in order, the root last."""
    projector = Projector(lines[0])
    spans: list[Span] = []
    for line in lines[1:-1]:
        spans.extend(projector.step(line))
    spans.append(projector.end(lines[-1]))
    return spans
