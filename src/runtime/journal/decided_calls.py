"""The calls of a recorded step as they were decided last: with the arguments that hooks gave them, if any."""

from __future__ import annotations

from typing import Any

from ..core.lines import Line


def decided_calls(step: Line) -> list[dict[str, Any]]:
    """Return the entries of a step's calls; one whose arguments a hook replaced has the new ones."""
    calls = [dict(call) for call in step["intended_tool_calls"]]
    for entry in step.get("hooks", ()):
        answer = entry.get("answer")
        if entry["event"] != "before_call" or not isinstance(answer, dict) or list(answer) != ["arguments"]:
            continue
        index = int(entry["position"][1:].partition(".")[0])
        if isinstance(answer["arguments"], dict) and index < len(calls):
            calls[index]["arguments"] = answer["arguments"]
    return calls
