"""`trace.json`: one OTLP/JSON `TracesData` (opentelemetry-proto, JSON mapping of OTLP), one span a line.

Ids in hex, 64-bit integers as strings, enums as numbers, lowerCamelCase. The same spans give the same bytes
whatever SDK is installed and whatever the environment says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from json.encoder import encode_basestring as _quote
from typing import Final

from .spans import Span, Value

SERVICE_NAME: Final = "tachograph"
SCOPE: Final = "tachograph"
SCOPE_VERSION: Final = "1"
STATUS_ERROR: Final = 2

HEAD: Final = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"'
    + SERVICE_NAME
    + '"}}]},"scopeSpans":[{"scope":{"name":"'
    + f'{SCOPE}","version":"{SCOPE_VERSION}'
    + '"},"spans":[\n'
)
TAIL: Final = "\n]}]}]}\n"


def span_text(span: Span) -> str:
    """Return a span as an object of OTLP/JSON, written without a tree of dicts in between."""
    parent = "" if span.parent_id is None else f'"parentSpanId":"{span.parent_id}",'
    values = span.attributes
    attributes = ",".join(
        [
            f'{head}{{"stringValue":{_quote(value)}}}}}'
            if type(value := values[key]) is str
            else f"{head}{_value(value)}}}"
            for key, head in _heads(tuple(values))
        ]
    )
    status = "" if span.error_type is None else f',"status":{{"code":{STATUS_ERROR}}}'
    return (
        f'{{"traceId":"{span.trace_id}","spanId":"{span.span_id}",{parent}"name":{_quote(span.name)},'
        f'"kind":{span.kind},"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
        f'"attributes":[{attributes}]{status}}}'
    )


@lru_cache(maxsize=128)  # spans of a kind have the same attributes
def _heads(keys: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the keys in order, each with the text before its value."""
    return [(key, f'{{"key":{_quote(key)},"value":') for key in sorted(keys)]


def _value(value: Value) -> str:
    if isinstance(value, str):
        return f'{{"stringValue":{_quote(value)}}}'
    if isinstance(value, bool):
        return '{"boolValue":true}' if value else '{"boolValue":false}'
    if isinstance(value, int):
        return f'{{"intValue":"{value}"}}'
    items = ",".join([_value(item) for item in value])
    return f'{{"arrayValue":{{"values":[{items}]}}}}'


class TraceWriter:
    """Writes a trace piece by piece: `add` in order, `close` once."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._first = True
        write(HEAD.encode())

    def add(self, spans: Iterable[Span]) -> None:
        """Write the next spans."""
        self.add_text(",\n".join([span_text(span) for span in spans]))

    def add_text(self, text: str) -> None:
        """Write spans that are encoded already."""
        self._write((text if self._first else ",\n" + text).encode("utf-8"))
        self._first = False

    def close(self) -> None:
        """Write the end of the file."""
        self._write(TAIL.encode())


def document(spans: Iterable[Span]) -> bytes:
    """Return the whole file."""
    parts: list[bytes] = []
    writer = TraceWriter(parts.append)
    writer.add(spans)
    writer.close()
    return b"".join(parts)
