"""`tachograph push`: what it sends of a record, what it refuses to send, and what it says."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tachograph.cli import main as command_line
from tachograph.tracing import push as sending
from tests.evidence.project import all_runs, edit_lines, replaced
from tests.support import ROOT
from tests.tables.output_texts import TEXTS

SCRIPTED = ROOT / "tests/tracing/scripted.py"
CANONICAL, DENIED = "runs/canonical/v1", "runs/policy_gates/pg1_off_allowlist_url"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("_push_scripted", SCRIPTED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scripted = _load()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(random, "uniform", lambda *_: 0.01)  # the SDK's factor on its waits


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and complaint of `tachograph push`."""
    capsys.readouterr()
    code = command_line.main(["push", *words])
    return (code, *capsys.readouterr())


def test_every_recorded_run_goes_out_as_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [path.relative_to(ROOT).as_posix() for path in all_runs()]
    with scripted.Http() as collector:
        code, out, err = said(
            capsys, *runs, "--endpoint", collector.endpoint, "--protocol", "http/json", "--timeout", "20"
        )
        assert (code, err) == (0, "")
        assert collector.bodies == [(ROOT / run / "trace.json").read_bytes() for run in runs]
    *lines, last = out.splitlines()
    assert len(lines) == len(runs)
    for line, run, body in zip(lines, runs, collector.bodies, strict=True):
        trace = json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert line.split() == ["sent", trace[0]["traceId"], str(len(trace)), "spans", run]
    assert last.startswith(f"push: {len(runs)} runs, ") and last.endswith("; times and ids as recorded")


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted.Http() as collector:
        code, out, err = said(
            capsys, CANONICAL, "--endpoint", f"{collector.endpoint}/v1/traces?key=abc", "--json"
        )
    data = json.loads(out)
    assert (code, err, data["problem"]) == (0, "", None)
    assert data["sent"][0] == {
        "run": CANONICAL,
        "trace_id": "ba4c97ae94d7fda0c981b66cc82f2bf8",
        "spans": 23,
        "requests": 1,
        "rejected": 0,
        "message": "",
    }
    assert out == json.dumps(data, sort_keys=True) + "\n" and "abc" not in out


def test_a_moved_trace_is_another_one_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted.Http() as collector:
        words = (CANONICAL, "--endpoint", collector.endpoint, "--protocol", "http/json")
        code, out, _ = said(capsys, *words, "--now", "--content")
        assert code == 0 and "times moved to end now, ids of their own, with what was said" in out
        spans = json.loads(collector.bodies[0])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    kept = {item["key"]: item["value"] for item in spans[-1]["attributes"]}
    assert kept["agent.recorded.trace_id"] == {"stringValue": "ba4c97ae94d7fda0c981b66cc82f2bf8"}
    assert (
        spans[0]["traceId"] != kept["agent.recorded.trace_id"]["stringValue"] and spans[0]["traceId"] in out
    )
    assert abs(max(int(span["endTimeUnixNano"]) for span in spans) - sending.now_ns()) < 20e9
    assert kept["input.value"]["stringValue"].startswith("What must a driver do")


# ---- what is not sent ----------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for run in (CANONICAL, DENIED):
        shutil.copytree(ROOT / run, tmp_path / run)
    for inputs in ("policy", "tasks"):
        shutil.copytree(ROOT / inputs, tmp_path / inputs)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _edit_trace(project: Path) -> None:
    replaced(project / DENIED / "trace.json", '"deny"', '"allow"')


def _edit_ledger(project: Path) -> None:
    replaced(project / DENIED / "state.jsonl", '"decision":"deny"', '"decision":"allow"')


def _edit_ledger_and_chain(project: Path) -> None:
    edit_lines(
        project / DENIED,
        lambda lines: lines[1]["policy_decisions"][0].update(decision="allow"),
        chain=True,
    )


def _cut_off(project: Path) -> None:
    state = project / DENIED / "state.jsonl"
    state.write_bytes(b"".join(state.read_bytes().splitlines(keepends=True)[:-1]))


def _no_trace(project: Path) -> None:
    (project / DENIED / "trace.json").unlink()


