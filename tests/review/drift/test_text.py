"""What `check` prints for each class of drift: the whole text, the cause among others that moved, the last line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.cause import CODE, HAND, causes, causes_of
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.json_diff import CLASSES
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.recording import index
from tachograph.runtime.policy.gate import Gate
from tests.evidence.project import DENIED, RETRIED, edit_lines, replaced, tachograph
from tests.review import accepting
from tests.review.drift_changes import CHANGES, GIVEN, MINUTES, OTHER, PAGE, POLICY, REMARK, RUNS, task_of
from tests.support import CANONICAL, cli, copy_project

project, shipped = accepting.project, accepting.shipped
GOLDEN = Path(__file__).with_name("golden.txt")


def golden() -> dict[str, str]:
    """Name of a change -> the text wanted, digests written as `#`."""
    parts = GOLDEN.read_text(encoding="utf-8").split("===== ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("name", CHANGES)
def test_the_text_of_each_class(
    name: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = CHANGES[name]
    for edit in change.edits:
        replaced(project / edit[0], *edit[1:])
    code, out = tachograph(project, capsys, monkeypatch, "check", change.run)
    shown = "".join(f"{line}\n" for line in re.sub(r"\b[0-9a-f]{12}\b", "#", out).splitlines() if line)
    assert code == 1 and shown == golden()[name]
    assert out.splitlines()[1] == f"{change.kind}  {change.run}"
    found = examine(project / change.run, root=project)
    assert tuple(causes_of(found)) == change.causes


def test_the_texts_are_of_these_changes_and_cover_every_class() -> None:
    assert list(golden()) == list(CHANGES)
    # ASKED is a class of live runs, which test_asked.py changes, and EXPOSURE has test_exposure.py
    assert {change.kind for change in CHANGES.values()} == set(CLASSES) - {"ASKED", "EXPOSURE"}


# ---- causes ----------------------------------------------------------------------------------------------


def test_two_inputs_that_moved_are_both_named_with_what_they_explain(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for edit in (REMARK, MINUTES, (task_of(GIVEN), "The note is in ", "It is in ")):
        replaced(project / edit[0], *edit[1:])
    code, out = tachograph(project, capsys, monkeypatch, "check", "--json")
    data = json.loads(out)
    assert code == 1
    assert [(cause["what"], cause["classes"], len(cause["runs"])) for cause in data["causes"]] == [
        (PAGE, ["EFFECT"], 4),
        (task_of(GIVEN), ["ANSWER"], 1),
        (POLICY, ["DIGEST-ONLY"], 2),
    ]
    assert (
        data["cause"]
        == f"{PAGE} moved (4 of them), {task_of(GIVEN)} moved (1 of them), {POLICY} moved (2 of them)"
    )


def _forged(project: Path, run: str) -> None:
    """A record changed and made consistent throughout: chain, trace, report, manifest, index."""
    folder = project / run
    edit_lines(folder, lambda lines: lines[1]["policy_decisions"][0].update(reason="so"), chain=True)
    recorded = {"manifest.json": (folder / "manifest.json").read_bytes()}
    made = rebuild((folder / "state.jsonl").read_bytes(), "state.jsonl", recorded)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest.update(json.loads(made.pop("manifest.json")))
    (folder / "manifest.json").write_bytes(manifests.render(manifest))
    for name, data in made.items():
        (folder / name).write_bytes(data)
    index.update(project)


@pytest.mark.parametrize(("then", "cause"), [(True, HAND), (False, CODE)])
def test_nothing_moved(then: bool, cause: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the code moved it is the cause; where it did not, no record that is honest would differ."""
    _forged(project, DENIED)
    said = json.loads((project / DENIED / "manifest.json").read_bytes())["code"]["package"]
    monkeypatch.setattr(
        "tachograph.evidence.checking.check.package_digest", lambda: said if then else "0" * 64
    )
    found = examine(project / DENIED, root=project)
    assert (found.kind, causes_of(found), found.moved) == ("TEXT", [cause], {})
    assert (found.accept is None) == then == found.tampered
    assert str(*causes([found])) == (
        f"{HAND} (1 of them)" if then else f"{CODE}, as manifest.json claims (no input moved)"
    )


CODE_EDITS = {
    "the gate speaks otherwise": (
        "src/runtime/policy/resource_rules.py",
        "is allowed by url_allowlist",
        "is granted by url_allowlist",
        "TEXT",
        'step 2 /policy_decisions/0/reason: "https://corpus.test" is allowed by url_allowlist',
    ),
    "the report looks otherwise": (
        "src/evidence/files/report.py",
        "## Provenance",
        "## Origin",
        "TEXT",
        "run_report.md line ",
    ),
}


