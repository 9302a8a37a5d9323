"""The folder of a run: `DIR.partial/` while it goes on, exchanged for `DIR/` when it has ended."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..fail.errors import OutputError, RecordError, system_reason
from ..runtime.formats.durable_write import sync, write_durably
from .record_files import NAMES

MOUNTS: Final = "mounts"
KEY: Final = "key"
SOURCES: Final = "sources.json"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def partial_of(folder: Path) -> Path:
    """Return where a run lies until it has ended."""
    return folder.with_name(f"{folder.name}.partial")


def open_folder(folder: Path) -> Path:
    """Make the folder of a new open run. Raises OutputError where one lies there, or it cannot be made."""
    partial = partial_of(folder)
    _refuse_other(folder)
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        sync(partial.parent)
    except FileExistsError:
        remedy = "resume it, or remove the folder to begin anew"
        raise OutputError(f"{partial}: a run that has not ended lies here; {remedy}") from None
    except OSError as error:
        raise OutputError(f"{partial}: cannot be made ({system_reason(error)})") from None
    return partial


def _refuse_other(folder: Path) -> None:
    """Refuse a place where something else than a record lies, which would be removed. Raises OutputError."""
    is_free = not folder.exists() and not folder.is_symlink()
    is_record = folder.is_dir() and not folder.is_symlink()
    if not is_free and not (is_record and {path.name for path in folder.iterdir()} <= {*NAMES}):
        raise OutputError(
            f"{folder}: something else than a record lies here; remove it, or name another folder"
        )


def keep_key(partial: Path, key: bytes) -> None:
    """Keep the key of the placeholders of an open run, which is removed when the run is put in place."""
    write_durably(partial / KEY, key, mode=0o600)


def hold_sources(partial: Path, sources: Mapping[str, str], *, is_new: bool) -> None:
    """Note what a run is made from when it begins, and hold it against that when it goes on.

    Args:
        partial: The folder of the open run.
        sources: Path and digest of policy, task, tools, their modules and hooks, called or not.
        is_new: Whether the run begins.

    Raises:
        RecordError: One of them is another one now.
    """
    file = partial / SOURCES
    if is_new:
        write_durably(file, json.dumps(dict(sources)).encode())
        return
    try:
        before = json.loads(file.read_bytes())
    except FileNotFoundError:
        return  # only the lines of the log are there to go by
    except ValueError:
        remedy = "remove the folder of the open run and begin anew"
        raise RecordError("is damaged", file=f"{partial.name}/{SOURCES}", remedy=remedy) from None
    for path in sorted(before.keys() | sources.keys()):
        if before.get(path) != sources.get(path):
            remedy = "restore it, or remove the folder of the open run and begin anew"
            raise RecordError("has changed since the run began", file=path, remedy=remedy)


def read_key(folder: Path) -> bytes | None:
    """Return the key of an open run, None where there is none."""
    try:
        return (folder / KEY).read_bytes()
    except FileNotFoundError:
        return None


def write_files(partial: Path, files: Mapping[str, bytes]) -> None:
    """Write what follows from the log beside it."""
    for name in NAMES[1:]:
        write_durably(partial / name, files[name])


def put_in_place(partial: Path, folder: Path) -> None:
    """Put an ended run in the place of the one before, and remove that. Raises OutputError."""
    _refuse_other(folder)
    for path in (partial / "inputs.jsonl", partial / KEY, partial / SOURCES, partial / MOUNTS):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if not folder.exists():
        os.rename(partial, folder)
    else:
        old = folder.with_name(f"{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if _exchange(partial, folder):
            os.rename(partial, old)  # else it would look like an open run if the process ended here
        else:
            os.rename(folder, old)
            os.rename(partial, folder)
        shutil.rmtree(
            old, ignore_errors=True
        )  # the record is in place; what is left of the old one counts as none
    sync(folder.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the system cannot."""
    import ctypes  # only where a record replaces another

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)
