"""Sends spans to an OTLP receiver through the exporters of the OpenTelemetry SDK.

The SDK encodes, repeats and times a request. It keeps the receiver's answer to itself, and reads OTEL_*
variables; `Connection` passes it a client of ours (a requests session, a gRPC stub) that notes each answer and
decides what is sent beside the spans. An answer is untrusted text.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..fail.errors import InputError, TachographError
from .endpoint import JSON, Target
from .otlp_json import SCOPE, SCOPE_VERSION, SERVICE_NAME
from .spans import Span

MAX_ANSWER: Final = 65_536  # an answer to spans is a few bytes; nobody reads more
MAX_CONNECTS: Final = 3  # attempts in a row to reach a receiver that is not there
_LIBRARIES: Final = ("opentelemetry", "grpc", "requests", "urllib3")

Headers = Sequence[tuple[str, str]]


class NotDelivered(TachographError):
    """A receiver did not take spans: `reason` in our words, `words` in the receiver's (untrusted text)."""

    def __init__(self, reason: str, words: str = "") -> None:
        self.reason, self.words = reason, words
        super().__init__(f"{reason}: {words}" if words else reason)


class Accepted(NamedTuple):
    """The answer to a request that was taken: the number of spans rejected, and the receiver's words."""

    rejected: int
    message: str


