"""What a hook answered, in words: for reports and the terminal."""

from __future__ import annotations

from ....runtime.core.lines import Line
from ....runtime.formats import canonical_json


def said_by_hook(entry: Line) -> str:
    """Return what a hook answered, as its entry in a step has it."""
    if "fault" in entry:
        return f"raised {entry['fault']['exception']}"
    if "answer" not in entry:
        return f"no JSON value: {entry['invalid']}"
    return "nothing" if entry["answer"] is None else canonical_json.encode(entry["answer"])
