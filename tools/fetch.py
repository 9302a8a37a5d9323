"""Fetch one resource by URL."""

from typing import Any

DESCRIPTION = (
    "Fetch the text behind a URL. Returns the final URL, the HTTP status, the content type and the text."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url"],
    "properties": {
        "url": {
            "type": "string",
            "minLength": 1,
            "maxLength": 2048,
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
        "url": {"type": "string", "minLength": 1, "maxLength": 2048},
        "status": {"type": "integer", "minimum": 100, "maximum": 599},
        "content_type": {"type": "string", "maxLength": 255},
        "text": {"type": "string", "maxLength": 1048576},
    },
}

EFFECT = "network"
IDEMPOTENT = True
# io reports 429 and 5xx as ConnectionError, so they are retried along with broken connections.
TRANSIENT: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError)


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return ``{"url", "status", "content_type", "text"}`` of the response after redirects.

    A status such as 404 is a result, not an error. ``content_type`` is empty if the server named none.
    Errors of ``io`` pass unchanged.
    """
    response = io.get(args["url"])
    return {
        "url": response.url,
        "status": response.status,
        "content_type": response.headers.get("content-type", ""),
        "text": response.text,
    }
