"""What the CI of a new project installs is what a person names, or what runs here, told where that is uncertain."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tachograph.cli import main as cli
from tachograph.fail.errors import InputError
from tachograph.scaffold.install import requirement_of_this
from tachograph.scaffold.new_project import begin

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def installed(folder: Path) -> str:
    """The one argument of the step that installs."""
    workflow = yaml.safe_load((folder / ".github/workflows/tachograph.yml").read_text(encoding="utf-8"))
    (command,) = [s["run"] for s in workflow["jobs"]["check"]["steps"] if "pip" in s.get("run", "")]
    pip, install, wanted = shlex.split(command)
    assert (pip, install) == ("pip", "install")
    return wanted


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("1.2.3", "tachograph==1.2.3"),
        ("2.0rc1", "tachograph==2.0rc1"),
        (f"git+https://code.test/t.git@{COMMIT}", f"git+https://code.test/t.git@{COMMIT}"),
        ("git+ssh://git@code.test/t.git@v1", "git+ssh://git@code.test/t.git@v1"),
        ("https://code.test/t-1-py3-none-any.whl", "https://code.test/t-1-py3-none-any.whl"),
        ("git+https://code.test/$(id).git", "git+https://code.test/$(id).git"),
    ],
)
def test_ci_installs_what_is_named(tmp_path: Path, spec: str, wanted: str) -> None:
    begun = begin(tmp_path / "desk", "9.9", spec)
    assert installed(tmp_path / "desk") == wanted and begun.note is None


def test_a_wheel_is_named_from_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/t 1.whl").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "bots/desk", "--install", "wheels/t 1.whl"]) == 0
    workflow = installed(tmp_path)
    assert workflow == "../../wheels/t 1.whl" and (tmp_path / "bots/desk" / workflow).is_file()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tachograph", "names nothing that CI can install"),
        ("-r other.txt", "names nothing that CI can install"),
        ("https://code.test/t.tar", "names nothing that CI can install"),
        ("git+https://", "is not an address"),
        ("git+https://code.test/a b.git", "is not an address"),
        ("git+https://ann:secret@code.test/t.git", "holds a password"),
        ("git+https://token@code.test/t.git", "holds a password"),
        ("nowhere.whl", "there is no such wheel"),
        ("outside.whl", "is outside the repository"),
    ],
)
def test_what_ci_could_not_install_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside.whl").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        begin(tmp_path / "desk", "9.9", spec)
    line = str(caught.value)
    assert said in line and "\n" not in line and "secret" not in line and not (tmp_path / "desk").exists()


def from_here(monkeypatch: pytest.MonkeyPatch, origin: Any) -> tuple[str, str | None]:
    text = origin if origin is None or isinstance(origin, str) else json.dumps(origin)
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text)
    )
    return requirement_of_this("9.9")


def test_what_runs_here_is_named_where_that_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_here(monkeypatch, None) == ("tachograph==9.9", None)
    git = {"url": "https://code.test/t.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    assert from_here(monkeypatch, git) == (f"git+https://code.test/t.git@{COMMIT}", None)


@pytest.mark.parametrize(
    "origin",
    [
        {"url": "file:///srv/code/t", "dir_info": {"editable": True}},
        {"url": "https://me:secret@code.test/t.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        {"url": "https://code.test/t.whl", "archive_info": {}},
        "no json",
        [],
    ],
    ids=str,
)
def test_what_came_from_no_index_is_told(monkeypatch: pytest.MonkeyPatch, origin: Any) -> None:
    wanted, note = from_here(monkeypatch, origin)
    assert wanted == "tachograph==9.9" and note is not None
    assert "from no index" in note and "--install" in note and "secret" not in note


def test_the_note_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(_: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", nothing)
    assert cli.main(["init", str(tmp_path / "desk")]) == 0
    assert "this copy came from no index" in capsys.readouterr().out
    assert cli.main(["init", str(tmp_path / "other"), "--install", "1.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []
