"""The quick looks fail when their subject is emptied or bent, and close with one clear line."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev import smoke
from tests.evidence.project import CANONICAL_TRACE, DENIED, FEW, copy_inputs, replaced
from tests.support import ROOT, TASK, environment

KINDS = ("smoke", "trace-smoke", "tool-smoke")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", FEW)


def look(kind: str, root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = smoke.main(kind, root)
    out, err = capsys.readouterr()
    assert err == "" and "Traceback" not in out and "\x1b" not in out
    return code, out.splitlines()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whole", [True, False], ids=["the project", "a copy of a part"])
def test_what_is_whole_passes_with_one_line(
    kind: str, whole: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = look(kind, ROOT if whole else project, capsys)
    assert (code, lines) == (0, [f"{kind}: all is as it says"])


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _spans(project: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((project / CANONICAL_TRACE).read_bytes())
    return data


def _bend(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], object]:
    """Change the spans of the canonical trace; the root is the last of them, the second is an llm_call."""

    def do(project: Path) -> None:
        document = _spans(project)
        change(document["resourceSpans"][0]["scopeSpans"][0]["spans"])
        (project / CANONICAL_TRACE).write_text(json.dumps(document))

    return do


def _set(number: int, **values: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda spans: spans[number].update(values)


def _without(number: int, key: str) -> Callable[[list[dict[str, Any]]], object]:
    return lambda spans: spans[number].pop(key)


def _in_base64(spans: list[dict[str, Any]]) -> None:
    for span in spans:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()


def _upper(spans: list[dict[str, Any]]) -> None:
    for span in spans:
        span["traceId"] = span["traceId"].upper()


def _no_attribute(spans: list[dict[str, Any]]) -> None:
    spans[1]["attributes"] = [a for a in spans[1]["attributes"] if a["key"] != "gen_ai.request.model"]


def _text(name: str, text: str) -> Callable[[Path], object]:
    return lambda project: (project / name).write_text(text)


def _swap(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda project: replaced(project / name, old, new)


def _no_table(project: Path) -> None:
    (project / "docs/capabilities.md").write_text("# Capabilities\n")


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    # ---- smoke -----------------------------------------------------------------------------------------
    "no page": (
        "smoke",
        lambda p: (p / "docs/capabilities.md").unlink(),
        "docs/capabilities.md: lists no run",
    ),
    "no table": ("smoke", _no_table, "docs/capabilities.md: lists no run"),
    "a page that is no text": (
        "smoke",
        lambda p: (p / "docs/capabilities.md").write_bytes(b"\xff\xfe"),
        "docs/capabilities.md: cannot be read (UnicodeDecodeError)",
    ),
    "a row that says otherwise": (
        "smoke",
        _swap("docs/capabilities.md", "1 agent_run, 5 agent_step", "1 agent_run, 6 agent_step"),
        "docs/capabilities.md: runs/canonical/v1 has other spans than it says",
    ),
    "a row for no run": (
        "smoke",
        _swap(
            "docs/capabilities.md",
            "- A governed run",
            "- x:\n  [`b`](../runs/a/b)\n  1 agent_run\n- A governed run",
        ),
        "docs/capabilities.md: names runs/a/b, where there is no trace",
    ),
    "a run without a row": (
        "smoke",
        lambda p: shutil.copytree(p / DENIED, p / "runs/policy_gates/more"),
        "docs/capabilities.md: runs/policy_gates/more is not listed",
    ),
    "a stale page": (
        "smoke",
        _swap("docs/policy-gates.md", "# Policy gates", "# Policy gate"),
        "docs/policy-gates.md: is not what catalog and runs give; write it with `make evidence-build`",
    ),
    "a page that is gone": (
        "smoke",
        lambda p: (p / "docs/failure-modes.md").unlink(),
        "docs/failure-modes.md: is not what catalog and runs give; write it with `make evidence-build`",
    ),
    "no tasks": ("smoke", lambda p: _empty(p / "tasks"), "tasks/: holds no task"),
    "no folder of tasks": ("smoke", lambda p: shutil.rmtree(p / "tasks"), "tasks/: holds no task"),
    "a task that does not load": (
        "smoke",
        _swap(TASK, "schema: task/v1", "schema: task/v9"),
        f"{TASK}:3:9: ",
    ),
    "a task under another name": (
        "smoke",
        _swap(TASK, "id: canonical-v1", "id: canonical-v2"),
        f"{TASK}: its id 'canonical-v2' is not its place",
    ),
    "no runs": (
        "smoke",
        lambda p: shutil.rmtree(p / "runs"),
        "runs/INDEX.json: is missing; `tachograph index` writes it",
    ),
    "a run that is gone": (
        "smoke",
        lambda p: shutil.rmtree(p / DENIED),
        f"docs/capabilities.md: names {DENIED}, where there is no trace",
    ),
    "a trace that is a list": (
        "smoke",
        _text(CANONICAL_TRACE, "[]"),
        "docs/capabilities.md: names runs/canonical/v1, where there is no trace",
    ),
    "a ledger of another shape": (
        "smoke",
        lambda p: (p / DENIED / "state.jsonl").write_text("{}\n"),
        f"{DENIED}/state.jsonl:1: ",
    ),
    "no policy": ("smoke", lambda p: (p / "policy/v1.yaml").unlink(), "policy/v1.yaml: "),
    "a policy that does not load": (
        "smoke",
        _swap("policy/v1.yaml", "on_deny:", "on_denial:"),
        "policy/v1.yaml:",
    ),
    "an overlay that no task uses": (
        "smoke",
        _text("policy/overlays/more.yaml", "on_deny: perhaps\n"),
        "policy/overlays/more.yaml:1:10: ",
    ),
    # ---- trace-smoke -----------------------------------------------------------------------------------
    "no recorded run": ("trace-smoke", lambda p: _empty(p / "runs"), "runs/: holds no recorded run"),
    "a trace that is gone": (
        "trace-smoke",
        lambda p: (p / CANONICAL_TRACE).unlink(),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (FileNotFoundError)",
    ),
    "a trace without spans": (
        "trace-smoke",
        _bend(lambda spans: spans.clear()),
        f"{CANONICAL_TRACE}: holds no span",
    ),
    "ids in base64": (
        "trace-smoke",
        _bend(_in_base64),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (ValueError)",
    ),
    "one id in base64": (
        "trace-smoke",
        _bend(_set(0, spanId="YWJjZGVmZ2g=")),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (ValueError)",
    ),
    "ids in upper case": (
        "trace-smoke",
        _bend(_upper),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (ValueError)",
    ),
    "an id that is too short": (
        "trace-smoke",
        _bend(_set(1, spanId="00ff")),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (ValueError)",
    ),
    "an id of zeros": (
        "trace-smoke",
        _bend(_set(1, spanId="0" * 16)),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (ValueError)",
    ),
    "an id that is a number": (
        "trace-smoke",
        _bend(_set(1, spanId=7)),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (TypeError)",
    ),
    "a parent that is gone": (
        "trace-smoke",
        _bend(lambda spans: spans.pop(0)),
        "has a parent that is not there",
    ),
    "a key that OTLP does not know": (
        "trace-smoke",
        _bend(_set(1, colour="red")),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (ValueError)",
    ),
    "a span without attributes": (
        "trace-smoke",
        _bend(_without(1, "attributes")),
        f"{CANONICAL_TRACE}: is not an OTLP/JSON trace (KeyError)",
    ),
    "an attribute too few": ("trace-smoke", _bend(_no_attribute), "(llm_call) lacks gen_ai.request.model"),
    "a name that is not ours": ("trace-smoke", _bend(_set(1, name="chat")), "(chat) has an unknown name"),
    "a second root": ("trace-smoke", _bend(_without(0, "parentSpanId")), "has not exactly one root"),
    "a span under the wrong parent": (
        "trace-smoke",
        _bend(lambda spans: spans[3].update(parentSpanId=spans[-1]["spanId"])),
        "stands under the wrong parent",
    ),
    "a span that does not last": (
        "trace-smoke",
        _bend(lambda spans: spans[1].update(endTimeUnixNano=spans[1]["startTimeUnixNano"])),
        "(llm_call) does not last",
    ),
    "a span beyond its parent": (
        "trace-smoke",
        _bend(_set(1, endTimeUnixNano="1867225600000000000")),
        "(llm_call) reaches beyond its parent",
    ),
    "a span twice": ("trace-smoke", _bend(lambda spans: spans.append(spans[1])), "has a span id twice"),
    "two trace ids": ("trace-smoke", _bend(_set(1, traceId="ab" * 16)), "has more than one trace id"),
    "one trace id for two runs": (
        "trace-smoke",
        lambda p: shutil.copy(p / CANONICAL_TRACE, p / DENIED / "trace.json"),
        f"{DENIED}/trace.json: has the trace id of {CANONICAL_TRACE}",
    ),
    # ---- tool-smoke ------------------------------------------------------------------------------------
    "no tools": ("tool-smoke", lambda p: _empty(p / "tools"), "tools/: holds no tool"),
    "a tool that is gone": ("tool-smoke", lambda p: (p / "tools/read.py").unlink(), "tools/read.py: is gone"),
    "a tool without examples": (
        "tool-smoke",
        _swap("tools/read.py", "EXAMPLES: ", "MORE: "),
        "tools/read.py: has no EXAMPLES",
    ),
    "a good example that does not fit": (
        "tool-smoke",
        _swap("tools/read.py", '"good": {"path": "corpus/op-a1.md"}', '"good": {"path": 7}'),
        "tools/read.py: has a good call in EXAMPLES that its INPUT_SCHEMA refuses",
    ),
    "a bad example that fits": (
        "tool-smoke",
        _swap(
            "tools/read.py", '"bad": {"path": ["corpus/op-a1.md"]}', '"bad": {"path": "elsewhere/op-a1.md"}'
        ),
        "tools/read.py: has a bad call in EXAMPLES that its INPUT_SCHEMA accepts",
    ),
    "a tool that is empty": ("tool-smoke", _text("tools/read.py", ""), "tools/read.py: "),
    "a tool that fails": (
        "tool-smoke",
        _swap("tools/read.py", "io.read(", "io.peek("),
        "tools/read.py: its good call does not succeed",
    ),
    "a tool that takes anything": (
        "tool-smoke",
        _swap("tools/fetch.py", '"required": ["url"]', '"required": []'),
        "tools/fetch.py: its bad call is not denied",
    ),
    "no corpus": (
        "tool-smoke",
        lambda p: shutil.rmtree(p / "data"),
        "data/corpus/v1: the folder of mount 'corpus' cannot be opened",
    ),
    "no policy for tools": ("tool-smoke", lambda p: (p / "policy/v1.yaml").unlink(), "policy/v1.yaml: "),
}


@pytest.mark.parametrize("name", BROKEN)
def test_it_fails_and_names_the_place(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, do, said = BROKEN[name]
    do(project)
    code, lines = look(kind, project, capsys)
    assert code == 1, lines
    assert [line for line in lines[:-1] if said in line], lines
    number = len(lines) - 1
    assert lines[-1] == f"{kind}: {number} problem{'s' if number > 1 else ''}"
    assert not [line for line in lines if str(project) in line]
    assert len(set(lines)) == len(lines)


def test_every_kind_is_broken_in_some_way() -> None:
    assert {kind for kind, _, _ in BROKEN.values()} == set(KINDS) == set(smoke.KINDS)


@pytest.mark.parametrize("words", [(), ("smok",), ("smoke", "more")])
def test_an_unknown_kind_is_one_line(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dev.smoke", *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("tachograph: ") and "smoke, trace-smoke, tool-smoke" in line


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_exits_as_it_says(kind: str, project: Path) -> None:
    shutil.rmtree(project / "runs")
    shutil.rmtree(project / "tools")
    for root, code in ((ROOT, 0), (project, 1)):
        done = subprocess.run(
            [sys.executable, "-m", "dev.smoke", kind],
            cwd=root,
            env=environment({"PYTHONPATH": str(ROOT)}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, "")
        assert done.stdout.splitlines()[-1].startswith(f"{kind}: ")


# ---- smoke-runtime -------------------------------------------------------------------------------------


PARTS = {"loop": "loop/test_loop.py", "gate": "policy/test_gate.py", "retry": "loop/test_retry.py"}
GREEN = "def test_it():\n    pass\n"


def _smoke_runtime(place: Path) -> subprocess.CompletedProcess[str]:
    """The recipe of `make smoke-runtime`, run in `place` with this Python."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^smoke-runtime:.*\n((?:\t.*\n)+)", text, re.M)
    assert recipe is not None
    lines = [line.strip().removeprefix("@") for line in recipe[1].splitlines()]
    script = "\n".join(lines).replace("$(PY)", shlex.quote(sys.executable)).replace("$$", "$")
    command = ["bash", "-e", "-c", script]
    return subprocess.run(
        command, cwd=place, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("state", ["empty", "gone", "failing"])
def test_smoke_runtime_fails_without_any_of_its_tests(state: str, part: str, tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "runtime"
    for file in PARTS.values():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(GREEN)
    done = _smoke_runtime(tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "smoke-runtime: loop, gate and retry pass"
    broken = folder / PARTS[part]
    if state == "gone":
        broken.unlink()
    else:
        broken.write_text("" if state == "empty" else GREEN.replace("pass", "assert False"))
    done = _smoke_runtime(tmp_path)
    assert done.returncode != 0 and "smoke-runtime:" not in done.stdout


def test_the_tests_that_smoke_runtime_names_are_there() -> None:
    for file in PARTS.values():
        assert (ROOT / "tests/runtime" / file).is_file()
