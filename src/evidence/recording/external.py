"""External calls are performed when a run is made, and answered from its record whenever it is made again."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ...fail.errors import InputError
from ...light_dataclasses import replace
from ...runtime.agent import Agent
from ...runtime.journal import ledger
from ...runtime.journal.recorded_effects import RecordedEffects
from ...runtime.setup.run_config import RunConfig
from ..files import manifest
from ..files.manifest import MANIFEST, STATE

PERFORM = "--perform-effects"
ANSWERED = "answered"  # what a journal notes of a run whose external calls a record answers


def answered_from(
    agent: Agent, config: RunConfig, folder: Path, name: str, rejected: Path | None = None
) -> RunConfig:
    """Return `config` with external calls answered from the record in `folder`.

    Where none stands, a run that missed what its task expects is the record of what was done. The configuration is
    returned unchanged for an agent without external tools, and where no record stands at all.

    Args:
        agent: The agent that makes the run.
        config: The run's configuration.
        folder: The folder of the record.
        name: What messages call that folder.
        rejected: Where a run of the task is kept that missed what it expects.

    Raises:
        RecordError: There is a record that cannot be read, so that nobody knows which effects took place.
    """
    if not any(tool.is_external for tool in agent.gate.tools.values()):
        return config
    if not _stands(folder):
        if rejected is None or not _stands(rejected):
            return config
        folder, name = rejected, str(rejected)
    place, task = f"{name}/{STATE}", config.task
    again = "make the run again in code"
    if task is not None:
        again = f"perform the effects again: `tachograph run {shlex.quote(task['path'])} {PERFORM}`"
    try:
        data = (folder / STATE).read_bytes()
        lines = list(ledger.read(data, place))
    except OSError as error:
        raise InputError(
            f"cannot be read ({type(error).__name__}), so the results of external calls are not known",
            file=place,
            remedy=f"restore it, or {again}",
        ) from None
    try:
        answers = RecordedEffects(lines[0]["run_id"], lines[1:-1], place, again, _documents(folder))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(place, error) from error
    return replace(config, answers=answers)


def _documents(folder: Path) -> dict[str, str]:
    """Return the digests of the inputs in a manifest, by path; none if it cannot be read, which a check reports."""
    try:
        inputs = manifest.read((folder / MANIFEST).read_bytes())["inputs"]
        return {str(item["path"]): str(item["sha256"]) for item in inputs}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _stands(folder: Path) -> bool:
    """Return whether a folder holds a record, whole or not."""
    try:
        return bool(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