class Connection:
    """An SDK exporter for one receiver.

    Args:
        target: where the receiver is.
        protocol: one of GRPC, HTTP and JSON.
        timeout_s: how long the SDK may try to deliver one request.
        headers: sent with each request; with None, headers, certificates and compression are those of the
            OTEL_EXPORTER_OTLP_* variables. No other variable and no proxy takes part.
    """

    def __init__(self, target: Target, protocol: str, timeout_s: float, headers: Headers | None) -> None:
        self._headers = headers
        self._protocol = protocol
        self._begin(None)
        self._quiet = _QuietLibraries()
        make = self._grpc_exporter if target.grpc else self._http_exporter
        self._exporter = make(target.url, timeout_s)
        self._quiet.cover()

    def export(self, spans: Sequence[Span], document: bytes | None = None) -> Accepted:
        """Send one request, and again while the receiver asks for it and time is left.

        With http/json, `document` is sent, the same spans as OTLP/JSON. Raises NotDelivered.
        """
        self._begin(document)
        done = False
        with suppress(NotDelivered):
            done = self._exporter.export(sdk_spans(spans)).name == "SUCCESS"
        if done and self._accepted is not None:
            return self._accepted
        raise self._problem or NotDelivered("it was not sent")

    def _begin(self, document: bytes | None) -> None:
        self._document = document
        self._accepted: Accepted | None = None
        self._problem: NotDelivered | None = None
        self._absent = 0

    def close(self, wait_s: float = 1.0) -> None:
        """Shut the exporter down, in a thread: some releases wait there for the request under way."""
        stopper = threading.Thread(target=self._stop, daemon=True)
        stopper.start()
        stopper.join(wait_s)

    def restore_logging(self) -> None:
        """Let the libraries log again; called by the thread that made the connection, when it is done."""
        self._quiet.lift()

    def _stop(self) -> None:
        with suppress(Exception):
            self._exporter.shutdown()

    # ---- what the receiver answered ----------------------------------------------------------------------

    def _no_receiver(self, name: str) -> None:
        """Note that nobody was there. Raises NotDelivered, which ends the SDK's attempts, at the third time."""
        self._problem, self._absent = NotDelivered(name), self._absent + 1
        if self._absent >= MAX_CONNECTS:
            raise self._problem

    def _answered(self, status: int, kind: str, wait: str, data: bytes) -> None:
        self._absent = 0
        if 200 <= status < 300:
            self._accepted = read_answer(data, kind)
            wrong = f"status {status}, but the answer is none of an OTLP receiver; is the path right?"
            self._problem = NotDelivered(wrong)
            return
        reason = f"status {status}"
        if status == 415 and self._protocol == JSON:
            reason += " (try --protocol http/protobuf)"
        if 300 <= status < 400:
            reason += " (it points elsewhere, which is not followed)"
        if wait:
            reason += f" (asked to wait: {wait[:40]!a})"
        self._problem = NotDelivered(reason, read_error(data, kind))

    # ---- the exporters -----------------------------------------------------------------------------------

    def _http_exporter(self, url: str, timeout_s: float) -> Any:
        import requests
        from opentelemetry.exporter.otlp.proto.http import Compression

        connection, headers, json_kind = self, self._headers, self._protocol == JSON

        class Session(requests.Session):
            def request(self, *args: Any, **options: Any) -> requests.Response:
                if headers is not None:  # the exporter has put what its variables say among its own
                    kind = "application/json" if json_kind else "application/x-protobuf"
                    self.headers.clear()
                    options["headers"] = {"Content-Type": kind, "User-Agent": "tachograph", **dict(headers)}
                    paths = ssl.get_default_verify_paths()
                    options["verify"], self.cert = paths.cafile or paths.capath or True, None
                    options.pop("cert", None)
                if json_kind:
                    options["data"] = connection._document
                try:
                    response = super().request(
                        *args, **(options | {"stream": True, "allow_redirects": False})
                    )
                    with response:
                        data = response.raw.read(MAX_ANSWER, decode_content=True)
                except requests.exceptions.SSLError as error:
                    connection._problem = NotDelivered(f"no secure connection ({_cause(error)})")
                    raise connection._problem from None
                except requests.exceptions.Timeout:
                    connection._problem = NotDelivered(f"no answer within {timeout_s:g} s")
                    raise
                except Exception as error:
                    name = _cause(error)
                    hint = "; is it a gRPC port?" if name == "BadStatusLine" else ""
                    connection._no_receiver(f"no connection ({name}){hint}")
                    raise
                answer = response.headers
                connection._answered(
                    response.status_code, answer.get("content-type", ""), answer.get("retry-after", ""), data
                )
                return response

        session = Session()
        session.trust_env = False
        factory = load_exporter(grpc=False).OTLPSpanExporter
        plain = {} if headers is None else {"compression": Compression.NoCompression}
        return factory(endpoint=url, timeout=timeout_s, session=session, **plain, **_no_metrics(factory))

    def _grpc_exporter(self, url: str, timeout_s: float) -> Any:
        import grpc

        connection, headers = self, self._headers

        class Stub:
            """Calls the SDK's stub by the name that the SDK knows, and notes what came back."""

            def __init__(self, stub: Any) -> None:
                self._stub = stub

            def Export(self, request: Any, metadata: Any, timeout: float) -> Any:
                sent = metadata if headers is None else headers
                try:
                    answer = self._stub.Export(request=request, metadata=sent, timeout=timeout)
                except grpc.RpcError as error:
                    name, details = error.code().name, error.details() or ""
                    if name == "UNAVAILABLE" and details.startswith(("failed to connect", "DNS resolution")):
                        connection._no_receiver("no connection")
                    elif name == "DEADLINE_EXCEEDED":
                        connection._problem = NotDelivered(f"no answer within {timeout_s:g} s")
                    else:
                        connection._problem, connection._absent = NotDelivered(f"status {name}", details), 0
                    raise
                partial = answer.partial_success
                connection._accepted = Accepted(max(partial.rejected_spans, 0), partial.error_message)
                return answer

        class Exporter(load_exporter(grpc=True).OTLPSpanExporter):  # type: ignore[misc]
            # the SDK makes a new stub where it connects anew
            @property
            def _client(self) -> Any:
                return self.__dict__.get("stub")

            @_client.setter
            def _client(self, stub: Any) -> None:
                self.__dict__["stub"] = stub and Stub(stub)

        insecure = url.startswith("http:")
        options: dict[str, Any] = {"insecure": insecure}
        if headers is not None:
            options["compression"] = grpc.Compression.NoCompression
            if not insecure:
                file = ssl.get_default_verify_paths().cafile
                options["credentials"] = grpc.ssl_channel_credentials(
                    Path(file).read_bytes() if file else None
                )
        channel = (
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", MAX_ANSWER),
            ("grpc.primary_user_agent", "tachograph"),
        )
        return Exporter(
            endpoint=url, timeout=timeout_s, channel_options=channel, **options, **_no_metrics(Exporter)
        )


