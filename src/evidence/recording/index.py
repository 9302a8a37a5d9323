"""Read, write and check `runs/INDEX.json`: one sorted line per run, the SHA-256 of its `manifest.json`.

It shows a deleted run, a deleted scenario, an extra file, a stale folder or an edited manifest without running
anything.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Final

from ...fail.errors import InputError, OutputError, system_reason
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.durable_write import write_durably
from ...runtime.formats.read_file import NotPlain, read_unlinked
from ..files import accepted
from ..files.manifest import FILES, MANIFEST, SEAL
from ..files.owned import OWNED
from ..tasks.task import OTHER_SUFFIXES

INDEX: Final = "runs/INDEX.json"
# files of runs/ itself
ASIDE: Final = ("INDEX.json", "README.md", "ACCEPTED.jsonl", "ACCEPTING.jsonl")
# suffixes of folders of runs that are being written or replaced
UNFINISHED: Final = (".partial", ".old")


def cannot_be_read(error: OSError) -> InputError:
    """Return the error for a folder or file of runs that cannot be read."""
    why = system_reason(error)
    return InputError(f"cannot be read ({why})", file=str(error.filename), remedy="check its permission")


def folders_in(place: Path) -> list[Path]:
    """Return the folders in a folder, sorted; none if it does not exist.

    `Path.glob` skips what cannot be read, so an unreadable run would count as one that holds.

    Raises:
        InputError: The folder cannot be read.
    """
    try:
        names = os.listdir(place)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise cannot_be_read(error) from None
    return sorted(place / name for name in names if _is_folder(place / name))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return False
        raise cannot_be_read(error) from None


def refuse_unreadable(place: Path) -> None:
    """Raise InputError if a folder below `place` cannot be read."""
    for _ in os.walk(place, onerror=raise_unreadable) if os.path.lexists(place) else ():
        pass


def raise_unreadable(error: OSError) -> None:
    """Raise InputError: the `onerror` of `os.walk`, which by default skips what cannot be read."""
    raise cannot_be_read(error) from None


def digests(root: Path) -> dict[str, str]:
    """Return run folder relative to the root -> SHA-256 of its manifest, for every complete run."""
    entries = {}
    for kind in folders_in(root / "runs"):
        for run in folders_in(kind):
            if run.suffix in UNFINISHED:
                continue
            try:
                entries[run.relative_to(root).as_posix()] = digest(read_unlinked(run / MANIFEST))
            except (FileNotFoundError, NotPlain):
                continue  # it is no complete run, which is told of the folder
            except OSError as error:
                raise cannot_be_read(error) from None
    return entries


def render(entries: dict[str, str]) -> bytes:
    """Return the content of the index: a JSON object, one sorted line per run."""
    lines = [f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries)]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8")


def update(root: Path) -> bool:
    """Write the index if it differs and return whether it did. Without `runs/` there is none."""
    text = render(digests(root))
    path = root / INDEX
    if not path.parent.is_dir():
        return False
    if path.is_file() and path.read_bytes() == text:
        return False
    try:
        write_durably(path, text)
    except OSError as error:
        raise OutputError(
            f"{INDEX}: cannot be written ({system_reason(error)}), and the runs stay as they are; "
            "check the folder and its permission, then write it with `tachograph index`"
        ) from error
    return True


def update_for(root: Path, out: Path) -> None:
    """Update the index if `out` is a run of the project at `root`."""
    if out.resolve().parent.parent == (root / "runs").resolve() and (root / "policy").is_dir():
        update(root)


def problems(root: Path) -> list[str]:
    """Return one line for each disagreement of index, runs and tasks; none if they agree."""
    path = root / INDEX
    if (root / accepted.PENDING).exists():
        return [f"{accepted.PENDING}: an accept was cut off; complete it with `tachograph index`"]
    if not path.is_file():
        return [f"{INDEX}: is missing; `tachograph index` writes it"]
    listed = read(path)
    if listed is None:
        _read(path)
        return [f"{INDEX}: is not an index; restore it, or write it anew with `tachograph index`"]
    out = [] if render(listed) == _read(path) else [f"{INDEX}: is not as it was written; restore it"]
    present = digests(root)
    tasks = {f"runs/{path.parent.name}/{path.stem}" for path in (root / "tasks").glob("*/*.yaml")}
    for name in sorted({*listed, *present, *tasks}):
        out += disagreements(name, listed.get(name), present.get(name), name in tasks)
    return out + _misnamed_tasks(root) + _strays(root) + accepted.problems(root)


def _misnamed_tasks(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root).as_posix()}: the name of a task ends in .yaml; rename it to {path.stem}.yaml"
        for path in sorted((root / "tasks").glob("*/*"))
        if path.suffix != ".yaml" and path.suffix.lower() in OTHER_SUFFIXES
    ]


def _read(path: Path) -> bytes:
    try:
        return read_unlinked(path)
    except OSError as error:
        raise cannot_be_read(error) from None


def read(path: Path) -> dict[str, str] | None:
    """Return run folder -> digest from an index file, or None if it is not an index."""
    try:
        listed = json.loads(read_unlinked(path))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
        return None
    return listed


def disagreements(name: str, listed: str | None, present: str | None, has_task: bool) -> list[str]:
    """Return one line for each thing wrong with one run.

    Args:
        name: Folder of the run, relative to the root.
        listed: Digest in the index.
        present: Digest of its manifest.
        has_task: Whether its task exists.
    """
    task = "tasks" + name.removeprefix("runs") + ".yaml"
    if present is None and listed is None:
        return [f"{task}: has no recorded run; record it with `tachograph run {task}`"]
    if present is None:
        return [f"{name}: is in the index, but the run is gone; restore it or record it again"]
    out = []
    if listed is None:
        out.append(f"{name}: is not in the index; remove the folder or record it with `tachograph run`")
    elif listed != present:
        out.append(f"{name}/{MANIFEST}: is not the one in the index; restore it or record the run again")
    if not has_task:
        out.append(f"{name}: there is no task {task}; restore it, or move the run out of runs/")
    return out


def _strays(root: Path) -> list[str]:
    out = []
    for path in sorted((root / "runs").rglob("*")):
        relative = path.relative_to(root / "runs").parts
        if path.is_dir() and not path.is_symlink():
            is_run = path.suffix not in UNFINISHED and (path / MANIFEST).is_file()
            if len(relative) == 2 and not is_run:
                out.append(f"runs/{'/'.join(relative)}: is not a complete run; remove it or record it again")
            continue
        known = (len(relative) == 3 and relative[2] in (*FILES, SEAL)) or (
            len(relative) == 1 and relative[0] in ASIDE
        )
        name = f"runs/{'/'.join(relative)}"
        if path.is_symlink():
            out.append(f"{name}: is a link; replace it by its target, or remove it")
        elif not path.is_file():
            out.append(f"{name}: is a FIFO or a device; remove it")
        elif not known and relative[2:3] not in [(kind,) for kind in OWNED]:
            out.append(f"{name}: a file that belongs to no run; remove it")
    return out
