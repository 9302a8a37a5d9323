"""Compare two JSON values leaf by leaf, in the order in which a reader meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...runtime.formats.json_pointer import escape_pointer


class _Absent:
    """The side of a difference that has no value. There is one of it in every process, pickled or not."""

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


def differences(a: Any, b: Any, pointer: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (JSON Pointer, left, right) of every leaf that differs, in reading order; `prev` comes last."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}, key=_weight):
            left, right = a.get(key, ABSENT), b.get(key, ABSENT)
            yield from differences(left, right, f"{pointer}/{escape_pointer(key)}")
    elif isinstance(a, list) and isinstance(b, list):
        for i in range(max(len(a), len(b))):
            left = a[i] if i < len(a) else ABSENT
            right = b[i] if i < len(b) else ABSENT
            yield from differences(left, right, f"{pointer}/{i}")
    elif type(a) is not type(b) or a != b:
        yield pointer, a, b


# what a decision is comes before the line and the words that give it
_HEADS: Final = ("type", "decision", "rule_id")


# a step is read in the order in which it happened
_ORDER: Final = (
    "llm_input",
    "llm_attempts",
    "llm_output",
    "intended_tool_calls",
    "policy_decisions",
    "tool_results",
    "errors",
    "stopped",
    "failure_mode",
    "terminal_reason",
    "final_answer",
    "usage",
    "totals",
    "stamps",
    "inputs",
)


def _weight(key: str) -> tuple[int, str]:
    if key == "prev":
        return len(_ORDER) + 1, key
    if key in _HEADS:
        return _HEADS.index(key) - len(_HEADS) - 1, key
    return (_ORDER.index(key) if key in _ORDER else -1), key


CLASSES: Final = (
    "EXPOSURE",
    "VERDICT",
    "EFFECT",
    "ANSWER",
    "ASKED",
    "ENDING",
    "BUDGET",
    "RETRY",
    "SHAPE",
    "TEXT",
    "DIGEST-ONLY",
)
