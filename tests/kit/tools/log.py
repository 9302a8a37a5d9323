"""Write a file; doing it twice is not the same."""

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
IDEMPOTENT = False
TRANSIENT = (ConnectionError,)


def run(args, io):
    io.write(args["path"], args["text"])
    raises = {"refuse": ConnectionRefusedError, "late": TimeoutError}.get(args["text"])
    if raises:
        raise raises
    return {"bytes": len(io.read(args["path"]).encode())}
