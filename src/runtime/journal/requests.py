"""What the model saw at each step, rebuilt from a ledger: messages, instructions, tools, options.

The messages follow from the lines before a step, and the digest that the step holds says whether they are the ones that
were sent. The other parts stand in `request_parts` where they first appear, and steps point to them by digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ...light_dataclasses import dataclass
from ..core.lines import Line
from ..formats import canonical_json
from ..loop.hooks import sent_back_message
from ..models.failure_messages import NO_WORDS, user_message
from ..models.types import NOTICES, History, Message, Messages

# kind of part -> the key that holds its content in an entry of `request_parts`
CONTENT: Final = {"instructions": "text", "tools": "tools", "options": "options"}


@dataclass(frozen=True, slots=True)
class Request:
    """What the model saw at one step.

    Attributes:
        step: The step's number.
        messages: The messages, as the ledger gives them.
        new: How many of them the step before did not have.
        instructions, tools, options: The other parts; None where the request has none, or the ledger does not hold
            them.
        max_output_tokens: How much the model may say.
        problems: What of the request the ledger does not vouch for, in words; empty where all of it is proved.
    """

    step: int
    messages: Messages
    new: int
    instructions: str | None
    tools: list[Any] | None
    options: dict[str, Any] | None
    max_output_tokens: int
    problems: tuple[str, ...]


def requests_of(lines: Iterable[Line], unasked: list[str] | None = None) -> Iterator[Request]:
    """Yield the request of each step that asked the model, from the lines of a ledger, the run line first.

    `unasked` gets what is wrong with parts that no request follows. Raises KeyError, TypeError, ValueError or
    AttributeError for lines of an unknown shape.
    """
    history = History()
    parts: dict[str, dict[str, Any]] = {kind: {} for kind in CONTENT}
    seen = 0
    problems: list[str] = []  # of the run line and of steps without a request, told with the next request
    for line in lines:
        problems += _take_parts(line, parts)
        if line["type"] == "run":
            for message in opening_messages(line):
                history.add(message)
        if line["type"] != "step" or line["llm_input"] is None:
            continue
        if "notice" in line:
            history.add(notice_message(line))
        entry = line["llm_input"]
        window = history.window()
        if (len(window), history.digest) != (entry["messages"], entry["digest"]):
            problems.append("the lines before it give other messages than the model was asked with")
        found, missing = _parts_of(entry, parts)
        yield Request(
            line["step_index"], window, len(window) - seen, **found,
            max_output_tokens=entry["max_output_tokens"], problems=(*problems, *missing),
        )  # fmt: skip
        seen, problems = len(window), []
        for said in (reply_message(line), *map(tool_message, line["tool_results"]), *_words_after(line)):
            if said is not None:
                history.add(said)
    if unasked is not None:
        unasked += problems


def _take_parts(line: Line, parts: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Add the parts that stand in a line; yield what is wrong with them."""
    held = line.get("request_parts", {})
    pointed = line.get("llm_input") or {}
    for kind, key in CONTENT.items():
        for entry in held.get(kind, ()):
            digest, content = entry["digest"], entry[key]
            if canonical_json.digest(canonical_json.encode(content)) != digest:
                yield f"{kind}: the content is not that of its digest {digest[:12]}"
            elif digest in parts[kind]:
                yield f"{kind}: {digest[:12]} stands in the ledger already"
            elif line["type"] == "step" and pointed.get(kind) != digest:
                yield f"{kind}: {digest[:12]} stands in a step that does not point to it"
            parts[kind][digest] = content
        if len(held.get(kind, ())) > 1:
            yield f"{kind}: a line holds one at most, not {len(held[kind])}"


def _parts_of(entry: Line, parts: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return the contents that a step's `llm_input` points to, and what is missing, in words."""
    found: dict[str, Any] = {}
    missing = []
    for kind in CONTENT:
        digest = entry.get(kind)
        found[kind] = None if digest is None else parts[kind].get(digest)
        if digest is not None and digest not in parts[kind]:
            missing.append(f"{kind}: {str(digest)[:12]} stands nowhere in the ledger before it")
    return found, missing


def conversation_of(opening: Iterable[Message], steps: Iterable[Line]) -> list[Message]:
    """Return all messages of a run, in the form in which a further run takes them as its history.

    However the run ended, each call has a result, and no message is empty: a call of which the model has read nothing
    gets its status for a result.

    Args:
        opening: The messages that the run began with, its question last.
        steps: The lines of its steps.
    """
    out = [message.copy() for message in opening]
    for line in steps:
        if line["llm_input"] is None:
            continue
        if "notice" in line:
            out.append(notice_message(line))
        reply = reply_message(line)
        if reply is None:
            continue
        if "tool_calls" not in reply and not reply["content"].strip():
            reply["content"] = NO_WORDS
        results = {result["id"]: result for result in line["tool_results"]}
        out.append(reply)
        out += (_result_for(call, results.get(call["id"])) for call in line["intended_tool_calls"])
        out += (message for message in _words_after(line) if message is not None)
    return out


def _result_for(call: Line, result: Line | None) -> Message:
    """Return the message with what came of a call, its status where the model has read nothing of it."""
    message = None if result is None else tool_message(result)
    if message is not None:
        return message
    status = "not_reached" if result is None else result["status"]
    text = canonical_json.encode({"error": "no_result", "status": status})
    return {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": text}


# ---- messages ----------------------------------------------------------------------------------------------


def opening_messages(run: Line) -> list[Message]:
    """Return the messages that a run begins with: its history, and its question."""
    return [*run.get("history", ()), {"role": "user", "content": run["question"]}]


def _words_after(step: Line) -> tuple[Message | None, ...]:
    """Return what the model reads in the user's role after a step."""
    return told_message(step), hook_message(step)


def notice_message(step: Line) -> Message:
    """Return the message for the notice of the runtime that a step names."""
    return {"role": "user", "content": NOTICES.get(step["notice"], str(step["notice"]))}


def reply_message(step: Line) -> Message | None:
    """Return the message of the reply in a step; None where there is none."""
    output = step["llm_output"]
    if output is None:
        return None
    message: Message = {
        "role": "assistant",
        "content": output["text"] or output["final_answer"] or "",
    }
    if step["intended_tool_calls"]:
        message["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "arguments": arguments_text(call)}
            for call in step["intended_tool_calls"]
        ]
    elif "told" in step and not message["content"].strip():
        message["content"] = NO_WORDS
    if output["raw"] is not None:
        message["raw"] = output["raw"]
    return message


def told_message(step: Line) -> Message | None:
    """Return the message in which the model reads that its reply could not be used; None where there is none."""
    return user_message(step["told"]) if "told" in step else None


def hook_message(step: Line) -> Message | None:
    """Return the message with which a hook sent the agent back; None where none did."""
    for entry in step.get("hooks", ()):
        answer = entry.get("answer")
        if entry["event"] == "on_stop" and isinstance(answer, dict) and set(answer) == {"send_back"}:
            return sent_back_message(answer["send_back"])
    return None


def tool_message(result: Line) -> Message | None:
    """Return the message in which the model reads what came of a call; None where it reads nothing of it."""
    content = result.get("told", result["result"])
    if content is None:
        return None
    text = canonical_json.encode(content)
    return {"role": "tool", "tool_call_id": result["id"], "name": result["name"], "content": text}


def arguments_text(call: Line) -> str:
    """Return the arguments of a recorded call as the model's next request holds them."""
    if call["arguments"] is None:
        return str(call.get("arguments_text") or "")
    return canonical_json.encode(call["arguments"])
