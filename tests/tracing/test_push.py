"""A recorded trace arrives whole, by each protocol, whatever the receiver answers first; or one reason says why not."""

import importlib.util
import json
import random
import socket
import ssl
import time
from email.utils import formatdate
from pathlib import Path

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tachograph.fail.errors import InputError
from tachograph.tracing import push
from tachograph.tracing.export import NotDelivered, read_answer, read_error, sdk_spans
from tachograph.tracing.otlp_json import document, span_text
from tachograph.tracing.push import Sender, batches
from tachograph.tracing.spans import Span, spans_of
from tests.runtime.workspace.test_http import made_certificate


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


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda *_: 0.01)  # the SDK's factor on its waits


def sent(endpoint, spans=SPANS, data=None, **options):
    """Send one trace; the receipt."""
    return Sender(endpoint, **{"timeout_s": 20.0, **options}).send(spans, data)


def refused(endpoint, **options):
    """The reason why a trace was not delivered."""
    with pytest.raises(NotDelivered) as caught:
        sent(endpoint, **options)
    return str(caught.value)


def arrived(collector, protocol):
    """The spans in what a collector got, in a form that can be compared."""
    if protocol == "http/json":
        return receivers.canonical(*map(receivers.parse_document, collector.bodies))
    return receivers.canonical(*map(ExportTraceServiceRequest.FromString, collector.bodies))


# ---- the same spans ------------------------------------------------------------------------------------


@BOTH
def test_what_arrives_is_what_the_file_says(receiver, protocol):
    with receiver() as collector:
        receipt = sent(collector.endpoint, protocol=protocol)
        assert arrived(collector, protocol) == EXPECTED
    assert receipt == (len(SPANS), 1, 0, "")


@BOTH
def test_twice_is_the_same_to_the_byte(receiver, protocol):
    with receiver() as collector:
        sent(collector.endpoint, protocol=protocol)
        sent(collector.endpoint, protocol=protocol)
        first, second = collector.bodies
    assert first == second


def test_json_is_the_very_file():
    data = document(SPANS)
    with Http() as collector:
        sent(collector.endpoint, data=data, protocol="http/json")
        assert collector.bodies == [data] and collector.kinds == ["application/json"]


@pytest.mark.parametrize(
    ("path", "wanted"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/a b", None), ("/a/ä?k=v w", None),
                         ("/api/%2F?c=d&e=%20", "/api/%2F?c=d&e=%20"), ("/ä", "/%C3%A4")]
)  # fmt: skip
def test_the_path_of_an_endpoint(path, wanted):
    with Http() as collector:
        if wanted is None:
            with pytest.raises(InputError):
                sent(collector.endpoint + path)
        else:
            sent(collector.endpoint + path)
            assert collector.paths == [wanted]


@BOTH
def test_large_traces_go_in_pieces_parents_first(monkeypatch, receiver, protocol):
    monkeypatch.setattr(push, "BATCH_BYTES", 2000)
    with receiver() as collector:
        receipt = sent(collector.endpoint, protocol=protocol)
        assert arrived(collector, protocol) == EXPECTED
        assert receipt.requests == len(collector.bodies) > 3
    assert all(len(body) < 2600 for body in collector.bodies)
    known = {None}
    for piece in batches(SPANS, 2000):
        for span in piece:
            assert span.parent_id in known
            known.add(span.span_id)


@BOTH
def test_no_request_is_too_large_for_a_receiver_as_it_comes(receiver, protocol):
    text = "ä" * 40_000
    many = [SPANS[0]._replace(span_id=f"{n:016x}", attributes={"a": text, "n": n}) for n in range(1, 100)]
    with receiver() as collector:
        assert sent(collector.endpoint, spans=many, protocol=protocol, timeout_s=20).requests == 3
        assert len(arrived(collector, protocol)) == 99
        assert max(map(len, collector.bodies)) < 4_000_000


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(300, 2000))
def test_pieces_hold_each_span_once_and_keep_to_the_limit(sizes, limit):
    spans = [
        Span("n", "ab" * 16, f"{n + 1:016x}", None, 1, 1, 2, {"a": "ä" * k}) for n, k in enumerate(sizes)
    ]
    pieces = list(batches(spans, limit))
    assert sorted(span.span_id for piece in pieces for span in piece) == [span.span_id for span in spans]
    for piece in pieces:
        assert len(piece) == 1 or sum(len(span_text(span).encode()) + 2 for span in piece) <= limit
        assert encode_spans(sdk_spans(piece)).ByteSize() <= len(document(piece))


# ---- a receiver that says not now ----------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_passing_refusal_is_met_again(status):
    with Http(reply(status), reply(status, b"later", "text/plain"), reply()) as collector:
        assert sent(collector.endpoint).rejected == 0
        assert len(collector.bodies) == 3 and len(set(collector.bodies)) == 1


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 405, 413, 415, 422, 500, 501])
def test_another_refusal_ends_it_at_once(status):
    with Http(reply(status, b'{"detail":"of its own"}', "application/json")) as collector:
        why = refused(collector.endpoint)
        assert (
            why.startswith(f"status {status}") and why.endswith(": of its own") and len(collector.bodies) == 1
        )


@pytest.mark.parametrize(
    "said", ["3600", formatdate(time.time() + 4000, usegmt=True)], ids=["seconds", "date"]
)
def test_nobody_is_asked_again_before_the_time_that_it_names(said):
    with Http(reply(503, retry_after=said)) as collector:
        why = refused(collector.endpoint, timeout_s=100)
        assert f"asked to wait: {said!r}" in why
        assert len(collector.bodies) == 1


