"""Count the words of one note: a tool of your own. It imports nothing of tachograph's."""

from typing import Any

# what the model reads when it chooses a tool
DESCRIPTION = "Count the words of a note by its mount path, for example notes/welcome.md."

# what the model may send. "x-resource" says what a text is, so that the gate can judge it
INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 512, "x-resource": "path:read"},
    },
}

# what the tool gives; a result that does not fit never reaches the model
OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "words"],
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 512},
        "words": {"type": "integer", "minimum": 0},
    },
}

EFFECT = "read"  # pure, read, write, network or external, see README.md
IDEMPOTENT = True  # may it be done twice?
TRANSIENT: tuple[type[BaseException], ...] = ()  # which exceptions are worth another attempt
# a call that works, and one whose arguments do not fit: `tachograph doctor` holds them against the schema
EXAMPLES: dict[str, dict[str, Any]] = {
    "good": {"path": "notes/welcome.md"},
    "bad": {"path": 7},
}


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """`io` is the only way out: io.read, io.write, io.list, io.get."""
    return {"path": args["path"], "words": len(io.read(args["path"]).split())}
