"""`check` with a page, with annotations for a forge, as one document; each writes only what it was asked to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tachograph.cli import main as command_line
from tests.evidence.project import DENIED, RETRIED, copy_inputs, replaced
from tests.review.drift_changes import GIVEN, MINUTES, PAGE, REMARK, task_of
from tests.support import CANONICAL, tree

RUNS = tuple(name.removeprefix("runs/") for name in (CANONICAL, DENIED, RETRIED, GIVEN))
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("verb") / "project", RUNS)


@pytest.fixture
def project(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "project"))


@pytest.fixture
def say(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    for name in ("GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command_line.main(["check", *words])
        return code, *capsys.readouterr()

    return run


def drifted(project: Path) -> None:
    for file, old, new in (MINUTES, REMARK, (task_of(GIVEN), "The note is in ", "It is in ")):
        replaced(project / file, old, new)


def test_annotations_stand_before_the_text_and_name_file_and_line(project: Path, say: Say) -> None:
    drifted(project)
    code, out, _ = say("--github")
    lines = out.splitlines()
    assert code == 1 and [line.partition("::")[2].partition("::")[0] for line in lines[:4]] == [
        f"error file={CANONICAL}/state.jsonl,line=3,title=EFFECT%3A {CANONICAL} drifted",
        f"error file={RETRIED}/state.jsonl,line=2,title=EFFECT%3A {RETRIED} drifted",
        f"error file={GIVEN}/state.jsonl,line=3,title=ANSWER%3A {GIVEN} drifted",
        "error title=DIGEST-ONLY%3A 1 run drifted",
    ]
    assert lines[3].endswith(f"::{DENIED}")
    assert lines[4:] == say()[1].splitlines() and lines[-1].startswith("accept it: ")
    message = lines[0].split("::", 2)[2].split("%0A")
    assert message[0].startswith("state.jsonl line 3: first difference: step 2 /tool_results/0/result/text: ")
    assert message[1] == 'call: fetch {"url":"https://corpus.test/op-a4.md"}'
    assert message[-1] == f'accept it: tachograph accept {CANONICAL} --reason "..."'


def test_a_summary_is_added_and_paths_begin_at_the_repository(
    project: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = project.parent / "summary.md"
    place.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.parent))
    assert say("--github")[0] == 0 and say()[0] == 0
    assert place.read_text() == "before\n## Tachograph: 4 runs re-derived, all files identical\n\n"
    drifted(project)
    code, out, _ = say("--github")
    assert code == 1 and f"::error file=project/{CANONICAL}/state.jsonl,line=3," in out
    text = place.read_text(encoding="utf-8")
    assert "| EFFECT | `runs/canonical/v1` | step 2 /tool_results/0/result/text: " in text
    assert 'Accept it: `tachograph accept --all --reason "..."`' in text
    assert f"Digests only, in 1 run: `{DENIED}`" in text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project))
    code, _, err = say("--github")
    assert code == 2 and err.count("\n") == 1 and "the summary cannot be added" in err


def test_what_is_wrong_besides_runs_is_annotated_too(project: Path, say: Say) -> None:
    (project / "runs/notes.txt").write_text("x")
    code, out, _ = say("--github")
    assert code == 1 and out.splitlines()[0] == (
        "::error title=runs, tasks and index disagree::runs/notes.txt: a file that belongs to no run; remove it"
    ).replace("runs, tasks", "runs%2C tasks")


def test_a_page_is_written_beside_what_is_printed(project: Path, say: Say) -> None:
    drifted(project)
    plain = say()
    before = tree(project)
    assert say("--html", "../page.html") == plain and tree(project) == before
    made = (project.parent / "page.html").read_text(encoding="utf-8")
    assert made.count("<article") == 4 and f"{PAGE} moved (2 of them)" in made
    assert "<del>…tch room at Ollerbeck within 20 minutes." in made
    assert "<ins>…tch room at Ollerbeck within 21 minutes." in made
    assert "tachograph accept --all --reason &#34;...&#34;" in made
    assert sorted(path.name for path in project.parent.iterdir()) == ["page.html", "project"]
    for place in (".", "no/such/folder/x.html"):
        code, _, err = say("--html", place)
        assert code == 2 and err.count("\n") == 1 and "cannot be written" in err
    assert tree(project) == before


def test_a_page_where_nothing_drifted(project: Path, say: Say) -> None:
    assert say("--html", "../page.html")[0] == 0
    assert "<h1>4 runs re-derived, all files identical</h1>" in (project.parent / "page.html").read_text()


def test_one_document_has_everything(project: Path, say: Say) -> None:
    drifted(project)
    code, out, _ = say("--json", "--html", "../page.html")
    data = json.loads(out)
    assert code == 1 and out == json.dumps(data, sort_keys=True) + "\n"
    found = {item["run"]: item for item in data["findings"]}
    assert list(found) == [CANONICAL, RETRIED, GIVEN, DENIED]
    one = found[CANONICAL]
    assert (
        one["class"] == "EFFECT"
        and one["causes"] == [PAGE]
        and not one["edited_by_hand"]
        and one["made_again"]
    )
    assert one["first"]["context"]["decision"] == (
        "allow by url_allowlist (policy/v1.yaml#/url_allowlist/https:~1~1corpus.test~1)"
    )
    assert [mark for mark, _ in one["first"]["rows"] if mark in "-+"] == ["-", "+"]
    assert (
        one["downstream"]["EFFECT"] == 2 and one["accept"] == f'tachograph accept {CANONICAL} --reason "..."'
    )
    assert data["accept_all"] == 'tachograph accept --all --reason "..."'


def test_two_forms_for_one_standard_output_are_refused(say: Say) -> None:
    code, out, err = say("--json", "--github")
    assert (code, out) == (2, "") and err.startswith("tachograph: --json and --github both want")
