"""Collectors on loopback, good and bad, and the material to feed them: small ledgers of real runs.

Every receiver takes a free port, ends with its `with` block and never waits longer than `PATIENCE_S`.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tachograph.fail.errors import TransientModelError
from tachograph.runtime.agent import Agent
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

PATIENCE_S = 12

# ---- ledgers -------------------------------------------------------------------------------------------

POLICY = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["flaky", "broken"], "denied": ["hidden"]},
    "loop_budget": {"max_iterations": 5, "max_tokens": 5000, "max_tool_calls": 9, "max_result_bytes": 9000},
    "cycle_detection": {"max_repeats": 3},
    "retry": {"max_retries": 3, "backoff_base_ms": 1, "backoff_cap_ms": 2},
    "on_deny": "inform",
}


def _tools():
    tries = Counter()

    def flaky(args, io):
        tries["flaky"] += 1
        if tries["flaky"] < 3:
            raise ConnectionError
        return {"said": args["word"]}

    def broken(args, io):
        raise ZeroDivisionError

    def schema(**properties):
        return {"type": "object", "additionalProperties": False, "properties": properties}

    text = {"type": "string"}
    return [
        Tool(
            "flaky",
            "Fails twice.",
            schema(word=text),
            schema(said=text),
            "pure",
            True,
            flaky,
            (ConnectionError,),
        ),
        Tool("broken", "Fails.", schema(), schema(), "pure", True, broken),
        Tool("hidden", "Is denied.", schema(), schema(), "pure", True, broken),
    ]


def _stub():
    word = {"word": 'ä "𝄞"\n'}
    return Stub(
        [
            {"calls": [{"tool": "hidden"}, {"tool": "flaky", "arguments": word}]},
            {"calls": [{"tool": "broken"}]},
            {"answer": "never reached"},
        ]
    )


def _callable():
    asked = Counter()

    def model(question):
        asked["times"] += 1
        if asked["times"] == 1:
            raise TransientModelError
        if question.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("flaky", '{"word": "x"}')], finish_reason="tool_calls")
        return LLMOutput(final_answer="done", finish_reason="stop")

    return model


@cache
def ledger(kind="stub"):
    """The lines of a run, as a tuple of texts: `stub` with a virtual clock, `live` with the system's."""
    texts = []
    agent = Agent(_stub() if kind == "stub" else _callable(), _tools(), Policy.from_dict(POLICY))
    agent.run(
        "What is said?",
        run_id=f"run-{kind}",
        listeners=[lambda notice: texts.append(notice.text) if notice.what == "line" else None],
    )
    return tuple(texts)


def lines(kind="stub"):
    """The same lines, decoded afresh."""
    return [json.loads(text) for text in ledger(kind)]


# ---- OTLP in a form that can be compared ---------------------------------------------------------------


def parse_document(data):
    """`trace.json` as the official `TracesData`. OTLP/JSON has ids in hex where protobuf's JSON has base64."""
    tree = json.loads(data)
    for resource in tree["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(tree, TracesData())


def canonical(*messages):
    """All spans of the messages, sorted texts with resource and scope in each.

    Left out are `flags`, where an exporter says that the parent is local, and a status without content: the
    file leaves both unsaid, to the same effect.
    """
    out = []
    for message in messages:
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                around = [
                    _plain(resource.resource),
                    resource.schema_url,
                    _plain(scope.scope),
                    scope.schema_url,
                ]
                for span in scope.spans:
                    plain = _plain(span)
                    plain.pop("flags", None)
                    if plain.get("status") == {}:
                        del plain["status"]
                    plain["attributes"] = sorted(plain.get("attributes", ()), key=lambda item: item["key"])
                    out.append(json.dumps([*around, plain], sort_keys=True))
    return sorted(out)


def _plain(message):
    return json_format.MessageToDict(message)


# ---- receivers -----------------------------------------------------------------------------------------


class HttpReceiver:
    """OTLP over HTTP. `requests` are those parsed, `headers` theirs, `paths` the paths asked for.

    `status` and `reply_headers` answer every request, `delay_s` later.
    """

    def __init__(self, status=200, reply_headers=None, delay_s=0.0):
        self.requests, self.headers, self.paths = [], [], []
        self._stop = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = PATIENCE_S

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers["content-encoding"] == "gzip":
                    body = gzip.decompress(body)
                receiver._stop.wait(delay_s)
                if status == 200:
                    parsed = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
                    receiver.requests.append(parsed)
                    receiver.headers.append(dict(self.headers))
                    receiver.paths.append(self.path)
                with suppress(OSError):
                    self.send_response(status)
                    for key, value in (reply_headers or {}).items():
                        self.send_header(key, value)
                    self.send_header("content-length", "0")
                    self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class GrpcReceiver:
    """OTLP over gRPC, on the official stubs. `requests` as received, `headers` their metadata.

    `unavailable` refuses every request and asks to be asked again in 30 s; `delay_s` comes before an answer.
    """

    def __init__(self, unavailable=False, delay_s=0.0):
        self.requests, self.headers = [], []
        self._stop = threading.Event()
        receiver = self

        class Service(trace_service_pb2_grpc.TraceServiceServicer):
            def Export(self, request, context):
                receiver._stop.wait(delay_s)
                if unavailable:
                    context.set_trailing_metadata((("google.rpc.retryinfo-bin", b"\n\x02\x08\x1e"),))
                    context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
                receiver.requests.append(request)
                receiver.headers.append(dict(context.invocation_metadata()))
                return trace_service_pb2.ExportTraceServiceResponse()

        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), self._server)
        self.endpoint = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._server.stop(0).wait(PATIENCE_S)


class Socket:
    """No collector at all. `refused`: nobody listens. `silent`: accepts, never answers. `drip`: a byte a time."""

    def __init__(self, how, scheme="http"):
        self._how = how
        self._held = []
        self._stop = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self.endpoint = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        if self._how == "refused":
            self._socket.close()
        else:
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self._how != "refused":
            self._thread.join(PATIENCE_S)
            self._socket.close()
        for connection in self._held:
            connection.close()

    def _serve(self):
        end = time.monotonic() + PATIENCE_S
        while not self._stop.is_set() and time.monotonic() < end:
            with suppress(OSError):
                connection, _ = self._socket.accept()
                self._held.append(connection)
                connection.sendall(b"HTTP/1.1 200 OK\r\nx-slow: " if self._how == "drip" else b"")
            for connection in self._held if self._how == "drip" else ():
                with suppress(OSError):
                    connection.send(b"a")
