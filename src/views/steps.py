"""What the templates say about a step that takes more than one value: facts about the model, attempts, errors."""

from __future__ import annotations

from ..pages.wording import count, duration, json_text
from ..runtime.core.lines import Line
from ..runtime.core.outcome_codec import pairs_from_dict
from .model import Step


def model_facts(step: Step) -> list[str]:
    """Return what is known about the model's reply: messages, tokens, finish reason, time."""
    line = step.line
    output, usage, request = line["llm_output"], line["usage"], line["llm_input"]
    facts = []
    if request is not None:
        facts.append(f"asked with {count(request['messages'], 'message')}")
    if output is not None:
        guess = " (estimated)" if usage["estimated"] else ""
        facts.append(f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out{guess}")
        if output["finish_reason"]:
            facts.append(f"finished with {output['finish_reason']}")
    if step.pieces:
        facts.append(f"{duration(step.end - step.begin)} from {duration(step.begin)}")
    return facts


def touched(attempt: Line) -> list[str]:
    """Return what an attempt wrote, read and asked the gate for while it ran, one line each."""
    lines = [f"wrote {path}" for path, _ in attempt.get("writes", ())]
    lines += [f"read {path}" for path, _ in pairs_from_dict(attempt, "reads")]
    return lines + [f"asked {json_text(check)}" for check in attempt.get("checks", ())]


def error_words(error: Line) -> str:
    """Return an error of a step that is not an exception, on one line."""
    words = ", ".join(f"{key} {error[key]}" for key in sorted(error) if key != "position")
    return f"at {error['position']}: {words}"
