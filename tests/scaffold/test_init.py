"""A new project: laid out whole or not at all, never over what is there, and its own checks pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tachograph.cli import main as cli
from tachograph.fail.errors import InputError, OutputError
from tachograph.scaffold import new_project as starter
from tachograph.scaffold.files import ITEMS
from tachograph.scaffold.new_project import begin
from tests.support import ROOT

FIRST = {item.place for item in ITEMS}
NAMES = ("plain", "with space", "täst-ñ", "a'b\"c", "x: #y", "-n")
CHECKS = (
    ("check",),
    ("verify",),
    ("policy", "check"),
    ("policy", "test"),
    ("replay",),
    ("explain", "runs/first/outside"),
    ("show", "runs/first/welcome"),
)


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git/" not in path.as_posix()
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_new_project_holds_wherever_it_is(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", f"./{name}" if name.startswith("-") else name]) == 0
    out = capsys.readouterr().out
    assert set(files_in(tmp_path / name)) >= FIRST
    for item in ITEMS:
        assert f"{item.place} " in out and item.words in out
    monkeypatch.chdir(tmp_path / name)
    for words in CHECKS:
        assert cli.main([*words]) == 0, (words, capsys.readouterr())
    assert not list((tmp_path / name).glob(".tachograph-init-*"))


def test_the_same_project_whatever_its_folder_is_called(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    begin(one, "1.0"), begin(other, "1.0")
    a, b = files_in(one), files_in(other)
    for found in (a, b):
        for name in [name for name in found if name.endswith(("manifest.json", "INDEX.json"))]:
            del found[name]  # they hold the time
    assert a == b


def test_beside_other_files_in_a_repository_with_other_ci(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    theirs = {".gitignore": b"build/\n", ".github/workflows/ci.yml": b"on: push\n", "src/a.py": b"1\n"}
    for place, text in theirs.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(text)
    begun = begin(tmp_path, "1.0")
    there = files_in(tmp_path)
    assert {place: there[place] for place in theirs} == theirs
    assert begun.kept == [(".gitignore", "add the lines `.tachograph/` and `*.partial/`")]
    assert ".github/workflows/tachograph.yml" in there


def test_what_is_written_outside_the_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "alone"]) == 0
    out = capsys.readouterr().out
    assert "\noutside" not in out and "\nnext      cd alone\n          tachograph check" in out
    (tmp_path / "desk").mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path / "desk")
    assert cli.main(["init", "."]) == 0
    out = capsys.readouterr().out
    said = "../.gitignore, ../.github/workflows/tachograph.yml, ../.pre-commit-config.yaml"
    assert f"\noutside   {said}: written at the top of the git repository" in out
    assert "cd ." not in out and "\nnext      tachograph check" in out
    with pytest.raises(SystemExit):
        cli.main(["init", "--help"])
    assert "written at the repository's top, outside DIR" in " ".join(capsys.readouterr().out.split())


def test_what_is_kept_says_what_to_add(tmp_path: Path) -> None:
    """Below the top of a repository the steps to add name the project."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    theirs = (".github/workflows/tachograph.yml", ".pre-commit-config.yaml", "a b/.gitattributes")
    for place in theirs:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("theirs\n")
    assert begin(tmp_path / "a b", "1.0").kept == [
        (".gitattributes", "add `* -text` and `runs/ACCEPTED.jsonl merge=union`"),
        (
            "../.github/workflows/tachograph.yml",
            "add a step that runs `tachograph check --github --root 'a b'`",
        ),
        ("../.pre-commit-config.yaml", "add a local hook that runs `tachograph check --root 'a b'`"),
    ]
    assert {(tmp_path / place).read_text() for place in theirs} == {"theirs\n"}


