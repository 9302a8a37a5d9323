"""A project without code, for tests that change it and look at it from within this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dev import docs
from tachograph.cli import main as command_line
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.recording import index
from tachograph.runtime.formats import canonical_json
from tests.support import ROOT, TASK

FOLDERS = ("policy", "tools", "data", "tasks", "runs", "docs")
# three runs that differ enough: an answer, a denial, retries
FEW = ("canonical/v1", "policy_gates/pg5_arg_schema", "failure_modes/tool_call_failure")
DENIED = "runs/policy_gates/pg5_arg_schema"
RETRIED = "runs/failure_modes/tool_call_failure"
CANONICAL_TRACE = "runs/canonical/v1/trace.json"


def all_runs() -> list[Path]:
    """The folders of the committed runs, sorted."""
    return sorted(path.parent for path in (ROOT / "runs").glob("*/*/manifest.json"))


def first_line(run: Path) -> dict[str, Any]:
    """The first line of a run's ledger."""
    line: dict[str, Any] = json.loads((run / "state.jsonl").read_bytes().split(b"\n", 1)[0])
    return line


def acts_outside(run: Path) -> bool:
    """Whether a run offers an external tool, whose effect happens once: then no test makes the run again."""
    return any(tool["effect"] == "external" for tool in first_line(run)["tools"])


def copy_inputs(to: Path, keep: Iterable[str] | None = None) -> Path:
    """What runs are made from and checked against; with `keep` only these runs (KIND/NAME) and their tasks."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__", "*.partial"))
    shutil.copy(ROOT / "README.md", to)
    if keep is not None:
        kept = set(keep)
        for task in (to / "tasks").glob("*/*.yaml"):
            if f"{task.parent.name}/{task.stem}" not in kept:
                task.unlink()
                shutil.rmtree(to / "runs" / task.parent.name / task.stem)
        if not any(name.startswith("examples/") for name in kept):
            for suite in (to / "policy/tests").glob("examples_*.yaml"):
                suite.unlink()  # without the agents in code there are no such tools
        accepted = to / "runs/ACCEPTED.jsonl"
        if accepted.is_file():  # lines of runs that are not here would be wrong
            lines = accepted.read_text(encoding="utf-8").splitlines(keepends=True)
            stay = [line for line in lines if json.loads(line)["run"].removeprefix("runs/") in kept]
            accepted.write_text("".join(stay), encoding="utf-8")
        for kind in [path for path in (to / "runs").iterdir() if path.is_dir() and not any(path.iterdir())]:
            kind.rmdir()
        for folder in ((to / "tasks").iterdir(), (to / "runs").glob("*/")):
            for kind in folder:
                if kind.is_dir() and not any(kind.iterdir()):
                    kind.rmdir()
        _keep_accepted(to, kept)
        index.update(to)
        docs.write(to)
    return to


def _keep_accepted(project: Path, kept: set[str]) -> None:
    """Drop the accepted changes of runs that are not there; without any there is no file."""
    file = project / "runs/ACCEPTED.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    left = [line for line in lines if json.loads(line)["run"].removeprefix("runs/") in kept]
    file.unlink(missing_ok=True)
    if left:
        file.write_text("".join(left), encoding="utf-8")


def live_task(project: Path, name: str = "v1", models: str = "*:*") -> str:
    """Write a task for a live model, the canonical one without its script; return its path in the project."""
    text = (ROOT / TASK).read_text(encoding="utf-8")
    script = text[text.index("\nllm:\n") : text.index("\nexpected:\n")]
    text = (
        text[: text.index("\nexpected:\n")]
        .replace(script, "")
        .replace("id: canonical-v1", f"id: live-{name}")
    )
    place = f"tasks/live/{name}.yaml"
    (project / place).parent.mkdir(parents=True, exist_ok=True)
    (project / place).write_text(f'{text}\nlive:\n  models: ["{models}"]\n', encoding="utf-8")
    return place


def tachograph(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str]:
    """Exit code and standard output of a command in `project`; it says nothing on standard error."""
    monkeypatch.chdir(project)
    capsys.readouterr()
    code = command_line.main(list(words))
    out, err = capsys.readouterr()
    assert err == "", err
    return code, out


def replaced(file: Path, old: str, new: str) -> None:
    """Put `new` for the first `old` of a file, which must be there."""
    text = file.read_text(encoding="utf-8")
    assert old in text, (file, old)
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def edit_lines(run: Path, change: Callable[[list[dict[str, Any]]], object], *, chain: bool = False) -> None:
    """Change the decoded lines of a ledger in place; with `chain` their `prev` is made right again."""
    state = run / "state.jsonl"
    lines = [json.loads(text) for text in state.read_text(encoding="utf-8").split("\n")[:-1]]
    change(lines)
    head = None
    texts = []
    for line in lines:
        if chain:
            line["prev"] = head
        texts.append(canonical_json.encode(line))
        head = canonical_json.digest(texts[-1])
    state.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def edit_manifest(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest in place and write it as a run writes it."""
    manifest = json.loads((run / "manifest.json").read_bytes())
    change(manifest)
    (run / "manifest.json").write_bytes(manifests.render(manifest))
