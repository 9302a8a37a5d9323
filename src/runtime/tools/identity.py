"""When two calls are the same call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..formats.strict_json import canonical, digest
from ..log.values import Call
from ..resources.url import Malformed, parse_url
from ..schema.places import Place
from .contract import Tool


def call_key(call: Call, tool: Tool | None) -> str:
    """Return the identity of a call, the same however its URLs are spelled and whether defaults are written out."""
    arguments: Any = call.arguments
    if arguments is None:
        return digest(canonical([call.name, None, call.text]))
    if tool is not None:
        arguments = tool.filled(arguments)
        for place in tool.places:
            if place.kind in ("url", "text"):
                arguments = _spelled(arguments, place.path, place)
    return digest(canonical([call.name, arguments]))


def _spelled(value: Any, path: tuple[str, ...], place: Place) -> Any:
    """Return a value with the URLs at a place spelled as the parser spells them."""
    if not path:
        if isinstance(value, str) and place.kind_of(value) == "url":
            with suppress(Malformed):
                return parse_url(value).url
        return value
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        meant = value.keys() if head == "*" else {head} & value.keys()
        return value | {key: _spelled(value[key], rest, place) for key in meant}
    if isinstance(value, list) and head == "*":
        return [_spelled(item, rest, place) for item in value]
    return value