def test_what_two_branches_accepted_merges_by_union(tmp_path: Path) -> None:
    begin(tmp_path / "desk", "1.0")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = subprocess.run(
        ["git", "check-attr", "merge", "desk/runs/ACCEPTED.jsonl"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.endswith("merge: union\n")
    ours = (ROOT / ".gitattributes").read_text(encoding="utf-8").splitlines()
    assert "runs/ACCEPTED.jsonl merge=union" in ours


@pytest.mark.parametrize("ours", [True, False], ids=["this repository", "a new project"])
def test_what_git_leaves_as_it_is_folds_and_shows(tmp_path: Path, ours: bool) -> None:
    """Whatever a record may have the digest of stays as it is, wherever in the project it lies."""
    if ours:
        shutil.copy(ROOT / ".gitattributes", tmp_path)
    else:
        begin(tmp_path / "desk", "1.0")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for file, made, shown in (
        ("runs/a/b/state.jsonl", "set", "tachograph"),
        ("runs/a/b/trace.json", "set", "unspecified"),
        ("runs/INDEX.json", "set", "unspecified"),
        ("runs/a/b/run_report.md", "unspecified", "unspecified"),
        ("tools/read.py", "unspecified", "unspecified"),
        ("policy/v1.yaml", "unspecified", "unspecified"),
        ("agents/depots.py", "unspecified", "unspecified"),
        ("seals/000001.json", "unspecified", "unspecified"),
    ):
        place = file if ours else f"desk/{file}"
        done = subprocess.run(
            ["git", "check-attr", "text", "linguist-generated", "diff", "--", place],
            cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        said = {name: value for _, name, value in (line.rsplit(": ", 2) for line in done.stdout.splitlines())}
        assert said == {"text": "unset", "linguist-generated": made, "diff": shown}, place


def test_a_root_is_not_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["init", "--help"])
    assert ended.value.code == 0 and "--root" not in capsys.readouterr().out
    assert cli.main(["init", "--root", str(tmp_path), str(tmp_path / "desk")]) == 2
    assert "--root: `tachograph init` has no such option" in capsys.readouterr().err
    assert not (tmp_path / "desk").exists()


def test_a_full_disk_is_told_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(starter, "_put", full)
    with pytest.raises(OutputError) as caught:
        begin(tmp_path / "a", "1.0")
    assert str(caught.value) == (
        f"{tmp_path / 'a'}: cannot be written (No space left on device), and nothing was left there; "
        "name a folder that can be written to"
    )
    assert not (tmp_path / "a").exists()


def test_below_the_top_of_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    begin(tmp_path / "bots" / "the 'one': #1", "1.0", "1.2.3")
    below = "bots/the 'one': #1"
    workflow = yaml.safe_load((tmp_path / ".github/workflows/tachograph.yml").read_text())
    assert workflow["jobs"]["check"]["defaults"]["run"]["working-directory"] == below
    steps = workflow["jobs"]["check"]["steps"]
    assert {"run": "pip install tachograph==1.2.3"} in steps
    assert steps[-1]["env"]["BELOW"] == f"{below}/"
    (hook,) = yaml.safe_load((tmp_path / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    done = subprocess.run(  # as pre-commit splits it
        ["python3", "-c", "import shlex, sys; print(shlex.split(sys.argv[1])[-1])", hook["entry"]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == below
    import re

    assert re.search(hook["files"], f"{below}/policy/v1.yaml")
    assert not re.search(hook["files"], "src/policy/v1.yaml")
    assert not (tmp_path / below / ".github").exists()


def _git(place: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, timeout=60)


class Forge:
    """A repository with a project below its top, and the last step of its workflow as a runner runs it."""

    def __init__(self, place: Path) -> None:
        self.top, self.summary = place / "top", place / "summary.md"
        self.project = self.top / "bots" / "the 'one'"
        _git(place, "init", "-q", "-b", "main", str(self.top))
        _git(self.top, "commit", "-q", "--allow-empty", "-m", "empty")

    def commit(self) -> None:
        _git(self.top, "add", "-A")
        _git(self.top, "commit", "-qm", "more")

    def is_base(self) -> None:
        _git(self.top, "update-ref", "refs/remotes/origin/main", "HEAD")

    def step(self, path: str | None = None, base: str = "main") -> subprocess.CompletedProcess[str]:
        workflow = yaml.safe_load((self.top / ".github/workflows/tachograph.yml").read_text())
        job = workflow["jobs"]["check"]
        step = job["steps"][-1]
        self.summary.write_text("")
        env = {
            **os.environ,
            "PATH": path or f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "BASE": base,
            "BELOW": step["env"]["BELOW"],
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.summary.parent),
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=self.top / job["defaults"]["run"]["working-directory"],
            env=env, check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip


def test_the_workflow_on_pull_requests(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.is_base()
    begin(forge.project, "1.0")
    forge.commit()
    first = forge.step()  # the base has no policy yet
    assert first.returncode == 0, first.stderr
    assert "::notice::main has no policy yet" in first.stdout and forge.summary.read_text() == ""
    missing = forge.step(base="gone")
    assert missing.returncode != 0 and "::notice" not in missing.stdout
    forge.is_base()
    same = forge.step()
    assert (same.returncode, same.stdout) == (0, "")
    assert "allow and deny the same" in forge.summary.read_text()
    policy = forge.project / "policy/v1.yaml"
    text = policy.read_text()
    policy.write_text(text.replace("max_tool_calls: 12", "max_tool_calls: 13"))
    wider = forge.step()
    assert wider.returncode == 0, wider.stderr
    assert "::warning::this policy allows more than the one of main" in wider.stdout
    assert "widening" in forge.summary.read_text()
    policy.write_text("schema: nothing\n")
    broken = forge.step()
    assert broken.returncode == 2 and "::warning" not in broken.stdout


def test_the_workflow_is_red_where_the_command_itself_fails(tmp_path: Path) -> None:
    """A traceback ends with 1 too, but nothing is in the summary then."""
    forge = Forge(tmp_path)
    begin(forge.project, "1.0")
    forge.commit()
    forge.is_base()
    fails = tmp_path / "bin" / "tachograph"
    fails.parent.mkdir()
    fails.write_text("#!/bin/sh\nexit 1\n")
    fails.chmod(0o755)
    done = forge.step(f"{fails.parent}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 1 and "::warning" not in done.stdout


def test_every_command_of_the_workflow_is_one(tmp_path: Path) -> None:
    begin(tmp_path, "1.0")
    workflow = yaml.safe_load((tmp_path / ".github/workflows/tachograph.yml").read_text())
    said = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    commands = [
        line.split()[1:] for text in said for line in text.split("\n") if line.startswith("tachograph ")
    ]
    assert [words[0] for words in commands] == ["policy", "policy", "check", "verify", "policy"]
    for words in commands:
        with pytest.raises(SystemExit) as ended:
            cli.main([*[word for word in words[:2] if not word.startswith("-")], "--help"])
        assert ended.value.code == 0


@pytest.mark.parametrize("name", ["policy", "tools", "tasks", "runs", "data/notes"])
def test_a_folder_in_use_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "theirs.py").write_text("raise SystemExit\n")
    before = files_in(tmp_path)
    with pytest.raises(InputError, match=f"{name}/ is there already") as caught:
        begin(tmp_path, "1.0")
    assert str(tmp_path / "agent") in str(caught.value)
    assert files_in(tmp_path) == before


def test_an_empty_folder_of_that_name_is_used(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    begin(tmp_path, "1.0")
    assert (tmp_path / "policy/v1.yaml").is_file()


def test_twice_is_refused(tmp_path: Path) -> None:
    begin(tmp_path / "a", "1.0")
    before = files_in(tmp_path)
    with pytest.raises(InputError):
        begin(tmp_path / "a", "1.0")
    assert files_in(tmp_path) == before


def test_a_file_is_no_place_for_a_project(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        begin(tmp_path / "file", "1.0")
    with pytest.raises((InputError, OutputError)):
        begin(tmp_path / "file" / "below", "1.0")


def test_a_link_to_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "policy").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError):
        begin(tmp_path, "1.0")
    (tmp_path / "policy").unlink()
    begin(tmp_path, "1.0")
    assert not (tmp_path / "elsewhere").exists()


def test_what_appears_meanwhile_is_not_overwritten_and_all_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = starter._record

    def slow(stage: Path) -> list[tuple[str, str]]:
        found = real(stage)
        (tmp_path / "a" / "tools").mkdir()
        (tmp_path / "a" / "tools" / "read.py").write_text("theirs")
        return found

    monkeypatch.setattr(starter, "_record", slow)
    with pytest.raises(OutputError, match="nothing was left there"):
        begin(tmp_path / "a", "1.0")
    assert files_in(tmp_path) == {"a/tools/read.py": b"theirs"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["tools"]


def test_a_failure_takes_back_the_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise OutputError("full")

    monkeypatch.setattr(starter, "_record", fail)
    with pytest.raises(OutputError):
        begin(tmp_path / "a" / "b", "1.0")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_without_permission_it_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot be written"):
        begin(tmp_path / "a", "1.0")


def test_json_is_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "a", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["created"]) == FIRST and said["kept"] == []
    assert said["runs"] == ["runs/first/outside", "runs/first/rewritten", "runs/first/welcome"]
