"""A forger who changes a field, and all that follows from it, passes only where the field is listed as unproven.

Of the committed runs a part is forged here; `make forgeries` forges all of them. Runs that are made here show that
each entry of the list is there for a reason.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

import pytest

from tachograph.evidence.checking.check import examine, runs_below
from tachograph.evidence.checking.proof import UNPROVEN, Unproven, pointers, proof_of, unproven_field
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import TransientModelError
from tachograph.runtime.core.effects import Answer, Invoke, Outcome
from tachograph.runtime.driver.live_executor import LiveExecutor
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tests.evidence.forgeries import (
    Seen,
    forge_all,
    forge_copy,
    forged_values,
    in_part,
    lines_of,
    manifest_of,
    seen_in,
)
from tests.evidence.project import copy_inputs, live_task, replaced, tachograph
from tests.support import CANONICAL, ROOT

GIVEN_TASK = "tasks/policy_gates/approval_given.yaml"
GIVEN = "runs/policy_gates/approval_given"
LIVE = "runs/live/smollm"
EXTERNAL = "runs/examples/json_api"
NOTE = ToolCall("write", {"path": "sandbox/note.md", "content": "x"})


class Live:
    """A model that is no script: replies in turn, of which it raises those that are errors."""

    identity: ClassVar = {
        "execution_path": "live",
        "provider": "openai",
        "name": "some",
        "script_digest": None,
        "options": {"temperature": 0},
    }

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)

    def __call__(self, asked: LLMInput) -> LLMOutput:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply() if callable(reply) else reply


@pytest.fixture(scope="module")
def seen() -> Seen:
    found = seen_in(runs_below(ROOT))
    run = lines_of(ROOT / CANONICAL)[0]
    found["run", "/approvals"] = ["file"]
    found["run", "/nonce"] = ["0" * 32, "f" * 32]
    found["run", "/rebased"] = [[{key: run[key] for key in ("policy", "tools", "task")}]]
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("forged") / "project", ["policy_gates/approval_given"])


def _recorded(project: Path, name: str, *replies: Any, **more: Any) -> Path:
    """A run of a live model with a task of its own, in which a person may answer and a network tool is offered."""
    path = project / live_task(project, name)
    replaced(
        path,
        "file: policy/v1.yaml",
        "file: policy/v1.yaml\n  overlays: [policy/overlays/approve_write.yaml]",
    )
    replaced(path, "hosts:\n  corpus.test:\n    folder: data/corpus/v1\n", "")
    with path.open("a") as task:
        task.write("people: {}\n")
    agent, setting = build(load_task(path, root=project), model=Live(*replies))
    setting = replace(setting, approve=lambda _: Answer("allow", "lead", "so"), approvals="terminal", **more)
    shutil.rmtree(project / "runs/live" / name, ignore_errors=True)
    record_run(agent, setting, project / "runs/live" / name)
    index.update(project)
    return project / "runs/live" / name


HOOKS = """
SAID = [None, {"deny": "no"}, {"deny": object()}]


def before_call(data):
    if data["call"]["name"] == "read":
        raise KeyError("why")
    return SAID.pop()
"""


def _of_a_live_model_with_hooks(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = project / live_task(project, "v3")
    replaced(path, "file: policy/v1.yaml", "file: policy/v1.yaml\n  overlays: [policy/overlays/inform.yaml]")
    (project / "tasks/live/guard.py").write_text(HOOKS)
    with path.open("a") as task:
        task.write("hooks: tasks/live/guard.py\n")
    calls = [ToolCall("read", {"path": "corpus/op-a4.md"})]
    calls += [ToolCall("search", {"query": word}) for word in ("one", "two", "three")]
    model = Live(LLMOutput(tool_calls=calls), LLMOutput(final_answer="done"))
    agent, setting = build(load_task(path, root=project), model=model)
    shutil.rmtree(project / "runs/live/v3", ignore_errors=True)
    record_run(agent, setting, project / "runs/live/v3")
    index.update(project)
    return project / "runs/live/v3"


def _fetched(self: LiveExecutor, effect: Any, stamps: Any) -> Outcome:
    if isinstance(effect, Invoke) and effect.call.name == "fetch":
        page = {
            "url": "https://corpus.test/op-a1.md",
            "status": 200,
            "content_type": "text/plain",
            "text": "a page",
        }
        return Outcome(result=freeze(page))
    return PERFORM(self, effect, stamps)


PERFORM = LiveExecutor.perform


def _by_a_person(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = project / GIVEN_TASK
    if "people:" not in path.read_text():
        path.write_text(path.read_text() + "people: {}\n")
    agent, setting = build(load_task(project / GIVEN_TASK, root=project))
    asked = replace(setting, approve=lambda _: Answer("allow", "lead", "so"), approvals="terminal")
    record_run(agent, asked, project / GIVEN)
    index.update(project)
    return project / GIVEN


def _of_a_live_model(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(LiveExecutor, "perform", _fetched)
    fetch = ToolCall("fetch", {"url": "https://corpus.test/op-a1.md"})
    return _recorded(
        project,
        "v1",
        TransientModelError("busy"),
        LLMOutput(tool_calls=[NOTE], usage={"input_tokens": 11, "output_tokens": 7}),
        LLMOutput(tool_calls=[fetch]),
        LLMOutput(final_answer="done"),
        deadline_s=3600.0,
    )


def _of_a_live_model_that_was_stopped(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cancel = Event()

    def stopping() -> LLMOutput:
        cancel.set()
        return LLMOutput(tool_calls=[ToolCall("read", {"path": "corpus/op-a4.md"})])

    return _recorded(project, "v2", stopping, cancel=cancel)


DIG = """
DESCRIPTION = "Fetch the page of a person."
INPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "required": ["text"],
    "properties": {"text": {"type": "string"}}}
