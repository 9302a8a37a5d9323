"""`trace.json` is OTLP, read with the official types, whatever text is in it."""

import importlib.util
import json
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tachograph.tracing.otlp_json import TraceWriter, document
from tachograph.tracing.spans import Span, spans_of


def _load(name):
    spec = importlib.util.spec_from_file_location(f"_tracing_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


receivers = _load("receivers")


@pytest.fixture(params=["stub", "live"])
def spans(request):
    return spans_of(receivers.lines(request.param))


def spans_in(message):
    return [
        span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]


def test_the_official_types_read_what_was_written(spans):
    message = receivers.parse_document(document(spans))
    parsed = spans_in(message)
    assert len(message.resource_spans) == len(message.resource_spans[0].scope_spans) == 1
    assert len(parsed) == len(spans)
    for span, source in zip(parsed, spans, strict=True):
        assert span.name == source.name
        assert (span.trace_id.hex(), span.span_id.hex()) == (source.trace_id, source.span_id)
        assert span.parent_span_id.hex() == (source.parent_id or "")
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (source.start_ns, source.end_ns)
        assert (span.kind, span.status.code) == (source.kind, 2 if source.error_type else 0)
        assert not (span.status.message or span.events or span.links)
        assert {item.key: _value(item.value) for item in span.attributes} == source.attributes


def _value(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


def test_it_survives_the_round_trip(spans):
    message = receivers.parse_document(document(spans))
    again = json_format.Parse(json_format.MessageToJson(message), TracesData())
    assert again == message
    assert TracesData.FromString(message.SerializeToString()) == message


def test_ids_are_whole_and_no_two_are_the_same(spans):
    parsed = spans_in(receivers.parse_document(document(spans)))
    for span in parsed:
        assert len(span.trace_id) == 16 and any(span.trace_id)
        assert len(span.span_id) == 8 and any(span.span_id)
        assert span.parent_span_id == b"" or (len(span.parent_span_id) == 8 and any(span.parent_span_id))
    assert len({span.trace_id for span in parsed}) == 1
    assert len({span.span_id for span in parsed}) == len(parsed)


def test_there_is_one_root_and_every_span_lies_inside_its_parent(spans):
    parsed = {span.span_id: span for span in spans_in(receivers.parse_document(document(spans)))}
    assert [span.name for span in parsed.values() if not span.parent_span_id] == ["agent_run"]
    for span in parsed.values():
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span.parent_span_id:
            parent = parsed[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_the_runs_show_what_the_other_tests_rely_on():
    stub, live = (spans_of(receivers.lines(kind)) for kind in ("stub", "live"))
    names = {"agent_run", "agent_step", "llm_call", "policy_check", "tool_call", "retry_attempt"}
    assert {span.name for span in stub} == {span.name for span in live} == names
    assert any(span.error_type for span in stub) and {span.kind for span in live} == {1, 3}


def test_integers_are_strings_and_enums_are_numbers(spans):
    tree = json.loads(document(spans))
    for span in tree["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        assert all(span[key].isdecimal() for key in ("startTimeUnixNano", "endTimeUnixNano"))
        assert type(span["kind"]) is int
        numbers = [item["value"]["intValue"] for item in span["attributes"] if "intValue" in item["value"]]
        assert all(type(number) is str for number in numbers)


def test_piece_by_piece_gives_the_same_bytes(spans):
    parts = []
    writer = TraceWriter(parts.append)
    for span in spans:
        writer.add([span])
    writer.close()
    assert b"".join(parts) == document(spans)


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"', "\\", "\n", "\r\n", "\u2028", "\x00", "\x85", "},\n{", "𝄞"]
)
VALUE = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.lists(TEXT, max_size=3)
ATTRIBUTES = st.dictionaries(TEXT.filter(bool), VALUE, max_size=4)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT, ATTRIBUTES), min_size=1, max_size=5))
def test_any_text_leaves_one_span_a_line(contents):
    spans = [
        Span(name, "ab" * 16, f"{number + 1:016x}", None, 1, 1, 2, attributes)
        for number, (name, attributes) in enumerate(contents)
    ]
    data = document(spans)
    assert data.count(b"\n") == len(spans) + 2  # one after the head, one before and one after the tail
    middle = data.split(b"\n")[1:-2]
    assert [json.loads(line.removesuffix(b","))["name"] for line in middle] == [span.name for span in spans]
    for parsed, span in zip(spans_in(receivers.parse_document(data)), spans, strict=True):
        assert {item.key: _value(item.value) for item in parsed.attributes} == span.attributes
