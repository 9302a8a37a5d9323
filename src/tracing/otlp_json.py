"""`trace.json`: one OTLP/JSON `TracesData` (opentelemetry-proto, JSON mapping of OTLP), one span a line.

Ids in hex, 64-bit integers as strings, enums as numbers, lowerCamelCase. The same spans give the same bytes
whatever SDK is installed and whatever the environment says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from .spans import Span, Value

SERVICE_NAME: Final = "tachograph"
SCOPE: Final = "tachograph"
SCOPE_VERSION: Final = "1"
STATUS_ERROR: Final = 2

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

HEAD: Final = (
    '{"resourceSpans":[{"resource":{"attributes":'
    + _encode([{"key": "service.name", "value": {"stringValue": SERVICE_NAME}}])
    + '},"scopeSpans":[{"scope":'
    + _encode({"name": SCOPE, "version": SCOPE_VERSION})
    + ',"spans":[\n'
)
TAIL: Final = "\n]}]}]}\n"


def span_object(span: Span) -> dict[str, Any]:
    """A span as plain data of OTLP/JSON."""
    out: dict[str, Any] = {"traceId": span.trace_id, "spanId": span.span_id}
    if span.parent_id is not None:
        out["parentSpanId"] = span.parent_id
    out["name"] = span.name
    out["kind"] = span.kind
    out["startTimeUnixNano"] = str(span.start_ns)
    out["endTimeUnixNano"] = str(span.end_ns)
    attributes = span.attributes
    out["attributes"] = [{"key": key, "value": _value(attributes[key])} for key in sorted(attributes)]
    if span.error_type is not None:
        out["status"] = {"code": STATUS_ERROR}
    return out


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}


class TraceWriter:
    """Writes a trace piece by piece: `add` in order, `close` once."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._first = True
        write(HEAD.encode())

    def add(self, spans: Iterable[Span]) -> None:
        text = ",\n".join([_encode(span_object(span)) for span in spans])
        self._write((text if self._first else ",\n" + text).encode("utf-8"))
        self._first = False

    def close(self) -> None:
        self._write(TAIL.encode())


def document(spans: Iterable[Span]) -> bytes:
    """The whole file."""
    parts: list[bytes] = []
    writer = TraceWriter(parts.append)
    writer.add(spans)
    writer.close()
    return b"".join(parts)
