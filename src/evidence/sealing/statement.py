"""What a snapshot states of a project: the digests of its files and of its runs.

It is an in-toto statement (https://in-toto.io/Statement/v1). Its subjects are the index, the accepted changes and every
file below `policy/`, `tasks/` and `tools/`. Its predicate gives the number of the snapshot, the digest of the statement
before it, and for each run the digests of its manifest and of its ledger.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ...fail.errors import InputError
from ...light_dataclasses import dataclass
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import NotPlain, read_unlinked
from ..files.accepted import ACCEPTED
from ..files.manifest import STATE
from ..recording.index import INDEX, cannot_be_read, digests, raise_unreadable
from ..recording.recorded import run_line

STATEMENT: Final = "https://in-toto.io/Statement/v1"
SNAPSHOT: Final = "urn:tachograph:snapshot:v1"
FOLDERS: Final = ("policy", "tasks", "tools")
_CACHES: Final = ("__pycache__",)


@dataclass(frozen=True)
class SealedRun:
    """What a snapshot states of one run.

    Attributes:
        manifest: SHA-256 of its `manifest.json`.
        ledger: SHA-256 of its `state.jsonl`; None if there is none.
        can_be_remade: Whether `check` makes the run again without taking answers of a model, a person or an external
            tool from the record.
    """

    manifest: str
    ledger: str | None
    can_be_remade: bool


@dataclass(frozen=True)
class Tree:
    """A project as far as a snapshot covers it.

    Attributes:
        files: Path relative to the project -> SHA-256.
        runs: Folder relative to the project -> what is stated of the run in it.
        accepted_bytes: The length of the file of accepted changes.
    """

    files: dict[str, str]
    runs: dict[str, SealedRun]
    accepted_bytes: int


def tree_of(root: Path) -> Tree:
    """Return a project as it stands.

    Raises:
        InputError: Something in it cannot be read or is no plain file.
    """
    files = {}
    for name in (INDEX, ACCEPTED):
        if os.path.lexists(root / name):
            files[name] = canonical_json.digest(_read(root, name))
    for folder in FOLDERS:
        for name in _files_below(root, folder):
            files[name] = canonical_json.digest(_read(root, name))
    runs = {name: _run(root / name, manifest) for name, manifest in digests(root).items()}
    accepted = len(_read(root, ACCEPTED)) if ACCEPTED in files else 0
    return Tree(files, runs, accepted)


def statement(tree: Tree, sequence: int, previous: str | None) -> bytes:
    """Return the statement of a snapshot in canonical JSON.

    Args:
        tree: The project.
        sequence: The number of the snapshot, from 1.
        previous: The digest of the statement before; None for the first.
    """
    return canonical_json.encode(
        {
            "_type": STATEMENT,
            "predicateType": SNAPSHOT,
            "subject": [
                {"name": name, "digest": {"sha256": tree.files[name]}} for name in sorted(tree.files)
            ],
            "predicate": {
                "sequence": sequence,
                "previous": previous,
                "accepted_bytes": tree.accepted_bytes,
                "runs": {
                    name: {"manifest": run.manifest, "ledger": run.ledger, "can_be_remade": run.can_be_remade}
                    for name, run in tree.runs.items()
                },
            },
        }
    ).encode("utf-8")


def read_statement(payload: bytes) -> tuple[Tree, int, str | None]:
    """Return what a statement states, its number and the digest of the statement before.

    Raises:
        ValueError: It is no statement as `statement` writes it.
    """
    try:
        data = canonical_json.parse(payload.decode("utf-8")).value()
        predicate = data["predicate"]
        tree = Tree(
            {item["name"]: item["digest"]["sha256"] for item in data["subject"]},
            {name: SealedRun(**item) for name, item in predicate["runs"].items()},
            predicate["accepted_bytes"],
        )
        sequence, previous = predicate["sequence"], predicate["previous"]
        if type(sequence) is not int or type(tree.accepted_bytes) is not int or sequence < 1:
            raise ValueError("a number is none")
        texts = [*tree.files.values(), *(run.manifest for run in tree.runs.values())]
        texts += [
            text for text in (previous, *(run.ledger for run in tree.runs.values())) if text is not None
        ]
        if not all(isinstance(text, str) for text in texts) or statement(tree, sequence, previous) != payload:
            raise ValueError("not as it was written")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no statement ({type(error).__name__})") from None
    return tree, sequence, previous


def _run(folder: Path, manifest: str) -> SealedRun:
    try:
        ledger = canonical_json.digest(read_unlinked(folder / STATE))
    except (FileNotFoundError, NotPlain):
        ledger = None  # an incomplete run, which `verify` reports
    except OSError as error:
        raise cannot_be_read(error) from None
    line = run_line(folder) if ledger is not None else None
    return SealedRun(manifest, ledger, line is not None and _can_be_remade(line))


def _can_be_remade(run: Line) -> bool:
    """Return whether nothing that a run states is answered from the record when it is made again."""
    try:
        return (
            run["model"]["execution_path"] == "stub"
            and run["task"] is not None
            and "approvals" not in run
            and all(tool["effect"] != "external" for tool in run["tools"])
        )
    except (KeyError, TypeError):
        return False


def _files_below(root: Path, folder: str) -> list[str]:
    """Return the files below a folder, relative to the project, without caches of bytecode."""
    out: list[str] = []
    if not os.path.lexists(root / folder):
        return out
    for place, folders, names in os.walk(root / folder, onerror=raise_unreadable):
        folders[:] = sorted(set(folders) - set(_CACHES))
        relative = Path(place).relative_to(root)
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        out += [(relative / name).as_posix() for name in (*names, *linked)]
    return sorted(out)


def _read(root: Path, name: str) -> bytes:
    try:
        return read_unlinked(root / name)
    except NotPlain as error:
        raise InputError(
            f"cannot be sealed ({error})",
            file=name,
            remedy="a snapshot covers plain files; replace or remove it",
        ) from None
    except OSError as error:
        raise cannot_be_read(error) from None
