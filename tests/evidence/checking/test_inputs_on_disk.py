"""What a check says of inputs that cannot be read or were not read, and of a manifest in another form."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.compare import change_on_disk
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.workspace import tool_io
from tests.evidence.project import replaced
from tests.evidence.tasks.code.code_project import code_project, write_task
from tests.runtime.workspace.test_safe_open import as_nobody

RUN = "runs/code/notes"
NOTE = "data/notes/first.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a recorded run that reads a note."""
    root = code_project(tmp_path / "project")
    record_run(*build(load_task(write_task(root))), root / RUN)
    assert examine(root / RUN, root=root).ok
    return root


def test_a_document_that_is_a_folder_now_cannot_be_read(project: Path) -> None:
    (project / NOTE).unlink()
    (project / NOTE).mkdir()
    found = examine(project / RUN, root=project)
    assert f"input moved: {NOTE} cannot be read (no plain file), and is no longer read" in found.lines


def test_a_document_that_is_gone_is_gone(project: Path) -> None:
    (project / NOTE).unlink()
    assert f"input moved: {NOTE} is gone" in examine(project / RUN, root=project).lines


def test_a_document_that_is_there_was_not_read(project: Path) -> None:
    replaced(project / "crew/notes.py", '"path": "notes/first.md"', '"path": "notes/other.md"')
    found = examine(project / RUN, root=project)
    assert f"input no longer read: {NOTE}" in found.lines
    assert NOTE not in found.moved and not any("is gone" in line for line in found.lines)


def test_the_system_says_why_a_file_cannot_be_read() -> None:
    with tempfile.TemporaryDirectory() as place:  # not below pytest's folder, which is shut to others
        folder = Path(place)
        folder.chmod(0o755)
        file = folder / "a.md"
        file.write_text("a")
        item: dict[str, Any] = {"path": "a.md", "sha256": canonical_json.digest(b"a")}
        assert change_on_disk(item, folder) is None
        file.chmod(0)
        with as_nobody():
            assert change_on_disk(item, folder) == "cannot be read (Permission denied)"
        assert change_on_disk({**item, "path": "../a.md"}, folder) is None
        assert change_on_disk({**item, "path": "b.md"}, folder) == "is gone"


def test_a_run_names_the_file_that_it_cannot_read(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tool_io, "read_file", denied)
    with caplog.at_level("WARNING", "tachograph"):
        result = build(load_task(project / "tasks/code/notes.yaml"))[0].run("q")
    assert result.mode is not None
    said = f"tachograph: {NOTE}: cannot be read (Permission denied); check the file's kind and permission"
    assert said in caplog.messages


def test_a_manifest_in_another_form_is_told_as_that_alone(project: Path) -> None:
    file = project / RUN / "manifest.json"
    text = file.read_bytes()
    file.write_bytes(text.replace(b": ", b":", 1))
    assert file.read_bytes() != text and json.loads(file.read_bytes()) == json.loads(text)
    found = examine(project / RUN, root=project)
    assert found.tampered and found.lines[0] == f"{RUN}/manifest.json: is not in canonical form"
    assert not any("input" in line or "differs in" in line for line in found.lines)
    (first, *more) = verify(project / RUN, project)
    assert first == f"{RUN}/manifest.json: is not in canonical form"
    assert not any("unknown shape" in line for line in more)


def test_what_else_was_changed_in_such_a_manifest_is_told_too(project: Path) -> None:
    file = project / RUN / "manifest.json"
    data = json.loads(file.read_bytes())
    data["inputs"][0]["sha256"] = "0" * 64
    file.write_text(json.dumps(data))
    found = examine(project / RUN, root=project)
    assert found.lines[0] == f"{RUN}/manifest.json: is not in canonical form"
    assert any(line.startswith("input moved: ") for line in found.lines) and found.tampered
    file.write_text("{")
    assert f"{RUN}/manifest.json: is not as it was written" in examine(project / RUN, root=project).lines
    assert f"{RUN}/manifest.json: is not as it was written" in verify(project / RUN, project)
    assert manifests.read_uncanonical(b"[]") is None


def test_a_folder_of_a_project_is_left_alone(project: Path) -> None:
    shutil.rmtree(project / "data/notes")
    found = examine(project / RUN, root=project)
    assert not found.judged and f"input moved: {NOTE} is gone" in found.lines