@pytest.mark.parametrize(
    "code", ["UNAVAILABLE", "ABORTED", "CANCELLED", "OUT_OF_RANGE", "DATA_LOSS", "RESOURCE_EXHAUSTED"]
)
def test_a_passing_refusal_is_met_again_by_grpc(code):
    with Grpc(abort(grpc.StatusCode[code]), b"") as collector:
        sent(collector.endpoint)
        assert len(collector.bodies) == 2


def test_what_grpc_refuses_for_good_ends_it():
    with Grpc(abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")) as collector:
        why = refused(collector.endpoint)
        assert why == "status UNAUTHENTICATED: who are you" and len(collector.bodies) == 1


def test_grpc_waits_as_long_as_it_is_asked_to():
    delay = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=3600)).SerializeToString()
    with Grpc(abort(grpc.StatusCode.UNAVAILABLE, **{"google.rpc.retryinfo-bin": delay})) as collector:
        assert refused(collector.endpoint) == "status UNAVAILABLE: not now"
        assert len(collector.bodies) == 1


# ---- partial success, and answers that are none --------------------------------------------------------

PARTIAL = ExportTraceServiceResponse()
PARTIAL.partial_success.rejected_spans = 3
PARTIAL.partial_success.error_message = "too old"
WARNING = ExportTraceServiceResponse()
WARNING.partial_success.error_message = "mind this"


@pytest.mark.parametrize("count", ["3", 3])
def test_spans_refused_are_counted_in_json(count):
    body = json.dumps({"partialSuccess": {"rejectedSpans": count, "errorMessage": "too old"}}).encode()
    with Http(reply(body=body, kind="application/json; charset=utf-8")) as collector:
        assert sent(collector.endpoint, protocol="http/json") == (len(SPANS), 1, 3, "too old")


@pytest.mark.parametrize(("message", "wanted"), [(PARTIAL, (3, "too old")), (WARNING, (0, "mind this"))])
def test_spans_refused_are_counted_in_protobuf(message, wanted):
    data = message.SerializeToString()
    with Http(reply(body=data)) as collector:
        assert sent(collector.endpoint)[2:] == wanted
    with Grpc(data) as collector:
        assert sent(collector.endpoint)[2:] == wanted


@pytest.mark.parametrize(
    "answer", [reply(body=b"<html>hello</html>", kind="text/html"), reply(body=b"\xff\xff\xff\xff"),
               reply(body=b"[]", kind="application/json"), reply(body=b"[" * 60_000, kind="application/json")]
)  # fmt: skip
def test_a_server_that_is_no_receiver_is_not_believed(answer):
    with Http(answer) as collector:
        why = refused(collector.endpoint)
        assert why.startswith("status 200, but the answer is none of an OTLP receiver")


KINDS = (
    st.sampled_from(["application/json", "application/x-protobuf", "text/plain", "text/html", ""]) | st.text()
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["partialSuccess", "rejectedSpans", "errorMessage", "message", "detail"]), inner),
)  # fmt: skip


@settings(deadline=None)
@given(st.binary() | JSONS.map(lambda value: json.dumps(value).encode()), KINDS)
def test_no_answer_breaks_the_reader(data, kind):
    taken = read_answer(data, kind)
    assert taken is None or (taken.rejected >= 0 and isinstance(taken.message, str))
    assert isinstance(read_error(data, kind), str)


# ---- receivers that are not there, or slow -------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_receiver_that_is_not_there_is_tried_a_few_times(scheme):
    with receivers.Socket("refused", scheme) as nobody:
        why = refused(nobody.endpoint)
    assert why.startswith("no connection")


@pytest.mark.parametrize(("how", "scheme"), [("silent", "http"), ("drip", "http"), ("silent", "grpc")])
def test_the_time_for_a_trace_is_kept(how, scheme):
    with receivers.Socket(how, scheme) as collector:
        why = refused(collector.endpoint, timeout_s=0.7)
    assert why == "no answer within 0.7 s"


def test_a_slow_receiver_gets_everything():
    with Http(reply(delay_s=0.6)) as collector:
        assert sent(collector.endpoint, timeout_s=20).rejected == 0


def test_a_name_that_nobody_has(monkeypatch):
    def nobody(*_, **__):
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    assert refused("http://nobody.invalid:4318") == "no connection (gaierror)"


def test_a_port_of_the_other_protocol_is_hinted_at():
    with Grpc() as collector:
        assert "is it a gRPC port?" in refused(collector.endpoint.replace("grpc", "http"))


def test_a_redirect_is_not_followed():
    with Http() as other, Http(reply(307, location=other.endpoint + "/v1/traces")) as collector:
        assert "points elsewhere" in refused(collector.endpoint, headers=[("authorization", "x")])
        assert other.bodies == []


def test_tls_is_checked(tmp_path, monkeypatch):
    certificate = made_certificate(tmp_path, "-addext", "subjectAltName=DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Http(context=context) as collector:
        endpoint = f"https://localhost:{collector.port}"
        assert refused(endpoint) == "no secure connection (SSLCertVerificationError)"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert sent(endpoint).requests == 1
        assert len(collector.bodies) == 1


def test_tls_is_checked_by_grpc_with_the_same_roots(tmp_path, monkeypatch):
    certificate = made_certificate(tmp_path, "-addext", "subjectAltName=DNS:localhost")
    data = certificate.read_bytes()
    with Grpc(credentials=grpc.ssl_server_credentials([(data, data)])) as collector:
        endpoint = f"grpcs://localhost:{collector.port}"
        assert refused(endpoint) == "no connection"
        assert collector.bodies == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert sent(endpoint).requests == len(collector.bodies) == 1
