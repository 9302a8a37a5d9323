"""What every table asks of its classes, and the policies that they begin with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

Row = TypeVar("Row", bound=Hashable)
Made = Callable[[], Iterable[Any]]  # makes the cases of a class
MUCH = 1_000_000_000


def rows(cases: Iterable[Row]) -> list[Row]:
    """Return the different cases of a class, in order; fails where they are too few to be a class."""
    found = list(dict.fromkeys(cases))
    assert len(found) >= 50, f"{len(found)} cases are not a class"
    return found


def roomy(tools: Iterable[str], /, **sections: Any) -> dict[str, Any]:
    """Return a policy whose budgets are never used up, with some tools and sections."""
    budgets = ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes")
    return {
        "schema": "policy/v1",
        "tool_registry": {"allowed": [*tools]},
        "loop_budget": dict.fromkeys(budgets, MUCH),
        "cycle_detection": {"max_repeats": MUCH},
        **sections,
    }


def closed(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these properties and no other."""
    return {"type": "object", "additionalProperties": False, "properties": properties}
