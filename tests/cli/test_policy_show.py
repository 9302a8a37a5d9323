"""`policy show` prints the policy that is in force, as a file that loads to the same policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph import Policy
from tachograph.runtime.policy.built_in import built_in_policy
from tests.cli.test_cli import cli
from tests.support import ROOT


def shown(folder: Path, *words: str) -> Policy:
    done = cli("policy", "show", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    file = folder / "shown.yaml"
    file.write_text(done.stdout, encoding="utf-8")
    return Policy.load(file)


@pytest.mark.parametrize("folder", ["policy", "other"])
def test_where_no_project_is_it_is_the_built_in_one(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    assert shown(tmp_path).version == built_in_policy({}).version
    said = json.loads(cli("policy", "show", "--json", cwd=tmp_path).stdout)
    assert said["policy"] == "<built-in policy>" and said["version"] == built_in_policy({}).version


def test_in_a_project_it_is_the_projects_with_its_overlays(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/v1.yaml").write_bytes((ROOT / "policy/v1.yaml").read_bytes())
    (tmp_path / "more.yaml").write_text("loop_budget: {max_iterations: 3}\n", encoding="utf-8")
    file = tmp_path / "policy/v1.yaml"
    assert shown(tmp_path).version == Policy.load(file).version
    merged = shown(tmp_path, "--overlay", "more.yaml")
    assert merged.version == Policy.load(file, [tmp_path / "more.yaml"]).version
    assert merged.limits["max_iterations"] == 3
    assert shown(tmp_path, "--built-in").allowed == {}


def test_an_overlay_without_a_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("loop_budget: {max_iterations: 3}\n", encoding="utf-8")
    done = cli("policy", "show", "--overlay", "more.yaml", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and "this is not a project" in done.stderr


@pytest.mark.parametrize("words", [("--built-in", "policy/v1.yaml"), ("nowhere.yaml",)], ids=" ".join)
def test_bad_input_is_one_line(words: tuple[str, ...]) -> None:
    done = cli("policy", "show", *words, cwd=ROOT)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
