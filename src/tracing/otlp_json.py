"""`trace.json`: one OTLP/JSON `TracesData` (opentelemetry-proto, JSON mapping of OTLP), one span a line.

Ids in hex, 64-bit integers as strings, enums as numbers, lowerCamelCase. The same spans give the same bytes whatever
SDK is installed and whatever the environment says.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

from .spans import Span, Value

STATUS_ERROR: Final = 2
_HEAD: Final = (
    b'{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"tachograph"}}]},'
    b'"scopeSpans":[{"scope":{"name":"tachograph","version":"1"},"spans":[\n'
)
_TAIL: Final = b"\n]}]}]}\n"


def trace_json(spans: Iterable[Span]) -> bytes:
    """Return the whole file."""
    return _HEAD + b",\n".join(msgspec.json.encode(_plain(span)) for span in spans) + _TAIL


def _plain(span: Span) -> dict[str, Any]:
    parent = {"parentSpanId": span.parent_id} if span.parent_id else {}
    status = {"status": {"code": STATUS_ERROR}} if span.error_type else {}
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        **parent,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": [_attribute(key, _hashable(span.attributes[key])) for key in sorted(span.attributes)],
        **status,
    }


@lru_cache(maxsize=512, typed=True)  # most attributes of a run are those of the span before
def _attribute(key: str, value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"key": key, "value": _value(value)}))


def _hashable(value: Value) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [_value(item) for item in value]}}
