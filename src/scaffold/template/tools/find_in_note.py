"""Find a word in a note."""

from typing import Any

DESCRIPTION = "Return the lines of a note that hold a word."
INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "word"],
    "properties": {
        # the policy decides about every text that is marked as a path
        "path": {"type": "string", "maxLength": 200, "x-resource": "path:read"},
        "word": {"type": "string", "minLength": 1, "maxLength": 80},
    },
}
OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["lines"],
    "properties": {"lines": {"type": "array", "items": {"type": "string"}}},
}
EFFECT = "read"
IDEMPOTENT = True


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Read the note through `io`, which asks the policy, and return the lines."""
    lines = io.read(args["path"]).splitlines()
    return {"lines": [line for line in lines if args["word"].lower() in line.lower()]}
