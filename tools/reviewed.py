"""Have a document read until a reviewer accepts what is said of it, at most three times."""

from typing import Any

from tachograph import loop_until

DESCRIPTION = "Have a document read, and the answer reviewed until it is accepted. Returns how that ended."

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["task"],
    "properties": {
        "task": {"type": "string", "minLength": 1, "description": "The document, and what to say of it."}
    },
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


run = loop_until("reader", _is_accepted, reviewer="reviewer", most=3).run
