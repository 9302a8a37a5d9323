"""One leaf of a recorded ledger changed at random: a check never says that the run holds, and names the class."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.cause import HAND, causes_of
from tachograph.evidence.checking.differences.compare import BROKEN
from tachograph.evidence.checking.differences.drift import class_of
from tachograph.evidence.files.json_diff import CLASSES
from tests.evidence.project import DENIED, RETRIED, copy_inputs, edit_lines
from tests.review.drift_changes import GIVEN, RUNS
from tests.support import CANONICAL

# what makes a record one of another kind: of a live model, of a run from code, of no ledger
KINDS = ("/task", "/type", "/model/execution_path", "/deadline_ms", "/approvals")
CHANGED = (DENIED, RETRIED, GIVEN, CANONICAL)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all leaves."""
    inside = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if not inside and value in ({}, []):
        yield path
    for key, item in inside or ():
        yield from leaves(item, (*path, key))
    if inside is None:
        yield path


def put(line: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        line = line[key]
    line[path[-1]] = value


def at(line: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        line = line[key]
    return line


OTHER = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/\x1b#\n", max_size=3)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("mutation") / "project", RUNS)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), chain=st.booleans())
def test_a_leaf(project: Path, data: Any, chain: bool) -> None:
    run = data.draw(st.sampled_from(CHANGED))
    lines = [json.loads(text) for text in (project / run / "state.jsonl").read_text().split("\n")[:-1]]
    number = data.draw(st.integers(0, len(lines) - 1))
    path = data.draw(st.sampled_from([path for path in leaves(lines[number]) if path != ("prev",)]))
    pointer = "".join(f"/{part}" for part in path)
    value = data.draw(OTHER.filter(lambda value: json.dumps(value) != json.dumps(at(lines[number], path))))
    kept = project.parent / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(project / run, kept)
    try:
        edit_lines(project / run, lambda found: put(found[number], path, copy.deepcopy(value)), chain=chain)
        found = examine(project / run, root=project)
    finally:
        shutil.rmtree(project / run)
        kept.rename(project / run)
    assert not found.ok and found.accept is None and found.broken
    assert found.kind in (BROKEN, *CLASSES)
    if pointer.startswith(KINDS):
        return
    wanted = class_of(lines[number]["type"], pointer)
    assert found.kind == (BROKEN if wanted == "DIGEST-ONLY" else wanted), (pointer, found.lines)
    assert causes_of(found) == [HAND]
    first = found.drift.gravest if found.drift is not None else None
    assert first is not None and first.line == number + 1 and first.pointer.startswith(pointer)
