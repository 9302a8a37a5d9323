"""A run made from code without a task is verified; it has no place below `runs/`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dev import smoke
from tachograph import Agent, Policy, Stub, record
from tachograph.evidence.checking.check import examine
from tachograph.evidence.recording import index
from tachograph.evidence.recording.recorded import made_from_code
from tests.support import cli, copy_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_project(tmp_path_factory.mktemp("code") / "project")
    _record(root / "mine/first")
    return root


def _record(out: Path) -> None:
    record(Agent(Stub([{"answer": "so"}]), [], Policy.shipped()), "q", out, run_id="a")


def test_it_is_verified(project: Path) -> None:
    folder = project / "mine/first"
    assert made_from_code(folder) and not made_from_code(project / "runs/canonical/v1")
    assert examine(folder, root=project).ok
    alone = cli("check", "mine/first", cwd=project)
    assert alone.returncode == 0 and "no task to make it again from" in alone.stdout


def test_below_runs_it_needs_a_task(project: Path) -> None:
    folder = project / "runs/mine/first"
    _record(folder)
    index.update(project)
    try:
        said = "runs/mine/first: there is no task tasks/mine/first.yaml; "
        for verb in ("check", "verify"):
            for words in ([], ["runs/mine/first"]):
                done = cli(verb, *words, cwd=project)
                assert done.returncode == 1 and said in done.stdout, (verb, done.stdout)
        assert any(line.startswith(said) for line in smoke.tree(project))
    finally:
        shutil.rmtree(folder.parent)
        index.update(project)


def test_a_change_in_it_is_found(project: Path) -> None:
    state = project / "mine/first/state.jsonl"
    before = state.read_bytes()
    state.write_bytes(before.replace(b'"so"', b'"no"', 1))
    try:
        found = examine(state.parent, root=project)
        assert not found.ok and any("state.jsonl" in line for line in found.lines)
        assert cli("check", "mine/first", cwd=project).returncode == 1
    finally:
        state.write_bytes(before)


def test_identical_complaints_are_told_once(project: Path) -> None:
    policy = project / "policy/v1.yaml"
    before = policy.read_bytes()
    policy.write_bytes(before.replace(b"max_tokens", b"max_tokns"))
    try:
        done = cli("check", cwd=project)
        assert done.returncode == 1
        assert done.stdout.count("unknown key 'max_tokns'") == 1
        # recording again would be refused as well
        assert (
            done.stdout.splitlines()[-1]
            == "nothing to accept: fix the inputs named above, or restore the run's folder"
        )
        data = json.loads(cli("check", "--json", cwd=project).stdout)
        assert len(data["drifted"]) > 20 and set(data["accept"].values()) == {None}
    finally:
        policy.write_bytes(before)


def test_what_is_no_run_is_bad_input(project: Path) -> None:
    for verb in ("check", "verify"):
        for name in ("runs/none/such", "runs/canonical", "README.md", ""):
            done = cli(verb, name, cwd=project)
            assert done.returncode == 2 and done.stderr.count("\n") == 1, (verb, name, done.stderr)


def test_an_installed_task_is_checked_from_any_folder(tmp_path: Path) -> None:
    """Outside a project, a run of a task that came with the package is checked against that."""
    assert cli("run", "tasks/canonical/v1.yaml", "--quiet", cwd=tmp_path).returncode == 0
    for words in (["check"], ["check", "runs/canonical/v1"], ["verify"]):
        done = cli(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
