"""The folder of a run: `DIR.partial/` while it goes on, exchanged for `DIR/` when it has ended."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..fail.errors import OutputError, system_reason
from ..runtime.formats.durable_write import sync, write_durably
from .record_files import NAMES

MOUNTS: Final = "mounts"
KEY: Final = "key"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def partial_of(folder: Path) -> Path:
    """Return where a run lies until it has ended."""
    return folder.with_name(f"{folder.name}.partial")


def open_folder(folder: Path) -> Path:
    """Make the folder of a new open run. Raises OutputError where one lies there, or it cannot be made."""
    partial = partial_of(folder)
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


def keep_key(partial: Path, key: bytes) -> None:
    """Keep the key of the placeholders of an open run, which is removed when the run is put in place."""
    write_durably(partial / KEY, key, mode=0o600)


def read_key(folder: Path) -> bytes | None:
    """Return the key of an open run, None where there is none."""
    try:
        return (folder / KEY).read_bytes()
    except OSError:
        return None


def write_files(partial: Path, files: Mapping[str, bytes]) -> None:
    """Write what follows from the log beside it."""
    for name in NAMES[1:]:
        write_durably(partial / name, files[name])


def put_in_place(partial: Path, folder: Path) -> None:
    """Put an ended run in the place of the one before, and remove that."""
    for path in (partial / "inputs.jsonl", partial / KEY, partial / MOUNTS):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if not folder.exists():
        os.rename(partial, folder)
    elif _exchange(partial, folder):
        shutil.rmtree(partial)
    else:
        old = folder.with_name(f"{folder.name}.old")
        os.rename(folder, old)
        os.rename(partial, folder)
        shutil.rmtree(old)
    sync(folder.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)
