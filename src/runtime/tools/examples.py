"""Hold the two example calls that a tool brings against its input schema."""

from __future__ import annotations

from .contract import Tool


def problems(tool: Tool) -> list[str]:
    """Return what is wrong with a tool's EXAMPLES, each as a sentence without its subject; none if they are fine."""
    if tool.examples is None:
        return ["has no EXAMPLES, a good and a bad call"]
    out = []
    misfit = tool.input_validator.first_mismatch(dict(tool.examples["good"]))
    if misfit is not None:
        out.append("has a good call in EXAMPLES that its INPUT_SCHEMA refuses")
    if tool.input_validator.accepts(dict(tool.examples["bad"])):
        out.append("has a bad call in EXAMPLES that its INPUT_SCHEMA accepts")
    return out
