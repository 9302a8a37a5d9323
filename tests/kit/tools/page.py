"""Get a page."""

DESCRIPTION = "Get a page."
INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url"],
    "properties": {"url": {"type": "string", "x-resource": "url"}},
}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"text": {"type": "string"}}}
EFFECT = "network"
IDEMPOTENT = True
TRANSIENT = (ConnectionError, TimeoutError)


def run(args, io):
    return {"text": io.get(args["url"]).text}
