"""Add messages, arguments and results to spans; move a trace to another time.

`trace.json` holds no text of people, models or tools. Where a person asks for it, it comes from the ledger:
what entered the run, secrets already taken out. Names are those that the OpenTelemetry GenAI conventions have
for content (`gen_ai.input.messages` and so on, all of them opt-in there) and OpenInference's `input.value` and
`output.value`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from ..runtime.core.lines import Line
from ..runtime.formats import canonical_json
from ..runtime.journal.requests import (
    arguments_text,
    hook_message,
    notice_message,
    reply_message,
    told_message,
    tool_message,
)
from ..runtime.models.types import History, Message
from ..runtime.setup.opening import Opening
from .spans import Span, Value, span_id_of, trace_id_of

CONTENT_CHARS: Final = 50_000  # of one attribute
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"


def with_content(lines: Sequence[Line], spans: Sequence[Span]) -> list[Span]:
    """Return the spans of a whole ledger with messages, arguments and results added."""
    added = _Content(lines).attributes
    return [span._replace(attributes={**span.attributes, **added.get(span.span_id, {})}) for span in spans]


def moved(spans: Sequence[Span], end_ns: int) -> list[Span]:
    """Return the trace as if it ended at `end_ns`: another trace, whose root names the recorded one.

    Its ids follow from the recorded trace and the time alone. With the recorded ids a receiver would hold two
    traces in one.
    """
    shift = end_ns - max(span.end_ns for span in spans)
    recorded = spans[0].trace_id
    trace_id = hashlib.sha256(f"{recorded}/moved/{end_ns}".encode()).hexdigest()[:32]
    ids = {span.span_id: span_id_of(trace_id, span.span_id) for span in spans}
    shifted = []
    for span in spans:
        extra: dict[str, Value] = (
            {}
            if span.parent_id
            else {"agent.recorded.trace_id": recorded, "agent.recorded.moved_by_ns": shift}
        )
        shifted.append(
            span._replace(
                trace_id=trace_id,
                span_id=ids[span.span_id],
                parent_id=ids[span.parent_id] if span.parent_id else None,
                start_ns=span.start_ns + shift,
                end_ns=span.end_ns + shift,
                attributes={**span.attributes, **extra},
            )
        )
    return shifted


class _Content:
    """`attributes` by span id. The messages of a run are made again, as the loop made them."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.attributes: dict[str, dict[str, Value]] = {}
        self._trace_id = trace_id_of(lines[0]["run_id"])
        self._history = History()
        self._parts: list[dict[str, Any]] = []  # the same messages as the conventions write them
        self._instructions = Opening.of_line(lines[0]).instructions
        for message in lines[0].get("history", ()):
            self._add(message)
        self._add({"role": "user", "content": lines[0]["question"]})
        for line in lines[1:-1]:
            self._step(line)
        answer = lines[-1]["final_answer"]
        ending = f"no answer: {lines[-1]['terminal_reason']}"
        self._put("run", _values(lines[0]["question"], ending if answer is None else answer))

    def _put(self, path: str, attributes: dict[str, Value]) -> None:
        self.attributes[span_id_of(self._trace_id, path)] = attributes

    def _step(self, line: Line) -> None:
        path = f"s{line['step_index']}"
        if line["llm_attempts"]:
            self._model(line, f"{path}/m")
        calls = {call["id"]: call for call in line["intended_tool_calls"]}
        numbers = {result["id"]: number for number, result in enumerate(line["tool_results"])}
        for decision in line["policy_decisions"]:
            number = numbers.get(decision["id"])
            self._put(f"{path}/{_place(decision, number)}", _decided(decision, calls.get(decision["id"])))
        for number, result in enumerate(line["tool_results"]):
            self._tool(f"{path}/t{number}", calls[result["id"]], result)
        for told in (told_message(line), hook_message(line)):
            if told is not None:
                self._add(told)

    def _model(self, line: Line, path: str) -> None:
        if "notice" in line:
            self._add(notice_message(line))
        extra: dict[str, Value] = {}
        if self._instructions is not None:
            said = [{"type": "text", "content": _cut(self._instructions)}]
            extra["gen_ai.system_instructions"] = canonical_json.encode(said)
        # messages that the ledger does not vouch for are not sent
        if self._history.digest == line["llm_input"]["digest"]:
            left_out, kept = _last(self._parts)
            extra["gen_ai.input.messages"] = canonical_json.encode(kept)
            if left_out:
                extra["agent.llm.messages_left_out"] = left_out
        message = reply_message(line)
        if message is not None:
            self._add(message)
            reply = {**self._parts[-1], "finish_reason": line["llm_output"]["finish_reason"] or "stop"}
            extra["gen_ai.output.messages"] = canonical_json.encode([reply])
        self._put(path, extra)

    def _tool(self, path: str, call: Line, result: Line) -> None:
        message = tool_message(result)
        if message is not None:
            self._add(message)
        extra: dict[str, Value] = {"gen_ai.tool.call.arguments": _cut(arguments_text(call))}
        if result["result"] is not None:
            extra["gen_ai.tool.call.result"] = _cut(canonical_json.encode(result["result"]))
        self._put(
            path, {**extra, "input.value": extra["gen_ai.tool.call.arguments"], "input.mime_type": _JSON}
        )

    def _add(self, message: Message) -> None:
        self._history.add(message)
        parts: list[dict[str, Any]] = []
        if message["role"] == "tool":
            parts.append(
                {
                    "type": "tool_call_response",
                    "id": message["tool_call_id"],
                    "response": _cut(message["content"]),
                }
            )
        elif message["content"]:
            parts.append({"type": "text", "content": _cut(message["content"])})
        for call in message.get("tool_calls", ()):
            parts.append(
                {
                    "type": "tool_call",
                    "id": call["id"],
                    "name": call["name"],
                    "arguments": _cut(call["arguments"]),
                }
            )
        self._parts.append({"role": message["role"], "parts": parts})


def _place(decision: Line, number: int | None) -> str:
    """Return the structural path of a decision's span below its step, as `spans` has it."""
    position: str = decision["position"]
    if decision["phase"] != "execution":
        return position
    if position.startswith("d"):
        return f"t{number}/r"
    attempt, _, rest = position.partition(".")[2].partition(".")
    return f"t{number}/{attempt}/{rest}"


def _decided(decision: Line, call: Line | None) -> dict[str, Value]:
    proposed = None if call is None else f"{call['name']} {arguments_text(call)}"
    outcome = f"{decision['decision']}, {decision['rule_id']}: {decision['reason']} ({decision['at']})"
    return _values(proposed, outcome)


def _values(request: str | None, answer: str | None) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in (("input", request), ("output", answer)):
        if text is not None:
            values |= {f"{name}.value": _cut(text), f"{name}.mime_type": _TEXT}
    return values


def _cut(text: str) -> str:
    left = len(text) - CONTENT_CHARS
    return text if left <= 0 else f"{text[:CONTENT_CHARS]}… ({left} characters left out)"


def _last(messages: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    """Return how many messages do not fit one attribute, and the first with the latest that do."""
    kept: list[dict[str, Any]] = []
    room = CONTENT_CHARS
    for message in reversed(messages[1:]):
        room -= len(canonical_json.encode(message))
        if room < 0:
            break
        kept.append(message)
    return len(messages) - 1 - len(kept), [messages[0], *reversed(kept)]
