"""Fetch one resource by URL."""

from typing import Any

MAX_URL = 8192
MAX_CONTENT_TYPE = 255
MAX_TEXT = 200_000

DESCRIPTION = (
    "Fetch the text behind a URL. Returns the final URL, the HTTP status, the content type and the text. "
    f"A text longer than {MAX_TEXT} characters is cut there; truncated is true then."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url"],
    "properties": {
        "url": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_URL,
            "x-resource": "url",
            "description": "Absolute URL to fetch.",
        }
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url", "status", "content_type", "text"],
    "properties": {
        "url": {"type": "string", "minLength": 1, "maxLength": MAX_URL},
        "status": {"type": "integer", "minimum": 100, "maximum": 599},
        "content_type": {"type": "string", "maxLength": MAX_CONTENT_TYPE},
        "text": {"type": "string", "maxLength": MAX_TEXT},
        "truncated": {"type": "boolean"},
    },
}

EFFECT = "network"
IDEMPOTENT = True
# io reports 429 and 5xx as ConnectionError, so they are retried along with broken connections.
TRANSIENT: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError)
EXAMPLES: dict[str, dict[str, Any]] = {
    "good": {"url": "https://corpus.test/op-a1.md"},
    "bad": {},
}


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return ``{"url", "status", "content_type", "text"}`` of the response after redirects.

    A status such as 404 is a result, not an error. ``content_type`` is empty if the server named none, and cut
    where it is too long. A text that is too long is cut, with ``"truncated": True`` beside it. Errors of
    ``io`` pass unchanged.
    """
    response = io.get(args["url"])
    result = {
        "url": response.url,
        "status": response.status,
        "content_type": response.headers.get("content-type", "")[:MAX_CONTENT_TYPE],
        "text": response.text[:MAX_TEXT],
    }
    return {**result, "truncated": True} if len(response.text) > MAX_TEXT else result
