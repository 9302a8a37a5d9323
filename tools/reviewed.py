"""Have something looked up until a reviewer accepts it, at most three times."""

from typing import Any

from tachograph import loop_until

DESCRIPTION = (
    "Have something looked up, and reviewed until it is accepted. Returns how that ended, and the answer."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["task"],
    "properties": {"task": {"type": "string", "minLength": 1, "description": "What to look up."}},
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ending", "answer"],
    "properties": {"ending": {"type": "string"}, "answer": {"type": ["string", "null"]}},
}

EFFECT = "write"
IDEMPOTENT = True
TRANSIENT: tuple[type[BaseException], ...] = ()


def _is_accepted(said: str) -> bool:
    return said.lower().startswith("accepted")


run = loop_until("researcher", _is_accepted, reviewer="reviewer", most=3).run
