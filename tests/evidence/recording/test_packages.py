"""Versions of installed packages that tools import stand in the manifest, and explain a drift."""

from __future__ import annotations

import json
import platform
import shutil
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from tachograph.evidence.checking.check import examine
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.review.drift.accept import accept, change
from tests.evidence.project import replaced
from tests.support import ROOT, TASK, copy_project

RUN = "runs/canonical/v1"
HEAD = '''"""Return the text of a document."""

import {package}

IMPORTS = ("{package}",)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = copy_project(tmp_path / "project")
    for run in (place / "runs").iterdir():
        if run.is_dir():
            shutil.rmtree(run)
    source = (ROOT / "tools" / "read.py").read_text()
    (place / "tools" / "read.py").write_text(HEAD.format(package="yaml") + source)
    record_run(*build(load_task(place / TASK, root=place)), place / RUN)
    return place


def _environment(project: Path) -> dict[str, object]:
    environment = json.loads((project / RUN / "manifest.json").read_bytes())["environment"]
    assert isinstance(environment, dict)
    return environment


def test_the_version_of_a_package_that_a_tool_imports_stands_in_the_manifest(project: Path) -> None:
    assert _environment(project)["packages"] == {"yaml": metadata.version("PyYAML")}
    assert examine(project / RUN).lines == []


def test_the_python_that_made_a_run_stands_in_the_manifest(project: Path) -> None:
    assert _environment(project)["python"] == platform.python_version()


def test_no_package_leaves_no_key() -> None:
    assert "packages" not in _environment(ROOT)


def test_a_package_that_is_named_and_imported_by_none_counts(project: Path) -> None:
    tool = project / "tools" / "read.py"
    tool.write_text(tool.read_text().replace("import yaml\n", ""))
    shutil.rmtree(project / RUN)
    record_run(*build(load_task(project / TASK, root=project)), project / RUN)
    assert _environment(project)["packages"] == {"yaml": metadata.version("PyYAML")}


def test_another_version_alone_is_no_drift(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "7.7")
    assert examine(project / RUN).lines == []


def test_another_version_explains_a_drift_and_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of a tool moved, while neither its source nor our code did: only the package did."""
    monkeypatch.setattr(yaml, "HERE", "", raising=False)
    replaced(project / "tools" / "read.py", 'io.read(args["path"])}', 'io.read(args["path"]) + yaml.HERE}')
    shutil.rmtree(project / RUN)
    record_run(*build(load_task(project / TASK, root=project)), project / RUN)
    (project / "runs" / "ACCEPTED.jsonl").unlink(missing_ok=True)
    index.update(project)
    monkeypatch.setattr(yaml, "HERE", " ")
    unexplained = examine(project / RUN)
    assert unexplained.tampered and unexplained.accept is None
    monkeypatch.setattr(metadata, "version", lambda name: "7.7")
    found = examine(project / RUN)
    assert not found.tampered and found.accept is not None
    assert any(
        line.startswith("manifest.json claims another version of a package: yaml ")
        and line.endswith("here 7.7")
        for line in found.lines
    )
    accept(project, [change(found, project / RUN, project, "the new version adds a blank", 0.0)])
    assert _environment(project)["packages"] == {"yaml": "7.7"}


def _inputs(project: Path) -> dict[str, str]:
    items = json.loads((project / RUN / "manifest.json").read_bytes())["inputs"]
    return {item["path"]: item["sha256"] for item in items}


def test_modules_of_the_project_behind_a_called_tool_are_inputs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper counts like the tool itself: where the tool was called, and through other helpers too."""
    monkeypatch.syspath_prepend(project)
    (project / "desk_words").mkdir()
    (project / "desk_words/__init__.py").write_text("from .more import WORDS\n")
    (project / "desk_words/more.py").write_text("WORDS = 3\n")
    for name in ("read", "write"):  # the canonical run calls read and not write
        tool = project / "tools" / f"{name}.py"
        text = tool.read_text()
        module = "desk_words" if name == "read" else "unread_words"
        tool.write_text(text.replace('"""\n', f'"""\n\nimport {module}\n', 1))
    (project / "unread_words.py").write_text("")
    shutil.rmtree(project / RUN)
    record_run(*build(load_task(project / TASK, root=project)), project / RUN)
    index.update(project)
    inputs = _inputs(project)
    assert {"tools/read.py", "desk_words/__init__.py", "desk_words/more.py"} <= inputs.keys()
    assert not {"tools/write.py", "unread_words.py"} & inputs.keys()
    assert inputs["desk_words/more.py"] == sha256(b"WORDS = 3\n").hexdigest()
    assert examine(project / RUN).lines == []
    (project / "desk_words/more.py").write_text("WORDS = 3  # a remark\n")
    (project / "unread_words.py").write_text("# a remark\n")
    found = examine(project / RUN)
    assert list(found.moved) == ["desk_words/more.py"] and found.kind == "DIGEST-ONLY"
