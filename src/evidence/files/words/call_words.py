"""Calls of a recorded step as a person reads them, the same wherever they are printed."""

from __future__ import annotations

import json
from typing import Any

from ....runtime.core.lines import Line


def arguments_of(call: Line) -> str:
    """Return the arguments of a call of a ledger as compact JSON; as the model wrote them where they are no object."""
    given = call.get("arguments")
    return str(call.get("arguments_text") or "") if given is None else compact(given)


def compact(value: Any) -> str:
    """Return a decoded value as compact JSON; lone surrogates, which canonical JSON refuses, stay as they are."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def ran_together(step: Line) -> list[str]:
    """Return a line for each group of calls of a step that were performed together, by their places in the reply."""
    places = {call["id"]: str(number) for number, call in enumerate(step["intended_tool_calls"], 1)}
    groups = [[places.get(name, "?") for name in group] for group in step.get("groups", ())]
    return [
        f"calls {', '.join(group[:-1])} and {group[-1]} ran together" for group in groups if len(group) > 1
    ]
