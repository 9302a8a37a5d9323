"""Write a file, as often as it is asked."""

DESCRIPTION = "Write a file."
INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "text"],
    "properties": {"path": {"type": "string", "x-resource": "path:write"}, "text": {"type": "string"}},
}
OUTPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"bytes": {"type": "integer"}},
}
EFFECT = "write"
IDEMPOTENT = True
TRANSIENT = (ConnectionError,)


def run(args, io):
    io.write(args["path"], args["text"])
    return {"bytes": len(io.read(args["path"]).encode())}
