"""Send a mail; nothing of it goes through io."""

DESCRIPTION = "Send a mail."
INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "text"],
    "properties": {
        "path": {"type": "string", "x-resource": "text"},
        "text": {"type": "string", "x-resource": "any"},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}
OUTPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"bytes": {"type": "integer"}},
}
EFFECT = "external"
IDEMPOTENT = False
TRANSIENT = (ConnectionError,)


async def run(args, io):
    return {"bytes": len(args["text"])}
