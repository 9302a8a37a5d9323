"""Return a text."""

DESCRIPTION = "Return the text."
INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string", "maxLength": 100}, "times": {"type": "integer", "default": 1}},
}
OUTPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
}
EFFECT = "pure"
IDEMPOTENT = True


def run(args, io):
    return {"text": args["text"] * args.get("times", 1)}
