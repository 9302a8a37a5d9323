"""A FIFO, a device, a folder or a link in place of a file of a run: every command says so in a line, and ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evidence.keys import key_pair, needs_library, trust_file
from tests.evidence.project import DENIED, FEW, copy_inputs
from tests.support import CANONICAL, FILES, TASK, cli

SECONDS = 60  # until a command counts as hanging


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("odd") / "project", FEW)


@pytest.fixture
def project(copied: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(copied, tmp_path / "project"))


ODD: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "folder": os.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "link": lambda path: path.symlink_to(path.with_name("aside")),
}
COMMANDS = (
    ("check",),
    ("verify",),
    ("check", CANONICAL),
    ("verify", CANONICAL),
    ("replay", CANONICAL),
    ("show", CANONICAL),
    ("show", CANONICAL, "--html", "out.html"),
    ("explain", CANONICAL),
    ("ls",),
    ("site", "runs", "out"),
    ("accept", CANONICAL, "--reason", "so"),
    ("push", CANONICAL, "--endpoint", "http://127.0.0.1:9"),
    ("policy", "diff", "policy/v1.yaml", "policy/v1.yaml"),
    ("policy", "suggest", CANONICAL),
    ("resume", CANONICAL),
    ("index",),
    ("show", CANONICAL, "--request", "1"),
    ("show", CANONICAL, DENIED),
    ("replay", CANONICAL, "--policy", "policy/v1.yaml"),
    ("policy", "diff", "policy/v1.yaml", "policy/v1.yaml", "--runs", "runs"),
    ("accept", "--all", "--reason", "so"),
    ("run", TASK),
)


@pytest.mark.parametrize("file", [*FILES, "seal.json"])
@pytest.mark.parametrize("odd", ODD)
def test_no_command_hangs_or_crashes(project: Path, file: str, odd: str) -> None:
    path = project / CANONICAL / file
    if path.exists():
        path.rename(path.with_name("aside"))
    ODD[odd](path)
    if odd != "link" and path.with_name("aside").exists():
        path.with_name("aside").unlink()
    commands = (
        COMMANDS if (file, odd) in (("state.jsonl", "FIFO"), ("manifest.json", "device")) else COMMANDS[:4]
    )
    for words in commands:
        done = cli(*words, cwd=project, env={"CI": ""}, timeout=SECONDS)
        assert done.returncode in (0, 1, 2), (words, done.stderr)
        assert "Traceback" not in done.stderr + done.stdout, (words, done.stderr)
        if words[0] in ("check", "verify") and file != "seal.json":
            assert done.returncode == 1 and CANONICAL in done.stdout, (words, done.stdout)
            assert "check its permission" not in done.stdout, done.stdout  # it is not the permission


@pytest.mark.parametrize("file", ["runs/INDEX.json", "runs/ACCEPTED.jsonl", "runs/canonical/v1"])
@pytest.mark.parametrize("odd", ODD)
def test_nor_where_a_file_of_runs_itself_is_none(project: Path, file: str, odd: str) -> None:
    path = project / file
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    ODD[odd](path)
    for words in (("check",), ("verify",), ("ls",), ("site", "runs", "out")):
        done = cli(*words, cwd=project, timeout=SECONDS)
        assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr + done.stdout, (
            words,
            done.stderr,
        )
        if words[0] in ("check", "verify"):
            assert done.returncode in (1, 2), (words, done.stdout)


@needs_library
@pytest.mark.parametrize(
    ("file", "odd"),
    [
        *(("seals/000001.json", odd) for odd in ("FIFO", "device", "link")),
        (f"{CANONICAL}/state.jsonl", "FIFO"),
    ],
)
def test_nor_where_records_are_signed(project: Path, tmp_path: Path, file: str, odd: str) -> None:
    private, public = key_pair(tmp_path, "ann")
    keys = trust_file(tmp_path / "keys.yaml", 1, public)
    assert cli("seal", "--all", "--key", str(private), cwd=project).returncode == 0
    path = project / file
    aside = path.rename(tmp_path / "aside")
    path.symlink_to(aside) if odd == "link" else ODD[odd](path)
    commands = [
        ("verify", "--trust", str(keys), "--strict", "--at-least", "1"),
        ("seal", "--all", "--key", str(private)),
        ("seal", "--all", "--add-signature", "--key", str(private)),
    ]
    if not file.startswith("seals"):
        commands.append(("seal", CANONICAL, "--key", str(private)))
    for words in commands:
        done = cli(*words, cwd=project, timeout=SECONDS)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr, (words, done.stderr)
        assert file in done.stdout + done.stderr, (words, done.stdout)
