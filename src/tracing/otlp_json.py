"""`trace.json`: one OTLP/JSON `TracesData` (opentelemetry-proto, JSON mapping of OTLP), one span a line.

Ids in hex, 64-bit integers as strings, enums as numbers, lowerCamelCase. The same spans give the same bytes whatever
SDK is installed and whatever the environment says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..runtime.formats.strict_json import canonical
from .spans import Span, Value

STATUS_ERROR: Final = 2
_HEAD: Final = (
    b'{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"tachograph"}}]},'
    b'"scopeSpans":[{"scope":{"name":"tachograph","version":"1"},"spans":[\n'
)
_TAIL: Final = b"\n]}]}]}\n"


class _Attributes(dict[tuple[str, Value], str]):
    """Attributes as JSON, by key and value: most of a span are those of the one before."""

    def __missing__(self, attribute: tuple[str, Value]) -> str:
        key, value = attribute
        text = self[attribute] = f'{{"key":"{key}","value":{_value(value)}}}'
        return text


def trace_json(spans: Iterable[Span]) -> bytes:
    """Return the whole file."""
    json_of, parts, before = _Attributes().__getitem__, [_HEAD], ""
    for span in spans:  # ids, names and times hold nothing that JSON escapes
        parent = f'"parentSpanId":"{span.parent_id}",' if span.parent_id else ""
        status = f',"status":{{"code":{STATUS_ERROR}}}' if span.error_type else ""
        attributes = ",".join(sorted(map(json_of, span.attributes.items())))  # each begins with its key
        parts.append(
            f'{before}{{"traceId":"{span.trace_id}","spanId":"{span.span_id}",{parent}"name":"{span.name}",'
            f'"kind":{span.kind},"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
            f'"attributes":[{attributes}]{status}}}'.encode()
        )
        before = ",\n"
    return b"".join([*parts, _TAIL])  # made once, since it is large


def _value(value: Value) -> str:
    if isinstance(value, str):
        return f'{{"stringValue":{canonical(value).decode()}}}'
    if isinstance(value, int):
        return f'{{"intValue":"{value}"}}'
    return f'{{"arrayValue":{{"values":[{",".join(map(_value, value))}]}}}}'
