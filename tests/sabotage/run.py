"""Sabotage: each mutation of `mutations.yaml` is made in a copy of the project and must turn a check red.

    python tests/sabotage/run.py [ID ...]

First the recorded runs are checked in the copy; only where they do not notice, the tests that the mutation
names are run. Prints one line a mutation and the score; exit code 1 if one survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("src", "policy", "tools", "data", "tasks", "runs", "tests", "docs"),
    *("pyproject.toml", "README.md", "Makefile"),
)
SECONDS = 300


def mutations() -> list[dict[str, Any]]:
    """The list, as data. `find` stands exactly once in its file, and `put` differs from it."""
    data: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests/sabotage/mutations.yaml").read_text("utf-8"))
    return data


def copy_project(place: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "sabotage")
            shutil.copytree(source, place / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy(source, place / name)
    (place / "tachograph").symlink_to("src")


def run(place: Path, *command: str) -> bool:
    """Whether a command is green in `place`."""
    env = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=place, env=env, capture_output=True, timeout=SECONDS, check=False
    )
    return done.returncode == 0


def is_noticed(place: Path, tests: list[str]) -> str | None:
    """What turned red in `place`, or None."""
    if not run(place, "-m", "tachograph", "check"):
        return "the recorded runs"
    if tests and not run(place, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests):
        return "the tests"
    return None


def sabotage(mutation: dict[str, Any]) -> str | None:
    """What noticed a mutation, or None."""
    with tempfile.TemporaryDirectory(prefix="tachograph-sabotage-") as folder:
        place = Path(folder)
        copy_project(place)
        file = place / mutation["file"]
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(mutation["find"], mutation["put"]), encoding="utf-8")
        return is_noticed(place, mutation["tests"])


def main(wanted: list[str]) -> int:
    chosen = [m for m in mutations() if not wanted or m["id"] in wanted]
    survivors = []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for mutation, by in zip(chosen, pool.map(sabotage, chosen), strict=True):
            print(f"{'survives' if by is None else 'noticed '}  {mutation['id']}  {by or ''}", flush=True)
            if by is None:
                survivors.append(mutation["id"])
    print(f"sabotage: {len(chosen) - len(survivors)} of {len(chosen)} mutations noticed")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
