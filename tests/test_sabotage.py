"""The list of mutations is sound, and so is what tries them. `make sabotage` runs it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("sabotage_run", ROOT / "tests/sabotage/run.py")
assert _spec is not None and _spec.loader is not None
sabotage = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sabotage)

FAST = "tests/runtime/loop/test_retry.py"
GOOD = {
    "id": "retry-anything",
    "file": "src/runtime/loop/retry.py",
    "find": "if fault.kind == FaultKind.OTHER:",
    "put": "if False:",
    "tests": [FAST],
}


def test_there_are_enough_mutations_and_each_hits_one_place() -> None:
    listed = sabotage.mutations()
    assert len(listed) >= 130
    assert sabotage.problems(listed) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"find": "if fault.kind is nothing:"}, "retry-anything: its text stands 0 times"),
        ({"find": "return"}, "retry-anything: its text stands"),
        ({"file": "src/runtime/gone.py"}, "retry-anything: its text stands 0 times in src/runtime/gone.py"),
        ({"put": GOOD["find"]}, "retry-anything: changes nothing"),
        ({"tests": []}, "retry-anything: needs"),
        ({"test": [FAST]}, "retry-anything: needs"),
        (
            {"tests": ["tests/runtime/test_gone.py"]},
            "retry-anything: there is no test tests/runtime/test_gone.py",
        ),
        ({"tests": [f"{FAST}::test_gone"]}, f"retry-anything: there is no test {FAST}::test_gone"),
    ],
)
def test_what_is_wrong_with_a_mutation_is_said_by_its_name(change: dict[str, Any], said: str) -> None:
    assert sabotage.problems([GOOD]) == []
    (wrong,) = sabotage.problems([{**GOOD, **change}])
    assert wrong.startswith(said)


def test_a_name_that_is_there_twice_is_said() -> None:
    assert sabotage.problems([GOOD, GOOD]) == ["retry-anything: is there 2 times"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Any:
    project: Path = tmp_path_factory.mktemp("sabotage") / "project"
    project.mkdir()
    sabotage.copy_project(project)
    return sabotage.Copies(project, 1)


def test_a_mutation_is_noticed_and_nothing_else_is(copies: Any) -> None:
    assert sabotage.harmed(copies, [GOOD]) is None
    assert sabotage.sabotage(copies, GOOD)[0]
    assert not sabotage.sabotage(copies, {**GOOD, "put": f"{GOOD['find']}  # the same"})[0]


@pytest.mark.parametrize(
    "change", [{"tests": [f"{FAST}::test_gone"]}, {"put": "if if:"}, {"find": "not there"}]
)
def test_what_cannot_be_tried_is_not_taken_for_noticed(copies: Any, change: dict[str, Any]) -> None:
    with pytest.raises(sabotage.Wrong, match="retry-anything"):
        sabotage.sabotage(copies, {**GOOD, **change})


def test_a_project_that_is_red_by_itself_is_said(copies: Any) -> None:
    with copies.one() as place:
        pass
    sabotage.change(place, GOOD)
    assert "an unharmed copy is not green (1)" in sabotage.harmed(copies, [GOOD])


def test_a_copy_is_as_it_was_when_it_is_taken_again(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "a/b").mkdir(parents=True)
    (project / "a/b/file").write_text("1")
    (project / "a/other").write_text("2")
    (project / "link").symlink_to("a")
    os.utime(project / "a/other", (1, 1))
    copies = sabotage.Copies(project, 1)
    with copies.one() as place:
        (place / "a/other").write_text("3")
        (place / "a/b/file").unlink()
        (place / "a/b").rmdir()
        (place / "new/below").mkdir(parents=True)
        (place / "new/below/file").write_text("4")
        (place / "link").unlink()
    with copies.one() as again:
        assert again == place
        assert sabotage._files(again) == sabotage._files(project)
        assert (again / "a/other").read_text() == "2" and os.readlink(again / "link") == "a"
