"""The wheel: it puts nothing but `tachograph` into site-packages, and what ships with it works there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    "src",
    "policy",
    "tools",
    "data",
    "tasks",
    "pyproject.toml",
    "requirements.txt",
    "README.md",
    "LICENSE",
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the checkout stays as it is."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "-q",
        "-w",
        str(place),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = place.glob("*.whl")
    return found


def test_nothing_but_the_package_goes_into_site_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tachograph"}
    for wanted in (
        "tachograph/py.typed",
        "tachograph/evidence/tasks/task.v1.schema.json",
        "tachograph/runtime/journal/ledger.v1.schema.json",
        "tachograph/runtime/journal/ledger.v2.schema.json",
        "tachograph/_shipped/policy/v1.yaml",
        "tachograph/_shipped/policy/v1.schema.json",
        "tachograph/_shipped/tools/search.py",
        "tachograph/_shipped/tools/README.md",
        "tachograph/_shipped/data/corpus/v1/manifest.json",
        "tachograph/_shipped/tasks/canonical/v1.yaml",
    ):
        assert wanted in names
    assert sum(name.startswith("tachograph/_shipped/data/corpus/v1/op-") for name in names) == 25


def test_the_wheel_holds_the_modules_of_src_and_no_others(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".py", ".json", ".html"))}
    sources = (path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*"))
    kept = {f"tachograph/{path.as_posix()}" for path in sources if path.suffix in (".py", ".json", ".html")}
    assert {name for name in packed if not name.startswith("tachograph/_shipped/")} == kept
    assert len(kept) > 200


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed package and nothing of the checkout."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "-q", "--target"]
    subprocess.run([*command, str(place), str(wheel)], check=True, timeout=300)
    return place


def test_a_new_project_s_checks_run_from_the_wheel(site: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}

    def tachograph(*words: str, cwd: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tachograph", *words],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    assert "recorded  runs/first/welcome" in tachograph("init", "my desk", cwd=tmp_path)
    project = tmp_path / "my desk"
    assert "3 runs re-derived, all files identical" in tachograph("check", cwd=project)
    assert "3 ok, 0 failed" in tachograph("policy", "test", cwd=project)
    for words in (("verify",), ("policy", "check"), ("explain", "runs/first/outside")):
        tachograph(*words, cwd=project)
    tachograph("show", "runs/first/welcome", "--html", "page.html", cwd=project)
    assert b"<style>" in (project / "page.html").read_bytes()
    same = ("policy/v1.yaml", "policy/v1.yaml", "--runs", "runs")
    assert "allow and deny the same" in tachograph("policy", "diff", *same, cwd=project)


def test_the_installed_package_makes_the_committed_run(site: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    env = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-m", "tachograph", "run", "tasks/canonical/v1.yaml", "--quiet"],
        cwd=away,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("state.jsonl", "trace.json", "run_report.md"):
        made = (away / "runs/canonical/v1" / name).read_bytes()
        assert made == (ROOT / "runs/canonical/v1" / name).read_bytes(), name
    origin = subprocess.run(
        [sys.executable, "-c", "import tachograph; print(tachograph.__file__)"],
        cwd=away,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert str(site) in origin
