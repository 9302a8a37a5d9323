"""Send the spans of a run to an OTLP receiver, by the OpenTelemetry SDK and its exporter as they come.

Ids and times are those of `trace.json`, and so are attributes but for what `viewers.py` adds. Nothing here is imported
by a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from logging import CRITICAL, getLogger
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from requests import Response, Session

from ..fail.errors import InputError
from .spans import Span

# the SDK's own default would add an id of the process and its version
_RESOURCE = Resource({"service.name": "tachograph"})
_SCOPE = InstrumentationScope("tachograph")
_PATIENCE_S = 10  # in which a receiver has to take the spans, retries included
# it tells each attempt, and the last one with a traceback; what came of them is told once, by an exception
getLogger("opentelemetry.exporter").setLevel(CRITICAL + 1)


class NotTaken(InputError):
    """A receiver did not take spans, or does not answer."""

    exit_code = 1


def push(spans: Sequence[Span], endpoint: str, headers: Mapping[str, str]) -> None:
    """Send spans as OTLP over HTTP with protobuf.

    Args:
        spans: The spans.
        endpoint: The URL of the receiver, such as `http://127.0.0.1:4318/v1/traces`.
        headers: HTTP headers, such as a key.

    Raises:
        InputError: The address is none of a receiver.
        NotTaken: The receiver did not take them.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise InputError("is not an address of a receiver", file=endpoint, remedy="begin it with http://")
    with _Session() as session:
        exporter = OTLPSpanExporter(endpoint, headers=dict(headers), timeout=_PATIENCE_S, session=session)
        taken = exporter.export([_readable(span) for span in spans])
    if taken is not SpanExportResult.SUCCESS:
        remedy = "check that a receiver listens there, and its path, such as /v1/traces"
        what = f"the receiver did not take the spans ({session.told})"
        raise NotTaken(what, file=endpoint, remedy=remedy)


class _Session(Session):
    """What the exporter sends by. `told` says how the last request went, which the exporter only logs."""

    told = "no answer"

    def request(self, *args: Any, **options: Any) -> Response:
        """Send a request. Raises an error also for an answer that the exporter wrongly takes for a success."""
        self.headers["Accept-Encoding"] = "identity"  # the answer is read as it comes
        self.auth = lambda request: request  # or ~/.netrc would replace a header that was given
        try:
            with super().request(*args, **{**options, "stream": True}) as response:
                body = response.raw.read(65_536)  # an answer may have no end
        except Exception as error:
            self.told = type(error).__name__
            raise
        self.told, answer = f"HTTP {response.status_code}", ExportTraceServiceResponse()
        with suppress(DecodeError):  # some receivers say something else, and errors say anything
            answer.MergeFromString(body)
        if refused := answer.partial_success.rejected_spans:
            self.told += f", {refused} of them refused: {answer.partial_success.error_message:.300}"
        if refused or 300 <= response.status_code < 400:  # a redirect, which is not followed
            raise ConnectionRefusedError
        return response


def _readable(span: Span) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=_RESOURCE,
        attributes=dict[str, Any](span.attributes),
        kind=SpanKind(span.kind - 1),  # OTLP leaves 0 for none
        status=Status(StatusCode.ERROR if span.error_type else StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    # without the flag, processors drop the span
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))
