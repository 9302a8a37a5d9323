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
    return _HEAD + ",\n".join(map(_line, spans)).encode() + _TAIL


def _line(span: Span) -> str:
    """Return a span; its ids, name and times hold nothing that JSON escapes."""
    parent = f'"parentSpanId":"{span.parent_id}",' if span.parent_id else ""
    status = f',"status":{{"code":{STATUS_ERROR}}}' if span.error_type else ""
    attributes = ",".join([_attribute(key, span.attributes[key]) for key in sorted(span.attributes)])
    return (
        f'{{"traceId":"{span.trace_id}","spanId":"{span.span_id}",{parent}"name":"{span.name}","kind":{span.kind},'
        f'"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
        f'"attributes":[{attributes}]{status}}}'
    )


@lru_cache(maxsize=512, typed=True)  # most attributes of a run are those of the span before
def _attribute(key: str, value: Value) -> str:
    return msgspec.json.encode({"key": key, "value": _value(value)}).decode()


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [_value(item) for item in value]}}
