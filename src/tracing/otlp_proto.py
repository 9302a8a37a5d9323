"""Spans as an `ExportTraceServiceRequest`, and what a collector answers, on the official protobuf types."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from .otlp_json import SCOPE, SCOPE_VERSION, SERVICE_NAME, STATUS_ERROR
from .spans import Span, Value


class Accepted(NamedTuple):
    """What a collector made of a request that it took: spans refused, and its own words, which are foreign."""

    rejected: int
    message: str


def request(spans: Iterable[Span]) -> bytes:
    """The same spans as `otlp_json.document`, in the protobuf encoding of OTLP."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest()
    around = message.resource_spans.add()
    around.resource.attributes.add(key="service.name").value.string_value = SERVICE_NAME
    scope = around.scope_spans.add()
    scope.scope.name, scope.scope.version = SCOPE, SCOPE_VERSION
    for span in spans:
        made = scope.spans.add(
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            parent_span_id=bytes.fromhex(span.parent_id or ""),
            name=span.name,
            kind=span.kind,
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
        )
        for key in sorted(span.attributes):
            _put(made.attributes.add(key=key).value, span.attributes[key])
        if span.error_type is not None:
            made.status.code = STATUS_ERROR
    data: bytes = message.SerializeToString()
    return data


def _put(into: Any, value: Value) -> None:
    if isinstance(value, str):
        into.string_value = value
    elif isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int):
        into.int_value = value
    else:
        for item in value:
            into.array_value.values.add(string_value=item)


def read_answer(data: bytes, content_type: str) -> Accepted | None:
    """What an `ExportTraceServiceResponse` says; None for something else. No body at all says that all is well."""
    kind = content_type.partition(";")[0].strip().lower()
    if not data:
        return Accepted(0, "")
    if kind == "application/x-protobuf":
        return _read_proto(data)
    return _read_json(data) if kind == "application/json" else None


def _read_proto(data: bytes) -> Accepted | None:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(data).partial_success
    except DecodeError:
        return None
    return Accepted(max(partial.rejected_spans, 0), partial.error_message)


def _read_json(data: bytes) -> Accepted | None:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    partial = answer.get("partialSuccess") or {}
    if not isinstance(partial, dict):
        return None
    count, message = partial.get("rejectedSpans", 0), partial.get("errorMessage", "")
    digits = str(count) if isinstance(count, str | int) and not isinstance(count, bool) else ""
    return Accepted(
        int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else 0,
        message if isinstance(message, str) else "",
    )


def read_error(data: bytes, content_type: str) -> str:
    """The words in the body of a refusal, foreign text; empty where there are none to be made out."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-protobuf":
        from google.protobuf.message import DecodeError
        from google.rpc.status_pb2 import Status

        try:
            return str(Status.FromString(data).message)
        except DecodeError:
            return ""
    if kind == "application/json":
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return ""
        words = [found.get(key) for key in ("message", "detail", "error")] if isinstance(found, dict) else []
        return next((word for word in words if isinstance(word, str) and word), "")
    return data.decode("utf-8", "replace") if kind == "text/plain" else ""
