"""The commands ls, doctor and completion, and names of runs without `runs/`."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from tachograph.cli import main as command_line
from tachograph.cli.commands import doctor
from tachograph.cli.commands.completion import candidates
from tachograph.views.model import run_of
from tachograph.views.page import run_page
from tests import cli_project
from tests.cli_project import GIVEN, RUN, Say
from tests.evidence.project import FEW, replaced
from tests.support import ROOT

shared, project, say = cli_project.shared, cli_project.project, cli_project.say
NAME = RUN.removeprefix("runs/")


def test_ls_lists_each_run(say: Say, project: Path) -> None:
    (project / "runs/canonical/v2.partial").mkdir()
    (project / "runs/canonical/v2.partial/journal.jsonl").touch()
    code, out, _ = say("ls", "--json")
    rows = {row["run"]: row for row in json.loads(out)}
    assert code == 0 and rows.keys() == {*FEW, GIVEN, "canonical/v2"}
    told = {key: rows[NAME][key] for key in ("ending", "mode", "steps", "model", "when", "folder", "problem")}
    assert told == {
        "ending": "final_answer", "mode": None, "steps": 5, "model": "stub/script", "when": None, "folder": RUN,
        "problem": None,
    }  # fmt: skip
    assert rows["canonical/v2"]["ending"] == "unfinished"
    code, out, _ = say("ls")
    head, *lines = out.splitlines()
    assert code == 0 and head.split() == ["run", "ending", "mode", "steps", "model", "when"]
    assert lines.pop() == "unfinished: go on with `tachograph resume runs/canonical/v2`"
    assert [line.split()[0] for line in lines] == list(rows)
    assert lines[list(rows).index(NAME)].split() == [NAME, "final_answer", "5", "stub/script"]


def test_ls_lists_the_runs_of_a_folder(say: Say, project: Path) -> None:
    shutil.copytree(project / RUN, project / "my-runs/first")
    code, out, _ = say("ls", "my-runs")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["run", "first"]
    code, out, _ = say("ls", "my-runs/first")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["run", "first"]
    assert say("ls", "nowhere")[0] == 2


def test_show_names_an_unfinished_run_as_ls_does(say: Say, project: Path) -> None:
    (project / RUN).rename(project / f"{RUN}.partial")
    (project / f"{RUN}.partial/state.jsonl").unlink()
    code, _, err = say("show", NAME)
    assert code == 2 and f"{RUN}.partial/state.jsonl: cannot be read" in err


@pytest.mark.parametrize("data", [b"", b"{}\n", b"\xff\x1b[2J", None])
def test_ls_tells_a_record_that_cannot_be_read(say: Say, project: Path, data: bytes | None) -> None:
    state = project / RUN / "state.jsonl"
    if data is None:
        first, rest = state.read_bytes().split(b"\n", 1)
        data = first.replace(b'"clock"', b'"clokc"') + b"\n" + rest
    state.write_bytes(data)
    code, out, _ = say("ls")
    (line,) = [line for line in out.splitlines() if line.startswith(NAME)]
    assert code == 1 and "cannot be read" in line and "\x1b" not in out
    assert len(out.splitlines()) == len(FEW) + 2


COMMANDS = [("show",), ("explain",), ("check",), ("verify",), ("replay",), ("policy", "suggest")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_runs_may_be_left_out_of_a_name(say: Say, project: Path, words: tuple[str, ...]) -> None:
    whole = say(*words, RUN)
    assert whole[0] in (0, 1) and whole[1]
    assert say(*words, NAME) == whole
    assert say(*words, "no/run")[0] == 2


def test_a_folder_of_that_name_comes_first(say: Say, project: Path) -> None:
    shutil.copytree(project / "runs" / GIVEN, project / NAME)
    assert GIVEN.split("/")[1] in say("show", NAME)[1].splitlines()[0]


def test_a_run_of_the_root_that_is_given_is_found(
    say: Say, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (NAME, RUN):
        assert say("check", name, "--root", str(project))[0] == 0
    monkeypatch.chdir(project / "tasks")
    assert say("show", NAME)[0] == 0


def test_resume_takes_the_short_name(say: Say) -> None:
    assert f"the run is over: see `tachograph show {RUN}`" in say("resume", NAME)[2]


def test_doctor_finds_nothing_broken_here(say: Say) -> None:
    code, out, _ = say("doctor", "--json")
    document = json.loads(out)
    states = {finding["name"]: finding["state"] for finding in document["findings"]}
    assert code == 0 and document["ok"]
    assert {states[name] for name in ("python", "project", "policy", "runs")} == {"ok"}
    code, out, _ = say("doctor")
    assert code == 0 and "policy/v1.yaml: version " in out


def test_doctor_tells_what_is_broken_and_the_fix(
    say: Say, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ["no-such-thing>=1.0", "pytest>=999", 'neither>=2 ; extra == "odd"']
    monkeypatch.setattr(metadata, "requires", lambda _name: wanted)
    monkeypatch.setattr(doctor.shutil, "which", lambda _name: None)
    (project / "policy/v1.yaml").write_text("schema: policy/v9\n")
    code, out, _ = say("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(out)["findings"]}
    assert code == 1
    assert {name for name, one in found.items() if one["state"] == "broken"} == {*wanted[:2], "policy"}
    assert found[wanted[0]]["remedy"] == "pip install 'no-such-thing>=1.0'"
    assert " is older than 999" in found[wanted[1]]["text"]
    assert found["extra odd"]["state"] == "missing" and "tachograph[odd]" in found["extra odd"]["remedy"]
    assert found["git"]["state"] == "missing"


def test_doctor_says_which_tool_has_no_examples_or_some_that_do_not_fit(say: Say, project: Path) -> None:
    tools = project / "tools"
    replaced(tools / "read.py", "EXAMPLES: ", "MORE: ")
    replaced(tools / "search.py", '"bad": {"query": 7}', '"bad": {"query": "7"}')
    replaced(tools / "write.py", "def run(", "def walk(")
    code, out, _ = say("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(out)["findings"]}
    assert code == 1
    assert (found["tool fetch"]["state"], found["tool fetch"]["text"]) == ("ok", "its examples fit")
    assert found["tool read"]["state"] == "missing" and "has no EXAMPLES" in found["tool read"]["text"]
    assert found["tool search"]["text"] == "has a bad call in EXAMPLES that its INPUT_SCHEMA accepts"
    assert (
        found["tool search"]["state"] == "missing" and "write EXAMPLES = " in found["tool search"]["remedy"]
    )
    assert found["tool write"]["state"] == "broken" and "needs a function run" in found["tool write"]["text"]


def test_doctor_without_a_project_says_how_to_begin(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, out, _ = say("doctor")
    assert code == 0 and "fix: tachograph init DIR" in out


COMPLETED = {
    ("po",): ["policy"],
    ("--v",): ["--version"],
    ("policy", "d"): ["decide", "diff"],
    ("show", "can"): [NAME],
    ("show", NAME, "--ht"): ["--html"],
    ("check", "--j"): ["--jobs", "--json"],
    ("run", "x.yaml", "--durability", ""): ["effect", "off", "step"],
    ("run", "tasks/"): [],
    ("show", "--html", ""): [],
    ("completion", ""): ["bash", "fish", "zsh"],
    ("nothing", ""): [],
}


@pytest.mark.parametrize("words", COMPLETED, ids=" ".join)
def test_words_are_completed(words: tuple[str, ...], project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert candidates(words) == COMPLETED[words]


def test_no_name_that_a_shell_could_evaluate_is_offered(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("$(touch x)", "a b", "`x`", "-rf"):
        shutil.copytree(project / RUN, project / "runs/canonical" / name)
    monkeypatch.chdir(project)
    assert candidates(["show", "canonical/"]) == ["canonical/-rf", NAME]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_with_the_script(say: Say, project: Path) -> None:
    script = say("completion", "bash")[1]
    ask = 'COMP_WORDS=(tachograph show can); COMP_CWORD=2; _tachograph; printf "%s\\n" "${COMPREPLY[@]}"'
    stub = 'tachograph() { printf "%s\\n" "$*"; }\n'
    done = subprocess.run(["bash", "-c", stub + script + ask], capture_output=True, text=True, check=True)
    assert done.stdout == "completion --words show can\n"


def test_completion_asks_for_a_shell(say: Say) -> None:
    code, _, err = say("completion")
    assert code == 2 and err == "tachograph: it is not said for which shell; name one: bash, zsh, fish\n"
    for shell in ("zsh", "fish"):
        assert "tachograph completion --words" in say("completion", shell)[1]


def test_run_and_show_print_the_same_calls(say: Say) -> None:
    """Steps, calls with their arguments, and decisions stand in the same words."""
    code, printed, _ = say("run", "tasks/canonical/v1.yaml")
    assert code == 0
    shown = say("show", RUN)[1]
    calls = [
        [line for line in text.splitlines() if line.startswith("  ") and "attempt" not in line]
        for text in (printed, shown)
    ]
    assert len(calls[0]) == len(calls[1]) == 8 and any('{"path":"' in line for line in calls[1])
    for ours, theirs in zip(*calls, strict=True):
        assert ours[:70].startswith(theirs[:70]), "a long argument is cut at the width of the terminal"
    assert [line for line in printed.splitlines() if line.startswith("step ")] == [
        f"step {index}" for index in range(1, 5)
    ]
    assert '{"path":"' in say("explain", RUN)[1]


def test_a_task_of_the_project_is_found_without_its_folder_and_ending(say: Say, project: Path) -> None:
    text = (project / "tasks/canonical/v1.yaml").read_text(encoding="utf-8")
    mine = text.replace("id: canonical-v1\n", "id: canonical-mine\n")
    (project / "tasks/canonical/mine.yaml").write_text(mine, encoding="utf-8")
    for name in ("canonical/mine", "canonical/mine.yaml"):
        code, out, _ = say("run", name, "--quiet")
        assert code == 0 and "files     runs/canonical/mine/" in out


def test_run_names_a_step_once_whatever_is_decided_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert command_line.main(["run", "loop/hook_rewrites", "--out", str(tmp_path / "run")]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert steps == sorted(set(steps))


def test_calls_that_ran_together_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record names them, so the text and the page of a run do: the third call was denied, and ran with nobody."""
    monkeypatch.chdir(ROOT)
    assert command_line.main(["show", "loop/parallel_calls"]) == 0
    said = [line.strip() for line in capsys.readouterr().out.splitlines() if "together" in line]
    assert said == ["calls 1, 2 and 4 ran together", "calls 1 and 2 ran together"]
    page = run_page(run_of(ROOT / "runs/loop/parallel_calls"))
    assert all(words in page for words in said)