@pytest.mark.parametrize("change", [_edit_trace, _edit_ledger, _edit_ledger_and_chain, _cut_off, _no_trace])
def test_a_record_that_does_not_hold_is_not_sent_nor_any_beside_it(
    project: Path, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    change(project)
    with scripted.Http() as collector:
        code, out, err = said(capsys, CANONICAL, DENIED, "--endpoint", collector.endpoint)
        assert (code, out, collector.bodies) == (2, "", [])
        (line,) = err.splitlines()
        assert line.startswith(f"tachograph: {DENIED}: nothing was sent") and "tachograph verify" in line
        code, _, err = said(capsys, CANONICAL, "--endpoint", collector.endpoint)
        assert (code, err, len(collector.bodies)) == (0, "", 1)


@pytest.mark.parametrize(
    "words",
    [
        ["runs/nothing", "--endpoint", "http://127.0.0.1:9"],
        ["src", "--endpoint", "http://127.0.0.1:9"],
        [CANONICAL, "--endpoint", "127.0.0.1:9"],
        [CANONICAL, "--endpoint", "http://127.0.0.1:9", "--protocol", "udp"],
        [CANONICAL, "--endpoint", "http://127.0.0.1:9", "--header", "hunter2"],
        [CANONICAL, "--endpoint", "http://127.0.0.1:9", "--header", "a=hunter2\n"],
        [CANONICAL, "--endpoint", "http://127.0.0.1:9", "--header", "a=hunter2\nb"],
        [CANONICAL, "--endpoint", "http://127.0.0.1:9", "--timeout", "-1"],
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = said(capsys, *words)
    assert "hunter2" not in err
    if words[-1] == "a=hunter2\n":
        assert (code, "no connection" in err) == (1, True)  # space around a value is none of it
        return
    assert (code, out, len(err.splitlines())) == (2, "", 1) and err.startswith("tachograph: ")


# ---- receivers that do not take it ---------------------------------------------------------------------


def test_nobody_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, CANONICAL, DENIED, "--endpoint", "http://127.0.0.1:9")
    assert (code, out) == (1, "")
    assert err == (
        f"tachograph: {CANONICAL}: not delivered to http://127.0.0.1:9: no connection (ConnectionRefusedError)"
        "; start a receiver there, or give the --endpoint of one (0 of 2 runs were sent)\n"
    )


def test_it_stops_at_the_first_run_that_is_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted.Http(scripted.reply(), scripted.reply(401)) as collector:
        words = (CANONICAL, DENIED, CANONICAL, "--endpoint", collector.endpoint)
        code, out, err = said(capsys, *words)
        assert (code, len(out.splitlines()), len(err.splitlines())) == (1, 1, 1)
        said_so = "status 401; give the key that the receiver asks for, by --header (1 of 3 runs were sent)"
        assert said_so in err and len(collector.bodies) == 2
        code, out, err = said(capsys, *words, "--json")
        assert code == 1 and "status 401" in json.loads(out)["problem"] and json.loads(out)["sent"] == []


def test_spans_refused_are_told_and_the_other_runs_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    partial, warning = ExportTraceServiceResponse(), ExportTraceServiceResponse()
    partial.partial_success.rejected_spans, partial.partial_success.error_message = 2, "too old"
    warning.partial_success.error_message = "mind this"
    script = [scripted.reply(body=message.SerializeToString()) for message in (partial, warning)]
    with scripted.Http(*script) as collector:
        code, out, _ = said(capsys, DENIED, CANONICAL, "--endpoint", collector.endpoint)
    assert code == 1
    assert out.splitlines()[0] == f"refused  {DENIED}  2 of 4 spans refused: too old"
    assert "it says: mind this" in out and "push: 2 runs, 25 spans" in out


def test_how_far_it_is_is_shown_at_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted.Http() as collector:
        words = (CANONICAL, DENIED, "--endpoint", collector.endpoint, "--json")
        assert said(capsys, *words)[2] == ""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        code, out, err = said(capsys, *words)
    assert code == 0 and json.loads(out)["problem"] is None
    assert err == "".join(f"\rpush: step {n} of 4" for n in range(1, 5)) + "\r\x1b[K"


CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def test_no_words_of_a_receiver_do_anything(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for kind in TEXTS.values() for text in itertools.islice(kind(), 0, None, 45)]
    assert len(texts) > 50
    script = []
    for text in texts:
        plain = text.encode("utf-8", "replace").decode()
        body, partial = Status(message=plain).SerializeToString(), ExportTraceServiceResponse()
        partial.partial_success.error_message = plain
        script += [scripted.reply(403, body), scripted.reply(body=partial.SerializeToString())]
    with scripted.Http(*script) as collector:
        words = (DENIED, "--endpoint", collector.endpoint)
        for _ in texts:
            code, out, err = said(capsys, *words)
            assert (code, out, err.count("\n")) == (1, "", 1) and not CONTROL.search(err) and len(err) < 3000
            code, out, err = said(capsys, *words)
            assert (code, err) == (0, "") and not CONTROL.search(out) and out.count("\n") in (2, 3)


def test_secrets_of_headers_are_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    echo = scripted.reply(400, b'{"message":"bad key sk-very-secret"}', "application/json")
    with scripted.Http(scripted.reply(), echo) as collector:
        words = (CANONICAL, DENIED, "--endpoint", collector.endpoint, "--header", "X-Key=sk-very-secret")
        for more in ((), ("--json",)):
            code, out, err = said(capsys, *words, *more)
            assert code == 1 and "very-secret" not in out + err
        assert {headers["x-key"] for headers in collector.headers} == {"sk-very-secret"}
