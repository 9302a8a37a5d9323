"""The digest of the sources that shape a run."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import grimp
import pytest

from tachograph.evidence.files.claims import package_digest as sources
from tachograph.runtime.formats import shipped_files

SOURCES = shipped_files.package_place()


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("fail/catalog.py", True),
        ("runtime/loop/loop.py", True),
        ("light_dataclasses.py", True),
        ("runtime/journal/ledger.v2.schema.json", True),
        ("tracing/spans.py", True),
        ("evidence/files/report.py", True),
        ("evidence/recording/record.py", True),
        ("evidence/tasks/faults.py", True),
        ("adapters/functions.py", True),
        ("views/page.py", False),
    ],
)
def test_the_digest_covers_what_decides_a_run(
    file: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "src"
    shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shipped_files, "_PACKAGE", copied)
    before = sources.package_digest.__wrapped__()
    with (copied / file).open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    assert (sources.package_digest.__wrapped__() != before) is counts


def test_the_digest_covers_every_module_that_recording_imports() -> None:
    graph = grimp.build_graph("tachograph")
    recording = {
        name
        for name in graph.modules
        if name.startswith(("tachograph.evidence.recording.", "tachograph.evidence.files."))
    }
    needed = recording.union(*map(graph.find_upstream_modules, recording))
    covered = {
        f"tachograph.{path.removesuffix('.py').replace('/', '.').removesuffix('.__init__')}"
        for path, _ in sources.package_sources()
    }
    assert len(needed) > 80
    assert sorted(needed - covered) == []


def test_the_digest_covers_what_the_wheel_carries_in_these_rooms() -> None:
    """A template or a prompt that is added beside the modules counts too, or is not among the wheel's files."""
    settings = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text())
    found = 0
    for package, patterns in settings["tool"]["setuptools"]["package-data"].items():
        place = SOURCES / "/".join(package.split(".")[1:])
        if sources.shapes_runs(f"{place.relative_to(SOURCES).as_posix()}/one.py"):
            found_there = (path for pattern in patterns for path in place.glob(pattern))
            carried = {path.relative_to(SOURCES).as_posix() for path in found_there}
            assert carried <= {path for path, _ in sources.package_sources()}, package
            found += len(carried)
    assert found >= 3