@pytest.mark.parametrize("name", CODE_EDITS)
def test_code_that_changed_is_the_cause_and_can_be_accepted(name: str, tmp_path: Path) -> None:
    file, old, new, kind, said = CODE_EDITS[name]
    project = copy_project(tmp_path / "project")
    replaced(project / file, old, new)
    done = cli("check", CANONICAL, cwd=project, env={"CI": ""})
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and lines[:2] == [
        "check: 1 of 1 runs drifted; cause: the code, as manifest.json claims (no input moved)",
        f"{kind}  {CANONICAL}",
    ], done.stdout
    command = f'tachograph accept {CANONICAL} --code-changed --reason "..."'
    assert said in done.stdout and lines[-1] == f"accept it: {command}"
    done = cli("accept", CANONICAL, "--reason", "clearer words", cwd=project, env={"CI": ""})
    assert done.returncode == 2 and "which only its manifest claims" in done.stderr
    assert not (project / "runs/ACCEPTED.jsonl").exists()
    done = cli(
        "accept", CANONICAL, "--code-changed", "--reason", "clearer words", cwd=project, env={"CI": ""}
    )
    assert done.returncode == 0, done.stderr
    entry = json.loads((project / "runs/ACCEPTED.jsonl").read_text())
    assert entry["cause"] == [CODE] and entry["class"] == kind and entry["inputs"] == []
    assert cli("check", CANONICAL, cwd=project).returncode == 0


def test_code_is_the_cause_where_what_moved_explains_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # called in this run, and does the same
    replaced(project / "tools/summarize.py", '"""Summarize', '"""An extractive')
    decide = Gate.decide_request
    monkeypatch.setattr(
        Gate, "decide_request", lambda *args, **more: replace(decide(*args, **more), reason="so")
    )
    found = examine(project / RETRIED, root=project)
    assert found.kind == "TEXT" and list(found.moved) == ["tools/summarize.py"] and causes_of(found) == [CODE]


def test_an_edited_record_is_no_drift_and_never_accepted(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(project / REMARK[0], *REMARK[1:])
    replaced(project / DENIED / "state.jsonl", '"top_k":3', '"top_k":4')
    code, out = tachograph(project, capsys, monkeypatch, "check", DENIED)
    assert code == 1
    assert out.splitlines()[0] == f"check: 1 of 1 runs drifted; cause: {HAND} (1 of them)"
    assert (
        out.splitlines()[-1] == "nothing to accept: fix the inputs named above, or restore the run's folder"
    )
    assert "state.jsonl:3: does not follow from the line before" in out and "tachograph accept" not in out


def test_of_two_documents_the_one_that_the_call_names(project: Path) -> None:
    replaced(project / PAGE, *MINUTES[1:])
    replaced(project / OTHER, "\n\n", "\n\n\n")  # the search reads it too, and finds the same
    found = examine(project / CANONICAL, root=project)
    assert list(found.moved) == [PAGE, OTHER] and causes_of(found) == [PAGE]


def test_a_manifest_that_says_something_else_than_its_ledger(project: Path) -> None:
    replaced(project / REMARK[0], *REMARK[1:])
    replaced(project / DENIED / "manifest.json", '"seed": 7', '"seed": 8')
    index.update(project)
    found = examine(project / DENIED, root=project)
    assert found.tampered and found.accept is None and causes_of(found) == [HAND]
    assert "the record does not hold in itself: its ledger gives another manifest.json" in found.lines


def test_a_manifest_that_is_not_the_one_in_the_index(project: Path) -> None:
    replaced(project / REMARK[0], *REMARK[1:])
    replaced(project / DENIED / "manifest.json", '"python": "3', '"python": "4')
    found = examine(project / DENIED, root=project)
    assert found.tampered and found.accept is None
    assert found.lines[-1] == "its manifest.json is not the one in runs/INDEX.json"


# ---- the closing line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stray", "secret", "said"),
    [
        (True, False, "runs, tasks and index disagree in 1 place"),
        (False, True, "1 place may hold a secret"),
        (True, True, "runs, tasks and index disagree in 1 place and 1 place may hold a secret"),
    ],
)
def test_the_closing_line_says_what_was_found(
    stray: bool,
    secret: bool,
    said: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if secret:
        (project / "runs/README.md").write_text("sk-ant-api03-" + "a1B2" * 12 + "\n")
    if stray:
        (project / "runs/notes.txt").write_text("x")
    code, out = tachograph(project, capsys, monkeypatch, "check")
    *lines, last = out.splitlines()
    assert code == 1 and last == f"check: {len(RUNS)} runs re-derived, but {said}"
    words = {"index": stray, "secret": secret}
    assert sorted(line.split()[0] for line in lines) == sorted(word for word, there in words.items() if there)


# ---- git bisect ------------------------------------------------------------------------------------------


def test_bisect_tells_good_bad_and_what_cannot_be_judged(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def code(*more: str) -> int:
        monkeypatch.chdir(project)
        from tachograph.cli import main as command_line

        found = command_line.main(["check", "--bisect", *more])
        capsys.readouterr()
        return found

    assert code() == 0
    replaced(project / REMARK[0], *REMARK[1:])
    assert code() == 1
    assert code("runs/policy_gates/nowhere") == 125
    task = project / task_of(DENIED)
    replaced(task, "schema: task/v1", "schema: task/v9")
    assert code(DENIED) == 125  # this one cannot be made again
    assert code() == 1  # others drifted, whatever there is to that one
    replaced(project / POLICY, "schema: policy/v1", "schema: policy/v9")
    assert code() == 125  # no run can be made
    assert tachograph(project, capsys, monkeypatch, "check", DENIED)[0] == 1

    def fail(*_: object, **__: object) -> None:
        raise AttributeError("gone")

    monkeypatch.setattr("tachograph.evidence.checking.check.examine", fail)
    assert code() == 125
