"""Read one file of a mount."""

from typing import Any

DESCRIPTION = (
    "Read a text file by its mount path, for example corpus/op-a1.md. Returns the path and the whole text."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 512,
            "x-resource": "path:read",
            "description": "Mount name, a slash, then the file inside the mount.",
        }
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "text"],
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 512},
        "text": {"type": "string", "maxLength": 1048576},
    },
}

EFFECT = "read"
IDEMPOTENT = True
TRANSIENT: tuple[type[BaseException], ...] = ()
EXAMPLES: dict[str, dict[str, Any]] = {
    "good": {"path": "corpus/op-a1.md"},
    "bad": {"path": ["corpus/op-a1.md"]},
}


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return ``{"path", "text"}``. Errors of ``io`` pass unchanged."""
    return {"path": args["path"], "text": io.read(args["path"])}
