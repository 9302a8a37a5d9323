"""`trace.json` as Jaeger's page takes it from a file.

The page reads the text with `JSON.parse`, wants an object with `resourceSpans`, and posts it, written anew, to
the server, which reads OTLP/JSON as the OpenTelemetry Collector does and makes one trace of each trace id.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "runs").glob("*/*/trace.json"))
WHOLE = re.compile(r"0|[1-9][0-9]{0,18}")
VALUES = {"stringValue", "intValue", "boolValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue"}


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_the_file_is_one_that_the_page_takes(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree = json.loads(text, parse_constant=_no_constant)
    assert isinstance(tree, dict) and list(tree) == ["resourceSpans"]
    _survives_javascript(tree)
    ids, parents, traces = set(), set(), set()
    for around in tree["resourceSpans"]:
        named = {item["key"]: item["value"] for item in around["resource"]["attributes"]}
        assert named["service.name"]["stringValue"]  # else the page shows a process without a name
        for scope in around["scopeSpans"]:
            for span in scope["spans"]:
                _span(span)
                traces.add(span["traceId"])
                ids.add(span["spanId"])
                parents.add(span.get("parentSpanId"))
    assert len(traces) == 1
    assert parents - {None} <= ids, "a span whose parent is missing is shown as a second root"
    assert None in parents


def _survives_javascript(value: Any) -> None:
    """Numbers that the page would round must not be numbers."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _survives_javascript(inner)
    else:
        assert not isinstance(value, float)
        assert isinstance(value, bool) or not isinstance(value, int) or abs(value) < 2**53


def _span(span: dict[str, Any]) -> None:
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and int(span["traceId"], 16)
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and int(span["spanId"], 16)
    assert span.get("parentSpanId") is None or re.fullmatch("[0-9a-f]{16}", span["parentSpanId"])
    assert span["name"] and span["kind"] in range(6)
    assert span.get("status", {}).get("code", 0) in (0, 1, 2)
    start, end = span["startTimeUnixNano"], span["endTimeUnixNano"]
    assert WHOLE.fullmatch(start) and WHOLE.fullmatch(end) and 0 < int(start) <= int(end)
    assert len({item["key"] for item in span["attributes"]}) == len(span["attributes"])
    for item in span["attributes"]:
        assert item["key"] and len(item["value"]) == 1 and set(item["value"]) <= VALUES


def test_there_are_files() -> None:
    assert len(FILES) > 30
