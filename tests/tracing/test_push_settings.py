"""What `push` is told: endpoints, headers, and an environment that it does not listen to."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tachograph.fail.errors import InputError
from tachograph.tracing.export import NotDelivered
from tachograph.tracing.otlp_json import document
from tachograph.tracing.push import Sender
from tachograph.tracing.spans import spans_of

ROOT = Path(__file__).resolve().parents[2]


def _load(name):
    spec = importlib.util.spec_from_file_location(f"_tracing_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


receivers, scripted = _load("receivers"), _load("scripted")
Http, Grpc, reply, abort = scripted.Http, scripted.Grpc, scripted.reply, scripted.abort
SPANS = spans_of(receivers.lines())
EXPECTED = receivers.canonical(receivers.parse_document(document(SPANS)))
BOTH = pytest.mark.parametrize(
    ("receiver", "protocol"), [(Grpc, "grpc"), (Http, "http/protobuf"), (Http, "http/json")]
)


SECRET = "Bearer t0k3n-of-mine"


@BOTH
def test_headers_are_sent_and_never_said_again(receiver, protocol):
    echo = f"no such key: {SECRET} (t0k3n-of-mine)"
    no = abort(grpc.StatusCode.PERMISSION_DENIED, echo)
    with receiver(no if receiver is Grpc else reply(403, echo.encode(), "text/plain")) as collector:
        headers = [("Authorization", SECRET), ("x-a", "b")]
        sender = Sender(collector.endpoint, protocol=protocol, headers=headers)
        with pytest.raises(NotDelivered) as caught:
            sender.send(SPANS)
        why = str(caught.value)
        assert collector.headers[0]["authorization"] == SECRET and collector.headers[0]["x-a"] == "b"
    assert "t0k3n" not in why and "no such key" in why


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "a"), ("a b", "c"), ("a", ""), ("a", "x\r\ny: z"), ("a", "ä"), ("Host", "x"), ("content-length", "3"),
     ("Content-Type", "x"), ("a:", "x"), ("transfer-encoding", "chunked")],
)  # fmt: skip
def test_headers_that_cannot_be_sent_are_refused(name, value):
    with pytest.raises(InputError) as caught:
        Sender("http://127.0.0.1:4318", headers=[(name, value)])
    assert "\n" not in str(caught.value) and "chunked" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "options"),
    [("localhost:4318", {}), ("http://me:hidden@host", {}), ("grpc://host/path", {}), ("ftp://host", {}),
     ("http://host", {"protocol": "http/xml"}), ("grpc://host", {"protocol": "http/json"}),
     ("http://host", {"timeout_s": 0}), ("http://host", {"timeout_s": float("nan")})],
)  # fmt: skip
def test_bad_settings_are_refused_in_one_line(endpoint, options):
    with pytest.raises(InputError) as caught:
        Sender(endpoint, **options)
    assert caught.value.remedy and "hidden" not in str(caught.value) and "OTEL" not in str(caught.value)


ALONE = """
import json, sys
from tachograph.tracing.push import Sender
from tachograph.tracing.spans import spans_of
sender = Sender(sys.argv[1], protocol=sys.argv[2])
print(sender.send(spans_of([json.loads(line) for line in sys.stdin])).spans)
"""
DEAD = "http://127.0.0.1:9"


@BOTH
def test_the_environment_changes_nothing(receiver, protocol):
    environment = {
        "OTEL_SDK_DISABLED": "true", "OTEL_SERVICE_NAME": "x", "OTEL_RESOURCE_ATTRIBUTES": "a=b",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc", "OTEL_EXPORTER_OTLP_ENDPOINT": DEAD,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": DEAD, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.001",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3",
        "http_proxy": DEAD, "https_proxy": DEAD, "grpc_proxy": DEAD, "ALL_PROXY": DEAD, "no_proxy": "",
    }  # fmt: skip
    with receiver() as collector:
        done = subprocess.run(
            [sys.executable, "-c", ALONE, collector.endpoint, protocol],
            cwd=ROOT,
            env={**os.environ, **environment},
            input="\n".join(receivers.ledger()),
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(SPANS)}\n", "")
        read = receivers.parse_document if protocol == "http/json" else ExportTraceServiceRequest.FromString
        assert receivers.canonical(*map(read, collector.bodies)) == EXPECTED
        assert "authorization" not in collector.headers[0]
        assert "content-encoding" not in collector.headers[0]
