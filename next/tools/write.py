"""Write one file of a mount."""

from typing import Any

DESCRIPTION = (
    "Write a text file by its mount path, replacing what is there. "
    "Returns the path and the number of bytes in UTF-8."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "content"],
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 512,
            "x-resource": "path:write",
            "description": "Mount name, a slash, then the file inside the mount.",
        },
        "content": {
            "type": "string",
            "maxLength": 1048576,
            "description": "The whole new text of the file.",
        },
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "bytes"],
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 512},
        # A character takes at most four bytes in UTF-8.
        "bytes": {"type": "integer", "minimum": 0, "maximum": 4194304},
    },
}

EFFECT = "write"
# The write replaces the whole file, so the same content once more gives the same file.
IDEMPOTENT = True
TRANSIENT: tuple[type[BaseException], ...] = ()
EXAMPLES: dict[str, dict[str, Any]] = {
    "good": {"path": "sandbox/a.md", "content": "text"},
    "bad": {"path": "sandbox/a.md"},
}


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Write ``content`` and return ``{"path", "bytes"}``, ``bytes`` being its length in UTF-8.

    Raises ``UnicodeEncodeError`` for text that UTF-8 cannot hold. Errors of ``io`` pass unchanged.
    """
    # Measured first: text that cannot be encoded must fail before anything is written.
    size = len(args["content"].encode("utf-8"))
    io.write(args["path"], args["content"])
    return {"path": args["path"], "bytes": size}
