"""What a run's folder may hold beside its files: `blobs/` and `children/`, each entry named in the manifest.

`blobs` in the manifest is an object from the name of a file in `blobs/` to its SHA-256; `children` is one from the name
of a folder in `children/` to the SHA-256 of its `manifest.json`. A child is the folder of a run itself. Both keys are
absent where unused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

from ...fail.errors import RecordError
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.read_file import read_unlinked, why_unread
from . import manifest as manifests

BLOBS: Final = "blobs"
CHILDREN: Final = "children"
OWNED: Final = (BLOBS, CHILDREN)


def check_owned(folder: Path, manifest: bytes, name: str) -> None:
    """Compare `blobs/` and `children/` of a run with its manifest.

    Raises:
        RecordError: An entry is missing, is not in the manifest or has another digest.
    """
    try:
        stated: Any = manifests.read(manifest)
    except (ValueError, TypeError):
        stated = {}  # what is wrong with it is reported where it is compared
    for kind in OWNED:
        entries = stated.get(kind, {})
        if not isinstance(entries, dict):
            raise RecordError(f"/{kind} is no object", file=f"{name}/{manifests.MANIFEST}", remedy=_REMAKE)
        place = folder / kind
        if not os.path.lexists(place):
            present: set[str] = set()
        elif not stat.S_ISDIR(os.lstat(place).st_mode) or not entries:
            raise RecordError(f"holds what is no run's: {kind!r}", file=name, remedy="remove it")
        else:
            present = set(os.listdir(place))
        for entry in sorted({*present, *entries}):
            shown = f"{name}/{kind}/{entry[:80]!r}"
            if entry not in entries:
                raise RecordError("is not in the manifest of its run", file=shown, remedy="remove it")
            if entry not in present:
                raise RecordError("is missing", file=shown, remedy=_REMAKE)
            path = place / entry / manifests.MANIFEST if kind == CHILDREN else place / entry
            if _digest(path, shown) != entries[entry]:
                raise RecordError(
                    "its digest is not the one in the manifest of its run", file=shown, remedy=_REMAKE
                )


def children_of(folder: Path) -> list[Path]:
    """Return the folders of a run's children, sorted."""
    try:
        return sorted(path for path in (folder / CHILDREN).iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


_REMAKE: Final = "restore it or record the run again"


def _digest(path: Path, shown: str) -> str:
    try:
        return digest(read_unlinked(path))
    except OSError as error:
        raise RecordError(f"cannot be read ({why_unread(error)})", file=shown, remedy=_REMAKE) from None
