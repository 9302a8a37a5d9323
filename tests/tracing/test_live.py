"""What goes out is what `trace.json` says, and no collector, however bad, holds a run up."""

import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tachograph.fail.errors import InputError
from tachograph.runtime.driver.ports import RunEvent
from tachograph.tracing import live
from tachograph.tracing.endpoint import target
from tachograph.tracing.export import sdk_spans
from tachograph.tracing.live import LiveExport
from tachograph.tracing.otlp_json import document
from tachograph.tracing.spans import spans_of

ROOT = Path(__file__).resolve().parents[2]


def _load(name):
    spec = importlib.util.spec_from_file_location(f"_tracing_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


receivers, scripted = _load("receivers"), _load("scripted")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OTEL_", "GRPC_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def feed(export, kind="stub"):
    for line in receivers.lines(kind):
        export(RunEvent("line", line=line))


def expected(*kinds):
    return sorted(
        text
        for kind in kinds
        for text in receivers.canonical(receivers.parse_document(document(spans_of(receivers.lines(kind)))))
    )


# ---- the same spans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stub", "live"])
@pytest.mark.parametrize("receiver", [receivers.HttpReceiver, receivers.GrpcReceiver])
def test_what_arrives_is_what_the_file_says(receiver, kind):
    said = []
    with receiver() as collector:
        with LiveExport(collector.endpoint, on_problem=said.append) as export:
            feed(export, kind)
        assert export.close() is True
        assert receivers.canonical(*collector.requests) == expected(kind)
    assert said == []


def test_gzip_arrives_as_well(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with receivers.HttpReceiver() as collector:
        with LiveExport(collector.endpoint) as export:
            feed(export)
        assert export.close() is True
        assert {key.lower(): value for key, value in collector.headers[0].items()}[
            "content-encoding"
        ] == "gzip"
        assert receivers.canonical(*collector.requests) == expected("stub")


def test_spans_leave_while_the_run_is_under_way():
    *before, end = receivers.lines()
    with receivers.GrpcReceiver() as collector:
        export = LiveExport(collector.endpoint)
        for line in before:
            export(RunEvent("line", line=line))
        limit = time.monotonic() + 30
        while not collector.requests and time.monotonic() < limit:
            time.sleep(0.02)
        assert len(receivers.canonical(*collector.requests)) == len(expected("stub")) - 1
        export(RunEvent("line", line=end))
        assert export.close() is True
        assert receivers.canonical(*collector.requests) == expected("stub")


def test_one_export_serves_several_runs_and_ignores_other_notices():
    with receivers.HttpReceiver() as collector:
        with LiveExport(collector.endpoint) as export:
            export(RunEvent("decided"))
            export(RunEvent("line", line=receivers.lines()[1]))  # a step of no known run
            feed(export, "stub")
            feed(export, "live")
        assert export.close() is True
        assert receivers.canonical(*collector.requests) == expected("stub", "live")
        feed(export)
        assert export.close() is True, "a closed export takes nothing more"


@pytest.mark.parametrize(
    ("path", "wanted"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/a/b?c=d", "/a/b?c=d")]
)
def test_the_path_of_an_http_endpoint(path, wanted):
    with receivers.HttpReceiver() as collector:
        with LiveExport(collector.endpoint + path, protocol="http/protobuf") as export:
            feed(export)
        assert export.close() is True
        assert set(collector.paths) == {wanted}


def test_the_protocol_argument_decides_for_an_http_url():
    with receivers.GrpcReceiver() as collector:
        with LiveExport(collector.endpoint.replace("grpc", "http"), protocol="grpc") as export:
            feed(export)
        assert export.close() is True
        assert receivers.canonical(*collector.requests) == expected("stub")


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [
        ("", None),
        ("localhost:4318", None),
        ("localhost", None),
        ("http://", None),
        ("http://host:port", None),
        ("http://host:0", None),
        ("http://host:70000", None),
        ("http://[::1", None),
        ("http://a b:4318", None),
        ("http://host:4318\n", None),
        ("http://host:4318/#x", None),
        ("http://me:secret@host:4318", None),
        ("ftp://host:4318", None),
        ("unix:///socket", None),
        ("grpc://host:4317/v1/traces", None),
        ("http://host:4317/v1/traces", "grpc"),
        ("grpc://host:4317", "http/protobuf"),
        ("http://host:4318", "http/json"),
    ],
)
def test_a_malformed_endpoint_is_refused_in_one_line(endpoint, protocol):
    with pytest.raises(InputError) as caught:
        LiveExport(endpoint, protocol=protocol)
    text = str(caught.value)
    assert "\n" not in text and caught.value.remedy and "secret" not in text


@pytest.mark.parametrize(
    ("endpoint", "protocol", "wanted"),
    [
        ("http://host", None, (False, "http://host/v1/traces")),
        ("HTTPS://host:1/", None, (False, "https://host:1/v1/traces")),
        ("grpc://[::1]:1", None, (True, "http://[::1]:1")),
        ("grpcs://host", None, (True, "https://host:4317")),
        ("https://host/", "grpc", (True, "https://host:4317")),
    ],
)
def test_endpoints_as_the_exporters_take_them(endpoint, protocol, wanted):
    assert target(endpoint, protocol)[:2] == wanted


# ---- in a process of its own: imports, globals, environment, faults ------------------------------------

RUN = """
import json, sys, time
endpoint, path = sys.argv[1:]
from tachograph.runtime.driver.events.listeners import RunEvent
from tachograph.tracing.endpoint import target
from tachograph.tracing.live import LiveExport
heavy = {"grpc", "google", "requests", "urllib3", "opentelemetry"}
early = sorted(heavy & {name.partition(".")[0] for name in sys.modules})
with open(path, encoding="utf-8") as file:
    lines = [json.loads(line) for line in file]
said = []
export = LiveExport(endpoint, on_problem=said.append)
for line in lines:
    export(RunEvent("line", line=line))
    time.sleep(0.15)
done = export.close()
import opentelemetry.trace, opentelemetry.metrics._internal
from opentelemetry.util._once import Once
trace, metrics = opentelemetry.trace, opentelemetry.metrics._internal
print(json.dumps({
    "done": done, "said": said, "early": early,
    "globals": [str(trace._TRACER_PROVIDER), str(metrics._METER_PROVIDER)],
}))
"""


def run_alone(endpoint, folder, **environment):
    """One small run in a fresh interpreter; its report, with `stderr` added."""
    path = folder / "state.jsonl"
    if not path.exists():
        path.write_text("\n".join(receivers.ledger()), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "-c", RUN, endpoint, str(path)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    return {**json.loads(finished.stdout), "stderr": finished.stderr}


@pytest.mark.parametrize("receiver", [receivers.HttpReceiver, receivers.GrpcReceiver])
def test_nothing_is_imported_early_and_no_provider_is_global(receiver, tmp_path):
    with receiver() as collector:
        report = run_alone(collector.endpoint, tmp_path, OTEL_PYTHON_METER_PROVIDER="sdk_meter_provider")
    assert report["done"] and report["said"] == [] and report["stderr"] == ""
    assert report["early"] == []
    assert report["globals"] == ["None", "None"]


ENVIRONMENT = {
    "OTEL_SDK_DISABLED": "true",
    "OTEL_SERVICE_NAME": "someone-else",
    "OTEL_RESOURCE_ATTRIBUTES": "service.name=x,deployment.environment=prod",
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process,os",
    "OTEL_TRACES_SAMPLER": "always_off",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_PROPAGATORS": "none",
    "OTEL_PYTHON_ID_GENERATOR": "random",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3",
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "1",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1",
    "OTEL_BSP_MAX_QUEUE_SIZE": "1",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
    "OTEL_BSP_SCHEDULE_DELAY": "60000",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "0.001",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0.001",
    "OTEL_EXPORTER_OTLP_INSECURE": "false",
    "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "false",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc",
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": "true",
}


@pytest.mark.parametrize("receiver", [receivers.HttpReceiver, receivers.GrpcReceiver])
def test_the_environment_changes_nothing_but_may_bring_credentials(receiver, tmp_path):
    with receiver() as collector:
        report = run_alone(collector.endpoint, tmp_path, **ENVIRONMENT)
        assert report["done"] and report["said"] == [] and report["stderr"] == ""
        assert receivers.canonical(*collector.requests) == expected("stub")
        for headers in collector.headers:
            assert {key.lower(): value for key, value in headers.items()}["authorization"] == "Bearer abc"


def test_a_variable_that_the_sdk_cannot_read_is_reported_and_not_fatal(tmp_path):
    with receivers.HttpReceiver() as collector:
        report = run_alone(collector.endpoint, tmp_path, OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="many")
    assert not report["done"] and report["stderr"] == ""
    assert len(report["said"]) == 1 and "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in report["said"][0]


BAD = {
    "http refused": lambda: receivers.Socket("refused"),
    "http silent": lambda: receivers.Socket("silent"),
    "http a byte a time": lambda: receivers.Socket("drip"),
    "http 503 retry-after": lambda: receivers.HttpReceiver(503, {"retry-after": "30"}),
    "http 503": lambda: receivers.HttpReceiver(503),
    "http 401": lambda: receivers.HttpReceiver(401),
    "http very slow": lambda: receivers.HttpReceiver(delay_s=10),
    "grpc refused": lambda: receivers.Socket("refused", "grpc"),
    "grpc silent": lambda: receivers.Socket("silent", "grpc"),
    "grpc no such protocol": lambda: receivers.Socket("drip", "grpc"),
    "grpc unavailable": lambda: receivers.GrpcReceiver(unavailable=True),
    "grpc very slow": lambda: receivers.GrpcReceiver(delay_s=10),
}
REASONS = {
    "http refused": "no connection",
    "http silent": "no answer within 2.5 s",
    "http a byte a time": "no answer within 2.5 s",
    "http 401": "status 401",
    "http very slow": "no answer within 2.5 s",
    "grpc refused": "no connection",
    "grpc silent": "no answer within 2.5 s",
    "grpc unavailable": "status UNAVAILABLE",
    "grpc very slow": "no answer within 2.5 s",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The report of a run against every bad collector, and against a good one; three at a time."""
    folder = tmp_path_factory.mktemp("faults")

    def one(name):
        with (receivers.HttpReceiver if name == "good" else BAD[name])() as collector:
            return {**run_alone(collector.endpoint, folder), "endpoint": collector.endpoint}

    names = ["good", *BAD]
    first = {"good": one("good")}  # also writes the ledger file that the others share
    with ThreadPoolExecutor(3) as pool:
        return first | dict(zip(names[1:], pool.map(one, names[1:]), strict=True))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_collector_costs_spans_and_a_bounded_wait(reports, name):
    report = reports[name]
    assert reports["good"]["done"] and report["done"] is False
    assert report["stderr"] == ""
    (line,) = report["said"]
    assert line.startswith(f"traces were not delivered to {report['endpoint']}: ")
    assert REASONS.get(name, "") in line and line.endswith(" spans lost)") and len(line) < 200


@pytest.mark.parametrize("receiver", [receivers.HttpReceiver, receivers.GrpcReceiver])
def test_a_slow_collector_gets_everything(receiver):
    said = []
    with receiver(delay_s=0.8) as collector:
        with LiveExport(collector.endpoint, on_problem=said.append) as export:
            feed(export)
        assert export.close() is True and said == []
        assert receivers.canonical(*collector.requests) == expected("stub")


# ---- what it leaves behind -----------------------------------------------------------------------------


def library_filters():
    loggers = {**logging.root.manager.loggerDict}
    return {name: list(getattr(logger, "filters", ())) for name, logger in loggers.items()}


def test_libraries_are_silent_for_the_time_and_no_longer(caplog, capfd):
    with receivers.HttpReceiver() as collector, LiveExport(collector.endpoint) as export:
        feed(export)
    before = library_filters()
    caplog.set_level(logging.DEBUG)
    said = []
    with receivers.Socket("refused") as nobody, LiveExport(nobody.endpoint, on_problem=said.append) as export:
        feed(export)
        logging.getLogger("urllib3.connectionpool").warning("of the application")
    assert [record.getMessage() for record in caplog.records] == ["of the application"]
    assert capfd.readouterr().err == ""
    export._worker.join(30)
    assert {name: library_filters()[name] for name in before} == before
    assert len(said) == 1


def test_the_queue_is_bounded_and_what_does_not_fit_is_counted(monkeypatch):
    monkeypatch.setattr(live, "QUEUE_SPANS", 5)
    monkeypatch.setattr(live, "LINGER_S", 5)
    said = []
    with receivers.HttpReceiver() as collector:
        export = LiveExport(collector.endpoint, on_problem=said.append)
        feed(export)
        assert export.close() is False
        assert export.close() is False
        assert len(receivers.canonical(*collector.requests)) == 5
    total = len(expected("stub"))
    lost = total - 5
    assert said == [
        f"traces were not delivered to {collector.endpoint}: full queue "
        f"({lost} of {total} spans lost, {lost} of them for want of room)"
    ]


def test_the_thread_ends_with_the_export():
    with receivers.GrpcReceiver() as collector:
        with LiveExport(collector.endpoint) as export:
            feed(export)
        assert not export._worker.is_alive()


def test_exporters_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InputError, match="pip install"):
        LiveExport("http://127.0.0.1:4318")


def test_spans_that_a_collector_rejects_are_counted_as_lost():
    partial = trace_service_pb2.ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 3
    said = []
    with scripted.Http(scripted.reply(body=partial.SerializeToString())) as collector:
        export = LiveExport(collector.endpoint, on_problem=said.append)
        feed(export)
        assert export.close() is False
        rejected = 3 * len(collector.bodies)
    total = len(expected("stub"))
    assert said == [
        f"traces were not delivered to {collector.endpoint}: it rejected some ({rejected} of {total} spans lost)"
    ]


@pytest.mark.parametrize("kind", ["stub", "live"])
def test_the_request_of_the_sdk_holds_the_spans_of_the_file(kind):
    spans = spans_of(receivers.lines(kind))
    request = encode_spans(sdk_spans(spans))
    assert receivers.canonical(request) == receivers.canonical(receivers.parse_document(document(spans)))
    assert [
        span.name for part in request.resource_spans for scope in part.scope_spans for span in scope.spans
    ] == [span.name for span in spans]
