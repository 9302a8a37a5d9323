"""Task files that are refused: what the message says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachograph.evidence.tasks.task import load_task
from tachograph.fail.errors import TaskError
from tests.support import ROOT

TEXT = (ROOT / "tasks/canonical/v1.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "file, task_id, remedy",
    [
        ("tasks/canonical/v1.yaml", "canonical", "write canonical-v1"),
        ("tasks/canonical/v1.yaml", "Canonical-v1", "write canonical-v1"),
        ("tasks/canonical/v1.yaml", "canonical-v1-b", "write canonical-v1"),
        ("My Tasks/v1.yaml", "v1", "write lower-case letters, digits and '_', such as canonical-v1"),
    ],
)
def test_the_error_of_an_id_says_what_to_write(file: str, task_id: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(TEXT.replace("id: canonical-v1\n", f"id: {task_id}\n"), encoding="utf-8")
    with pytest.raises(TaskError) as refused:
        load_task(path, root=tmp_path)
    line = TEXT.splitlines().index("id: canonical-v1") + 1
    assert str(refused.value) == f"{file}:{line}:5: id must be KIND-NAME, not '{task_id}'; {remedy}"


def test_a_task_is_read_again_when_its_file_changed(tmp_path: Path) -> None:
    path = tmp_path / "tasks" / "canonical" / "v1.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT, encoding="utf-8")
    first = load_task(path, root=tmp_path)
    assert load_task(path, root=tmp_path) is first
    path.write_text(TEXT.replace("id: canonical-v1\n", "id: canonical-v2\n"), encoding="utf-8")
    assert load_task(path, root=tmp_path).id == "canonical-v2"
    assert first.id == "canonical-v1"
