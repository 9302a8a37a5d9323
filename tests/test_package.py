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
        "tachograph/evidence/task.v1.schema.json",
        "tachograph/_shipped/policy/v1.yaml",
        "tachograph/_shipped/policy/v1.schema.json",
        "tachograph/_shipped/tools/search.py",
        "tachograph/_shipped/data/corpus/v1/manifest.json",
        "tachograph/_shipped/tasks/canonical/v1.yaml",
    ):
        assert wanted in names
    assert sum(name.startswith("tachograph/_shipped/data/corpus/v1/op-") for name in names) == 25


def test_the_installed_package_makes_the_committed_run(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "-q",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(command, check=True, timeout=300)
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
