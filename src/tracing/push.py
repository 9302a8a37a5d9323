"""Send the spans of a run to an OTLP receiver, by the OpenTelemetry SDK and its exporter as they come.

Ids and times are those of `trace.json`, and so are attributes but for what `viewers.py` adds. Nothing here is imported
by a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import CRITICAL, getLogger
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from requests import Response, Session

from ..fail.errors import InputError
from .spans import Span

_KINDS = {1: SpanKind.INTERNAL, 3: SpanKind.CLIENT}
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
    answers: list[str] = []

    def hear(response: Response, **_: Any) -> None:
        """Note the answer, and refuse a redirect, which the exporter neither follows nor takes for a failure."""
        answers.append(f"HTTP {response.status_code}")
        response.close()  # the status says it all, and what follows may have no end
        if 300 <= response.status_code < 400:
            raise ConnectionRefusedError

    with Session() as session:
        session.hooks["response"] = [hear]
        try:
            exporter = OTLPSpanExporter(endpoint, headers=dict(headers), timeout=_PATIENCE_S, session=session)
            taken = exporter.export([_readable(span) for span in spans])
        except Exception as error:  # noqa: BLE001 - the exporter may raise anything for an address that is none
            raise _refused(endpoint, type(error).__name__) from None
    if taken is not SpanExportResult.SUCCESS:
        raise _refused(endpoint, answers[-1] if answers else "no answer")


def _refused(endpoint: str, why: str) -> NotTaken:
    remedy = "check that a receiver listens there, and its path, such as /v1/traces"
    return NotTaken(f"the receiver did not take the spans ({why})", file=endpoint, remedy=remedy)


def _readable(span: Span) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=_RESOURCE,
        attributes=dict[str, Any](span.attributes),
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR if span.error_type else StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    # without the flag, processors drop the span
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))
