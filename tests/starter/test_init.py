"""A new project: laid out whole or not at all, never over what is there, and its own checks pass."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tachograph import cli
from tachograph.fail.errors import InputError, OutputError
from tachograph.starter import begin as starter
from tachograph.starter.begin import begin
from tachograph.starter.files import ITEMS

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


def test_below_the_top_of_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    begin(tmp_path / "bots" / "the 'one': #1", "1.2.3")
    below = "bots/the 'one': #1"
    workflow = yaml.safe_load((tmp_path / ".github/workflows/tachograph.yml").read_text())
    assert workflow["jobs"]["check"]["defaults"]["run"]["working-directory"] == below
    steps = workflow["jobs"]["check"]["steps"]
    assert {"run": 'pip install "tachograph==1.2.3"'} in steps
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


def test_every_command_of_the_workflow_is_one(tmp_path: Path) -> None:
    begin(tmp_path, "1.0")
    workflow = yaml.safe_load((tmp_path / ".github/workflows/tachograph.yml").read_text())
    said = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    commands = [
        line.split()[1:] for text in said for line in text.split("\n") if line.startswith("tachograph")
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
    with pytest.raises(InputError, match="is no folder"):
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
    assert said["runs"] == ["runs/first/outside", "runs/first/welcome"]
