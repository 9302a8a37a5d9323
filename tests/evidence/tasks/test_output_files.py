"""The schema of the final answer may stand in a file of the project, which is an input of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tachograph import TaskError
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.formats.canonical_json import digest
from tests.support import ROOT

FILE = "data/schemas/leave.json"
NAME = "tasks/loop/structured_answer.yaml"
INLINE = (ROOT / NAME).read_text(encoding="utf-8")
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["may_leave", "source"],
    "properties": {
        "may_leave": {"type": "string", "enum": ["after_repair", "at_once", "never"]},
        "source": {"type": "string", "maxLength": 100},
    },
}


def _task(given: str = f"{{file: {FILE}}}") -> str:
    start, end = INLINE.index("output_schema:"), INLINE.index("output_retries:")
    return f"{INLINE[:start]}output_schema: {given}\n{INLINE[end:]}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("policy", "tools", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(json.dumps(SCHEMA, indent=2), encoding="utf-8")
    return tmp_path


def _recorded(root: Path, text: str) -> Path:
    (root / NAME).parent.mkdir(parents=True)
    (root / NAME).write_text(text, encoding="utf-8")
    agent, config = build(load_task(root / NAME, root=root))
    out = root / "runs/loop/structured_answer"
    record_run(agent, config, out)
    return out


def test_the_file_is_an_input_and_its_change_is_named(project: Path) -> None:
    inline = (ROOT / "runs/loop/structured_answer/state.jsonl").read_text(encoding="utf-8").split("\n")
    out = _recorded(project, _task())
    lines = (out / "state.jsonl").read_text(encoding="utf-8").split("\n")
    run = json.loads(lines[0])
    assert run.pop("output") == {"retries": 2, "file": FILE}
    asked = json.loads(inline[0])
    assert asked.pop("output") == {"retries": 2} and run == asked, "the rest is as it is without a file"
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert {"path": FILE, "sha256": digest((project / FILE).read_bytes())} in manifest["inputs"]
    assert verify(out, project) == [] and examine(out, root=project).lines == []
    assert replayed(out, root=project).ok
    (project / FILE).write_text(json.dumps({**SCHEMA, "required": ["source"]}), encoding="utf-8")
    found = examine(out, root=project)
    assert FILE in found.moved and not found.tampered
    manifest["inputs"] = [item for item in manifest["inputs"] if item["path"] != FILE]
    (out / "manifest.json").write_text(
        json.dumps(manifest, ensure_ascii=False, sort_keys=True, indent=2) + "\n", encoding="utf-8"
    )
    assert any(f"does not name {FILE}" in line for line in verify(out, project))


@pytest.mark.parametrize(
    ("given", "content", "said"),
    [
        ("{file: data/schemas/none.json}", None, ":13:17: cannot be read"),
        ("{file: ../leave.json}", None, ":13:17: is outside the project"),
        ("{file: data/schemas}", None, ":13:17: cannot be read"),
        ("{file: 3}", None, ":13:23: output_schema.file must be of type string"),
        ("{}", None, ':13:1: output_type is not the schema of an object: it lacks "type": "object"'),
        (None, b"{", ":13:17: is not JSON: not JSON"),
        (None, b'{"type": "object", "type": "object"}', ":13:17: is not JSON: "),
        (None, b"[]", ':13:17: output_type is not the schema of an object: it lacks "type": "object"'),
        (None, b'{"type": "object", "minProperties": "x"}', ":13:17: output_type is not a valid schema at "),
        (None, b"\xff", ":13:17: is not UTF-8 text"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(
    project: Path, given: str | None, content: bytes | None, said: str
) -> None:
    if content is not None:
        (project / FILE).write_bytes(content)
    with pytest.raises(TaskError) as caught:
        _recorded(project, _task() if given is None else _task(given))
    line = str(caught.value)
    assert line.startswith(f"{NAME}{said}") and "\n" not in line
    assert not (project / "runs/loop/structured_answer").exists()
