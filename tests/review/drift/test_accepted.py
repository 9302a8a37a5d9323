"""The file of accepted changes: what it says, how it is held against runs, how branches come together in it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tachograph.evidence.files import accepted
from tachograph.evidence.recording import index
from tachograph.runtime.formats import canonical_json
from tests.evidence.project import DENIED, RETRIED, edit_lines
from tests.review import accepting
from tests.review.accepting import ACCEPTED, Say, edit, entries
from tests.review.drift_changes import MINUTES, PAGE, REMARK, task_of
from tests.support import CANONICAL, ROOT, tree

project, say, shipped = accepting.project, accepting.say, accepting.shipped


def test_going_back_and_forth_is_a_chain(project: Path, say: Say) -> None:
    for old, new in (("20", "21"), ("21", "20"), ("20", "22")):
        edit(project, (PAGE, f"{old} minutes", f"{new} minutes"))
        assert say("accept", RETRIED, "--reason", f"{new} minutes")[0] == 0
        assert index.problems(project) == []
    states = [(entry["manifest"]["before"], entry["manifest"]["after"]) for entry in entries(project)]
    assert states[0][1] == states[1][0] and states[1] == states[0][::-1] and states[2][0] == states[0][0]


def test_a_run_that_fell_back_is_seen_and_put_back_without_another_line(project: Path, say: Say) -> None:
    kept = shutil.copytree(project / RETRIED, project.parent / "kept")
    edit(project, MINUTES)
    assert say("accept", RETRIED, "--reason", "so")[0] == 0
    shutil.rmtree(project / RETRIED)
    shutil.copytree(kept, project / RETRIED)
    index.update(project)
    (problem,) = index.problems(project)
    assert problem.startswith(
        f"{ACCEPTED}:1: says that {RETRIED} was accepted as another, but it stands as before; "
    )
    assert say("accept", RETRIED, "--reason", "so")[0] == 0
    assert len(entries(project)) == 1 and index.problems(project) == []
    shutil.rmtree(project / RETRIED)
    shutil.copytree(kept, project / RETRIED)
    index.update(project)
    edit(project, (PAGE, "21 minutes", "22 minutes"))
    code, _, err = say("accept", RETRIED, "--reason", "so")
    assert code == 2 and err.startswith(f"tachograph: {ACCEPTED}:1: {RETRIED} stands as before that line")


def test_recording_all_again_breaks_nothing(project: Path, say: Say) -> None:
    """`make evidence-build` needs no reason, before and after one was given."""
    edit(project, MINUTES)
    assert say("accept", RETRIED, "--reason", "so")[0] == 0
    edit(project, (PAGE, "21 minutes", "23 minutes"))
    assert say("run", task_of(RETRIED), "--quiet")[0] == 0
    assert index.problems(project) == []
    edit(project, (PAGE, "23 minutes", "24 minutes"))
    assert say("accept", RETRIED, "--reason", "so")[0] == 0
    assert len(entries(project)) == 2 and index.problems(project) == []


def test_a_change_that_comes_a_second_time_gets_a_line_of_its_own(project: Path, say: Say) -> None:
    """There and back and there again, each time for the same reason: the last line is what stands."""
    there, back = (PAGE, "20 minutes", "21 minutes"), (PAGE, "21 minutes", "20 minutes")
    for number, (change, reason) in enumerate([(there, "so"), (back, "not so"), (there, "so")], start=1):
        edit(project, change)
        assert say("accept", RETRIED, "--reason", reason)[0] == 0
        assert len(entries(project)) == number and index.problems(project) == []
    assert entries(project)[0] == entries(project)[2]


def _line(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        entry = json.loads(text)
        change(entry)
        return canonical_json.encode(entry) + "\n"

    return changed


DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "no JSON": (lambda text: "x" + text, "1: is no entry"),
    "cut off": (lambda text: text[:-9], "1: is cut off"),
    "no last LF": (lambda text: text[:-1], "1: is cut off"),
    "an empty line": (lambda text: text + "\n", "2: is no entry"),
    "a list": (lambda text: text + "[]\n", "2: is not as it was written"),
    "nested without end": (lambda text: text + "[" * 100_000 + "\n", "2: is no entry"),
    "spaces": (lambda text: text.replace(":", ": ", 1), "1: is not as it was written"),
    "a key twice": (lambda text: text.replace("{", '{"cause":[],', 1), "1: is not as it was written"),
    "an unknown key": (_line(lambda e: e.update(by="me")), "1: has an unknown key 'by'"),
    "a missing key": (_line(lambda e: e.pop("reason")), "1: says nothing usable of 'reason'"),
    "no reason": (_line(lambda e: e.update(reason=" ")), "1: says nothing usable of 'reason'"),
    "another class": (_line(lambda e: e.update({"class": "FINE"})), "1: says nothing usable of 'class'"),
    "a class of no drift": (
        _line(lambda e: e.update(classes={"VERDICT": True})),
        "1: says nothing usable of 'classes'",
    ),
    "another schema": (_line(lambda e: e.update(schema="accepted/v2")), "1: says nothing usable of 'schema'"),
    "half a digest": (
        _line(lambda e: e["manifest"].update(after="00")),
        "1: says nothing usable of 'manifest'",
    ),
    "an input without a path": (
        _line(lambda e: e["inputs"][0].update(path="")),
        "1: says nothing usable of 'inputs'",
    ),
    "no change": (
        _line(lambda e: e["manifest"].update(after=e["manifest"]["before"])),
        "1: accepts no change",
    ),
    "a run that is gone": (_line(lambda e: e.update(run="runs/x/y")), "1: its run runs/x/y is gone"),
    "a run elsewhere": (_line(lambda e: e.update(run="runs/../..")), "1: its run runs/../.. is gone"),
    "a line twice": (lambda text: text * 2, "2: goes on from what line 1 left"),
}


@pytest.fixture(scope="module")
def accepted_once(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = Path(shutil.copytree(shipped, tmp_path_factory.mktemp("once") / "project"))
    edit(project, MINUTES)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        patch.chdir(project)
        assert command_line.main(["accept", RETRIED, "--reason", "so \x1b[31m"]) == 0
    return project


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_of_the_file_is_named(
    name: str, accepted_once: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = DAMAGES[name]
    place = accepted_once / ACCEPTED
    text = place.read_text(encoding="utf-8")
    assert "\x1b" not in text and accepted.problems(accepted_once) == []
    place.write_text(change(text), encoding="utf-8")
    monkeypatch.chdir(accepted_once)
    try:
        found = accepted.problems(accepted_once)
        assert command_line.main(["verify"]) == 1
    finally:
        place.write_text(text, encoding="utf-8")
    assert len(found) == 1 and found[0].startswith(f"{ACCEPTED}:{said}; "), found
    assert f"{ACCEPTED}:{said}" in capsys.readouterr().out


def test_a_record_edited_after_it_was_accepted(project: Path, say: Say) -> None:
    edit(project, REMARK)
    assert say("accept", DENIED, "--reason", "so")[0] == 0
    edit_lines(project / DENIED, lambda lines: lines[1].update(failure_mode=None), chain=True)
    code, _, err = say("accept", DENIED, "--reason", "so")
    assert code == 2 and "was changed by hand" in err


# ---- two branches --------------------------------------------------------------------------------------------


def git(project: Path, *words: str) -> int:
    options = ["-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false"]
    command = ["git", *options, *words]
    return subprocess.run(command, cwd=project, check=False, capture_output=True, timeout=60).returncode


@pytest.fixture
def branched(project: Path, say: Say) -> Callable[..., int]:
    """Two branches that change a file each and accept what drifts; the second is merged into the first."""
    shutil.copy(ROOT / ".gitattributes", project)
    assert [git(project, *words) for words in (("init", "-q", "-b", "one"), ("add", "-A"))] == [0, 0]
    assert git(project, "commit", "-qm", "base") == 0

    def go(*changes: tuple[tuple[str, str, str], str]) -> int:
        for branch, (change, run) in zip(("one", "two"), changes, strict=True):
            git(project, "checkout", "-q", "-B", branch, "one" if branch == "one" else "one~1")
            edit(project, change)
            assert say("accept", run, "--reason", f"on {branch}")[0] == 0
            git(project, "add", "-A")
            assert git(project, "commit", "-qm", branch) == 0
        git(project, "checkout", "-q", "one")
        return git(project, "merge", "-q", "-m", "both", "two")

    return go


def test_branches_that_accept_different_runs_merge(
    project: Path, say: Say, branched: Callable[..., int]
) -> None:
    script = (task_of(CANONICAL), "I read the second one", "I read another one")
    assert branched((MINUTES, RETRIED), (script, CANONICAL)) in (0, 1)
    conflicts = subprocess.run(
        ["git", "diff", "--name-only", "--diff-filter=U"],
        cwd=project, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    assert ACCEPTED not in conflicts
    assert {entry["run"] for entry in entries(project)} == {RETRIED, CANONICAL}
    assert {entry["reason"] for entry in entries(project)} == {"on one", "on two"}
    assert accepted.problems(project) == []


def test_branches_that_accept_the_same_run_are_told_which_line_goes(
    project: Path, say: Say, branched: Callable[..., int]
) -> None:
    assert branched((MINUTES, RETRIED), ((PAGE, "20 minutes", "22 minutes"), RETRIED)) != 0
    assert len(entries(project)) == 2  # both lines; the run itself is for a person to decide
    for words in (("checkout", "--ours", "."), ("add", "-A"), ("commit", "-qm", "ours")):
        git(project, *words)
    edit(project, REMARK)
    before = tree(project)
    code, out, _ = say("check")
    assert code == 1 and f"{ACCEPTED}:2: goes on from what line 1 left" in out and "accept --all" not in out
    code, out, err = say("accept", "--all", "--reason", "so")
    assert (code, out) == (2, "")  # nothing is foretold that is not done
    assert err.startswith(f"tachograph: {ACCEPTED}:2: goes on from what line 1 left; take one of them out, ")
    assert tree(project) == before
    place = project / ACCEPTED
    place.write_text(place.read_text().splitlines(keepends=True)[0])
    assert say("accept", "--all", "--reason", "so")[0] == 0 and say("check")[0] == 0