def load_exporter(*, grpc: bool) -> Any:
    """Import the SDK's exporter module, which takes a while. Raises InputError if it is not installed.

    Raises ValueError if the SDK cannot read one of its own environment variables.
    """
    try:
        importlib.import_module("opentelemetry.sdk.trace")
        kind = "grpc" if grpc else "http"
        return importlib.import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter")
    except ImportError as error:
        remedy = "pip install opentelemetry-sdk opentelemetry-exporter-otlp"
        raise InputError(f"traces need a missing package ({error.name})", remedy=remedy) from None


def _no_metrics(factory: Callable[..., object]) -> dict[str, Any]:
    """Keep the SDK from making or using a global meter provider, in the releases that would."""
    from opentelemetry.metrics import NoOpMeterProvider

    known = "meter_provider" in inspect.signature(factory).parameters
    return {"meter_provider": NoOpMeterProvider()} if known else {}


def sdk_spans(spans: Iterable[Span]) -> list[Any]:
    """Return the spans as `ReadableSpan` of the SDK, with the ids and times they have."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    resource = Resource({"service.name": SERVICE_NAME})
    scope = InstrumentationScope(SCOPE, SCOPE_VERSION)

    def context(span: Span, span_id: str) -> Any:
        return trace.SpanContext(int(span.trace_id, 16), int(span_id, 16), is_remote=False)

    return [
        ReadableSpan(
            span.name,
            context=context(span, span.span_id),
            parent=context(span, span.parent_id) if span.parent_id is not None else None,
            resource=resource,
            attributes={key: span.attributes[key] for key in sorted(span.attributes)},
            kind=trace.SpanKind(span.kind - 1),  # the API counts from 0, OTLP from 1
            status=trace.Status(trace.StatusCode.ERROR if span.error_type else trace.StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=scope,
        )
        for span in spans
    ]


def read_answer(data: bytes, content_type: str) -> Accepted | None:
    """Read an `ExportTraceServiceResponse`; None if it is something else. An empty body says that all is well."""
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    kind, answer = _media_type(content_type), ExportTraceServiceResponse()
    try:
        if data and kind == "application/json":
            body = json.loads(data)
            if not isinstance(body, dict):
                return None
            json_format.ParseDict(body, answer, ignore_unknown_fields=True)
        elif data and kind == "application/x-protobuf":
            answer.ParseFromString(data)
        elif data:
            return None
    except (DecodeError, json_format.ParseError, ValueError, TypeError, RecursionError):
        return None
    return Accepted(max(answer.partial_success.rejected_spans, 0), answer.partial_success.error_message)


def read_error(data: bytes, content_type: str) -> str:
    """Return the receiver's words in the body of a refusal, untrusted text; empty if there are none."""
    kind = _media_type(content_type)
    if kind == "application/x-protobuf":
        from google.protobuf.message import DecodeError
        from google.rpc.status_pb2 import Status

        try:
            return str(Status.FromString(data).message)
        except DecodeError:
            return ""
    if kind == "application/json":
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return ""
        words = [body.get(key) for key in ("message", "detail", "error")] if isinstance(body, dict) else []
        return next((word for word in words if isinstance(word, str) and word), "")
    return data.decode("utf-8", "replace") if kind == "text/plain" else ""


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _cause(error: BaseException) -> str:
    """Return the name of the error below those that requests and urllib3 wrap around it."""
    for inner in (error.__cause__, getattr(error, "reason", None), *error.args):
        if isinstance(inner, Exception):
            return _cause(inner)
    return type(error).__name__


class _QuietLibraries(logging.Filter):
    """Drops what the libraries log in the thread that makes it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._covered: list[logging.Logger] = []
        self.cover()

    def cover(self) -> None:
        """Attach to all loggers that the libraries have by now: a filter does not reach child loggers."""
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if isinstance(logger, logging.Logger) and name.partition(".")[0] in _LIBRARIES:
                logger.addFilter(self)  # once, however often it is added
                self._covered.append(logger)

    def lift(self) -> None:
        for logger in self._covered:
            logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return threading.get_ident() != self._thread
