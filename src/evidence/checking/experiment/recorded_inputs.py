"""What the moved inputs of a run were when it was recorded, as far as git has them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ....fail.errors import InputError
from ....light_dataclasses import dataclass, field
from ....runtime.core.lines import Line
from ....runtime.formats import canonical_json
from ....runtime.formats.document_digest import digest_of_document
from ....runtime.formats.read_file import read_unlinked
from ...files import manifest as manifests
from ...files.git_objects import GitObjects
from ...files.manifest import MANIFEST
from ..differences.compare import Findings, change_on_disk


@dataclass
class Earlier:
    """The moved inputs of a run as they were.

    Attributes:
        data: Path -> its bytes; None for a file that was not there.
        missing: Paths whose recorded state git does not have.
        unproven: Paths whose state is that of the commit of the record, since no digest of them is recorded.
    """

    data: dict[str, bytes | None] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)


def recorded_inputs(findings: Findings, root: Path, objects: GitObjects) -> Earlier:
    """Return what git has of the moved inputs of a run as they were recorded.

    A file whose digest is recorded is looked for in the commit that last changed the record, then in the file's own
    history. One whose digest is not recorded is taken from that commit.
    """
    earlier = Earlier()
    place = objects.inside(root / findings.run / MANIFEST)
    commit = None if place is None else objects.last_change(place)
    recorded = _recorded(root / findings.run)
    # a module that is read on one side only is said to follow from other calls, but it may be gone
    gone = {path for path, item in recorded.items() if change_on_disk(item, root) is not None}
    for path in sorted({*findings.moved, *gone}):
        inside = objects.inside(root / path)
        if inside is None or ".." in Path(path).parts:
            earlier.missing.append(path)
            continue
        item = recorded.get(path)
        now = findings.digests.get(path, (None, None))[1]
        at_record = None if commit is None else objects.blob_at(commit, inside)
        if item is not None:
            data = _of_digest(objects, inside, at_record, item)
            if data is None:
                earlier.missing.append(path)
            else:
                earlier.data[path] = data
        elif commit is None:
            earlier.missing.append(path)
        else:
            data = None if at_record is None else objects.read(at_record)
            if at_record is not None and data is None:
                earlier.missing.append(path)
            elif now is None or data is None or canonical_json.digest(data) != now:
                earlier.data[path] = data
                earlier.unproven.append(path)
    return earlier


def _of_digest(objects: GitObjects, path: str, first: str | None, item: Line) -> bytes | None:
    """Return the newest bytes of a file that have the digest of a recorded input, `first` before all others."""
    digest_of = digest_of_document if item.get("canonical") is True else canonical_json.digest
    tried = set()
    for blob in ([first] if first is not None else []) + list(objects.blobs_of(path)):
        data = None if blob in tried else objects.read(blob)
        tried.add(blob)
        if data is not None and digest_of(data) == item["sha256"]:
            return data
    return None


def _recorded(folder: Path) -> dict[str, Line]:
    """Return the inputs that a manifest names, by path; none if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, InputError):
        inputs = manifests.read(read_unlinked(folder / MANIFEST))["inputs"]
        return {str(item["path"]): item for item in inputs if "sha256" in item}
    return {}
