"""What a snapshot states of a run, and which projects it is not made of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.sealing import snapshots as files
from tachograph.evidence.sealing.keys import private_signer
from tachograph.evidence.sealing.seal_all import seal_all
from tachograph.evidence.sealing.statement import statement, tree_of
from tachograph.fail.errors import RecordError
from tests.evidence.forger import forge
from tests.evidence.keys import key_pair, needs_library
from tests.evidence.project import copy_inputs
from tests.support import CANONICAL

LIVE = "runs/live/smollm"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("stated") / "project", keep=("canonical/v1", "live/smollm"))


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "project"))


def test_a_scripted_run_can_be_made_again_and_a_live_one_cannot(project: Path) -> None:
    runs = tree_of(project).runs
    assert (runs[CANONICAL].can_be_remade, runs[LIVE].can_be_remade) == (True, False)


# what a run states -> some of it is answered from the record when the run is made again, or all of it
STATED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a person answered": lambda run: run.update(approvals="terminal"),
    "an external tool was offered": lambda run: run["tools"][0].update(effect="external"),
    "it has no task": lambda run: run.update(task=None),
}


@pytest.mark.parametrize("stated", STATED)
def test_what_rests_on_its_record_is_no_run_that_a_check_makes_again(project: Path, stated: str) -> None:
    forge(project / CANONICAL, lambda lines: STATED[stated](lines[0]), root=project)
    assert tree_of(project).runs[CANONICAL].can_be_remade is False


@needs_library
@pytest.mark.parametrize("stray", ["runs/notes.txt", "tasks/canonical/other.yml"])
def test_a_project_with_strays_is_not_sealed(project: Path, tmp_path: Path, stray: str) -> None:
    """Each run holds, but runs, tasks and index together do not."""
    key_pair(tmp_path, "ann")
    (project / stray).write_text("", encoding="utf-8")
    with pytest.raises(RecordError, match=f"does not hold, so nothing was sealed: {stray}: "):
        seal_all(project, [tmp_path / "ann"])
    assert not (project / "seals").exists()


# what is done to the envelope of a snapshot, whose statement stays as it is
ENVELOPES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another type of payload": lambda data: data.update(payloadType="application/json"),
    "one key more": lambda data: data.update(note="x"),
    "signatures that are none": lambda data: data.update(signatures={}),
    "a signature of a number": lambda data: data["signatures"][0].update(sig=1),
}


@needs_library
@pytest.mark.parametrize("change", ENVELOPES)
def test_an_envelope_of_another_form_is_no_snapshot(project: Path, tmp_path: Path, change: str) -> None:
    key_pair(tmp_path, "ann")
    seal_all(project, [tmp_path / "ann"])
    path = project / "seals/000001.json"
    envelope = json.loads(path.read_bytes())
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    ENVELOPES[change](envelope)
    path.write_text(json.dumps(envelope), encoding="utf-8")
    assert files.read_snapshots(project) == ([], ["seals/000001.json: is no snapshot; restore it"])


@needs_library
def test_the_first_snapshot_goes_on_from_none(project: Path, tmp_path: Path) -> None:
    key_pair(tmp_path, "ann")
    signer = private_signer(tmp_path / "ann")
    files.write(project, 1, files.sign(statement(tree_of(project), 1, "0" * 64), [signer]))
    assert files.read_snapshots(project) == (
        [],
        ["seals/000001.json: does not begin a chain; restore both"],
    )