EFFECT = "network"
IDEMPOTENT = True
TRANSIENT = ()
EXAMPLES = {"good": {}, "bad": {"x": 1}}


def run(args, io):
    return {"text": io.get("http://127.0.0.1:PORT/someone" + "@mail.test").text}
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"a page")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _with_a_hidden_verdict(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in which an address is allowed that the record does not show, and whose placeholder is not allowed."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            port = server.server_address[1]
            (project / "tools/dig.py").write_text(DIG.replace("PORT", str(port)))
            overlay = {
                "tool_registry": {"allowed": ["dig"], "denied": []},
                "url_allowlist": [f"http://127.0.0.1:{port}/someone@mail.test"],
                "private_networks": ["127.0.0.1/32"],
                "redact": ["email"],
            }
            (project / "policy/overlays/dig.yaml").write_text(json.dumps(overlay))
            path = project / live_task(project, "v4")
            replaced(
                path, "file: policy/v1.yaml", "file: policy/v1.yaml\n  overlays: [policy/overlays/dig.yaml]"
            )
            replaced(path, "hosts:\n  corpus.test:\n    folder: data/corpus/v1\n", "")
            text = path.read_text()
            path.write_text(re.sub(r"(?m)^tools: .*$", "tools: [dig]", text))
            model = Live(LLMOutput(tool_calls=[ToolCall("dig", {})]), LLMOutput(final_answer="done"))
            agent, setting = build(load_task(path, root=project), model=model)
            shutil.rmtree(project / "runs/live/v4", ignore_errors=True)
            record_run(agent, setting, project / "runs/live/v4")
        finally:
            server.shutdown()
    index.update(project)
    assert (
        lines_of(project / "runs/live/v4")[-1]["totals"]["hidden_verdicts"] == 2
    )  # of the target and of its address
    return project / "runs/live/v4"


def _of_an_external_tool(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scripted run whose calls are answered from its record: what they read is not opened again."""
    shutil.copytree(ROOT / EXTERNAL, project / EXTERNAL, dirs_exist_ok=True)
    for name in ("json_api.yaml", "orders_api.py"):
        (project / "tasks/examples").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tasks/examples" / name, project / "tasks/examples")
    index.update(project)
    return project / EXTERNAL


MADE: dict[str, Callable[[Path, pytest.MonkeyPatch], Path]] = {
    "a person": _by_a_person,
    "live": _of_a_live_model,
    "hooks": _of_a_live_model_with_hooks,
    "hidden": _with_a_hidden_verdict,
    "stopped": _of_a_live_model_that_was_stopped,
    "external": _of_an_external_tool,
}


@pytest.mark.parametrize("kind", MADE)
def test_what_is_forged_in_a_run_that_is_answered_from_the_record(
    kind: str, project: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MADE[kind](project, monkeypatch)
    assert examine(run, root=project).lines == []
    part = in_part(kind, "a part")
    made = forge_all(run, project, seen, lambda number, pointer: number < 0 or part(number, pointer))
    assert made.passed == [] and made.tried > 50


def _is_listed(lines: Any, manifest: Any, met: frozenset[Unproven], number: int, pointer: str) -> bool:
    entry = unproven_field(lines, manifest if number < 0 else lines[number], pointer)
    return entry is not None and entry not in met


def test_every_entry_of_the_list_is_there_for_a_reason(
    project: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: set[Unproven] = set()
    for make in MADE.values():
        run = make(project, monkeypatch)
        lines, manifest = lines_of(run), manifest_of(run)

        met |= forge_all(run, project, seen, partial(_is_listed, lines, manifest, frozenset(met))).met
    assert set(UNPROVEN) - met == set()


def test_a_part_of_the_forgeries_of_a_scripted_run(seen: Seen) -> None:
    made = forge_copy(GIVEN, seen, "a part")
    assert made.passed == [] and made.tried > 50
    assert {entry.when for entry in made.met} <= {"always"}


def test_every_field_is_forged(seen: Seen) -> None:
    """Whatever a line holds, there is another value for it: no list of keys has to be kept."""
    for line in [*lines_of(ROOT / LIVE), manifest_of(ROOT / LIVE)]:
        for pointer in pointers(line):
            assert len(list(forged_values(line, pointer, seen))) >= 2, pointer


# ---- what the list says of a record ---------------------------------------------------------------------------


def test_fields_of_a_scripted_run_rest_on_the_record_only_in_the_manifest() -> None:
    proof = proof_of(lines_of(ROOT / CANONICAL), manifest_of(ROOT / CANONICAL))
    assert {entry.line for entry in proof.unproven} == {"manifest"}
    assert proof.derived > 400 and proof.total == proof.derived + sum(proof.unproven.values())


def test_fields_of_a_live_run_rest_on_the_record() -> None:
    lines = lines_of(ROOT / LIVE)
    proof = proof_of(lines, manifest_of(ROOT / LIVE))
    said = {f"{entry.line} {entry.pattern}" for entry in proof.unproven}
    assert {"step /llm_output/**", "step /stamps/**", "run /clock/start"} <= said
    assert unproven_field(lines, lines[1], "/llm_input/digest") is None
    assert unproven_field(lines, lines[-1], "/final_answer") is None


def test_files_that_only_answered_calls_read_are_unproven() -> None:
    lines, manifest = lines_of(ROOT / EXTERNAL), manifest_of(ROOT / EXTERNAL)
    proof = proof_of(lines, manifest)
    said = {f"{entry.line} {entry.pattern}" for entry in proof.unproven}
    assert "manifest /inputs/*/sha256" in said
    unproven = {
        item["path"]
        for number, item in enumerate(manifest["inputs"])
        if unproven_field(lines, manifest, f"/inputs/{number}/sha256") is not None
    }
    assert unproven == {"data/orders_api/v1/orders", "data/orders_api/v1/orders.POST"}


def test_verify_says_which_fields_only_the_record_states(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = tachograph(ROOT, capsys, monkeypatch, "verify", "--fields", LIVE, CANONICAL)
    live, *more = out.splitlines()
    proof = proof_of(lines_of(ROOT / LIVE), manifest_of(ROOT / LIVE))
    left = proof.total - proof.derived
    assert code == 0 and live == (
        f"{LIVE}: of {proof.total} fields `check` derives {proof.derived} again, 0 are only sealed, {left} are unproven"
    )
    assert any("unproven  step /llm_output/**" in line for line in more)
    assert [line for line in more if line.startswith(f"{CANONICAL}: of ")]
    assert proof.in_words("x", is_sealed=True)[0].endswith(f"{left} are only sealed, 0 are unproven")
    inputs = manifest_of(ROOT / LIVE)["inputs"]
    assert len(inputs) > 20
    for word, said in (("unproven", out.splitlines()), ("sealed  ", proof.in_words("x", is_sealed=True))):
        for item in inputs:
            assert f"  {word}  input {item['path']}  {item['sha256'][:12]}" in said
    code, out = tachograph(ROOT, capsys, monkeypatch, "verify", "--fields", "--json", LIVE)
    data = json.loads(out)["fields"][LIVE]
    assert code == 0 and (data["total"], data["derived"]) == (proof.total, proof.derived)
    assert sum(entry["fields"] for entry in data["unproven"]) == left
    assert data["inputs"] == [
        {"path": item["path"], "sha256": item["sha256"], "proof": "unproven"} for item in inputs
    ]
    assert {item["proof"] for item in proof.to_dict(is_sealed=True)["inputs"]} == {"sealed"}


@pytest.mark.parametrize(
    ("pattern", "pointer", "covered"),
    [
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/a", True),
        ("/a/**", "/ab", False),
        ("/a/*/b", "/a/0/b", True),
        ("/a/*/b", "/a/0/c", False),
        ("/a/*/b", "/a/0/b/c", False),
        ("/a", "/a/b", False),
        ("/a/b", "/a", False),
    ],
)
def test_what_a_pattern_covers(pattern: str, pointer: str, covered: bool) -> None:
    assert Unproven("step", pattern, "live", "").covers("step", pointer) == covered
    assert not Unproven("step", pattern, "live", "").covers("run", pointer)
