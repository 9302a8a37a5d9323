"""What rests on the volatile keys of a manifest alone is worded as a claim of the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.files.claims.package_digest import package_digest
from tachograph.evidence.recording import index
from tests.evidence.forger import Lines, forge
from tests.evidence.project import copy_inputs, edit_manifest, tachograph
from tests.support import CANONICAL


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", ["canonical/v1"])


def _other_answer(lines: Lines) -> None:
    lines[-1]["final_answer"] = lines[-2]["llm_output"]["final_answer"] = "No."


def test_code_that_only_the_manifest_names_is_its_claim(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes a record may write any digest of the code there, so that nobody is told it as a fact."""
    forge(project / CANONICAL, _other_answer, root=project)
    edit_manifest(project / CANONICAL, lambda manifest: manifest["code"].update(package="0" * 64))
    index.update(project)
    said = f"manifest.json claims that other code made it: {'0' * 12} -> {package_digest()[:12]}"
    assert said in examine(project / CANONICAL, root=project).lines
    code, out = tachograph(project, capsys, monkeypatch, "check")
    assert code == 1 and f"  {said}\n" in out


def test_packages_that_only_the_manifest_names_are_its_claim(project: Path) -> None:
    forge(project / CANONICAL, _other_answer, root=project)
    edit_manifest(
        project / CANONICAL, lambda manifest: manifest["environment"].update(packages={"tomli": "1.0"})
    )
    index.update(project)
    said = "manifest.json claims another version of a package: tomli 1.0, here none"
    assert said in examine(project / CANONICAL, root=project).lines
