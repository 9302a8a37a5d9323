"""Two branches that both accepted changes: what is recorded after git has merged their inputs.

All that was recorded is taken from the commits, and nothing from files in which git wrote both sides. A run that only
one branch changed stands as that branch has it. A run that both changed stands as HEAD has it and is made again from
the merged inputs; what the other branch changed is accepted on top, for the reason that stands there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...evidence.checking.differences.drift import counted
from ...evidence.files import accepted
from ...evidence.files.git_objects import GitObjects
from ...evidence.recording import index
from ...fail.errors import InputError, OutputError, system_reason
from ...runtime.core.lines import Line
from ...runtime.formats.durable_write import write_durably
from .accept import Change, reason_of

_NAMED: Final = 5  # files or runs that an error names


@dataclass
class Merge:
    """What the two branches recorded.

    Attributes:
        both: runs that both branches changed.
        files: what is to stand before runs are made again: path -> content, None for a file that is to go.
        reasons: by run that both changed, the lines of the other branch.
    """

    both: tuple[str, ...]
    files: dict[str, bytes | None]
    reasons: dict[str, list[Line]]
    _before: dict[str, bytes | None] = field(default_factory=dict)

    def begin(self, root: Path) -> None:
        """Put the files in place; `undo` puts back what was there. Raises OutputError."""
        for name in (*self.files, index.INDEX):
            path = root / name
            self._before[name] = path.read_bytes() if path.is_file() else None
        for name, data in self.files.items():
            _put(root / name, data)
        index.update(root)

    def undo(self, root: Path) -> None:
        """Put back what was there before `begin`. Raises OutputError."""
        for name, data in self._before.items():
            _put(root / name, data)

    def with_reasons(self, changes: Sequence[Change], reason: str | None) -> list[Change]:
        """Return the changes with the reason of each.

        Raises:
            InputError: No branch accepted one of them, and no reason was given.
        """
        out, without = [], []
        for one in changes:
            lines = self.reasons.get(one.findings.run, [])
            if _is_explained(one, lines):
                text = "; ".join(dict.fromkeys(str(line["reason"]) for line in lines))
            elif reason is None:
                without.append(one.findings.run)
                continue
            else:
                text = reason
            out.append(replace(one, entry={**one.entry, "reason": reason_of(text)}))
        if without:
            raise InputError(
                f"{counted(len(without), 'run')} drifted by more than either branch accepted ({_some(without)}); "
                "nothing was written",
                remedy='look at it and give --reason "why they may differ"',
            )
        return out


def merge_of(root: Path) -> Merge:
    """Return what the branches of the merge that is under way recorded.

    Raises:
        InputError: No merge of two branches is under way, inputs still conflict, or a run was removed on one branch.
    """
    repository = GitObjects.around(root)
    if repository is None:
        raise InputError(
            "this is not in a repository of git", remedy="--merge is for a merge that is under way"
        )
    with repository:
        others = repository.merging()
        if len(others) != 1:
            what = "no merge is under way" if not others else "more than two branches are being merged"
            raise InputError(what, remedy="--merge is for `git merge` of one branch, before it is committed")
        base = repository.merge_base(repository.head, others[0])
        unmerged = repository.unmerged()
        if base is None or unmerged is None:
            raise InputError(
                "the history of the two branches cannot be read",
                remedy="fetch it whole: git fetch --unshallow",
            )
        inside = repository.inside(root.resolve()) or "."
        prefix = "" if inside == "." else f"{inside}/"
        conflicts = [path for path in unmerged if not path.startswith(f"{prefix}runs/")]
        if conflicts:
            raise InputError(
                f"{counted(len(conflicts), 'file')} still conflict{'s' * (len(conflicts) == 1)}: {_some(conflicts)}",
                remedy="resolve and `git add` them first: runs are made from them",
            )
        sides = [_Side(repository, commit, prefix) for commit in (base, repository.head, others[0])]
        return _merged(*sides)


class _Side:
    """What one commit has below `runs/`."""

    def __init__(self, repository: GitObjects, commit: str, prefix: str) -> None:
        self._repository = repository
        found = repository.files_at(commit, f"{prefix}runs/")
        self.files = {path.removeprefix(prefix): blob for path, blob in found.items()}

    def of(self, run: str) -> dict[str, str]:
        """Return the files of a run and their blobs."""
        return {path: blob for path, blob in self.files.items() if path.startswith(f"{run}/")}

    def runs(self) -> set[str]:
        """Return the folders of runs."""
        return {"/".join(path.split("/")[:3]) for path in self.files if path.count("/") >= 3}

    def read(self, path: str) -> bytes:
        """Return the content of a file; none where it does not exist. Raises InputError."""
        blob = self.files.get(path)
        data = self._repository.read(blob) if blob is not None else b""
        if data is None:
            raise InputError(
                "git does not have its content here", file=path, remedy="fetch it, then merge again"
            )
        return data


def _merged(base: _Side, ours: _Side, theirs: _Side) -> Merge:
    runs = sorted(base.runs() | ours.runs() | theirs.runs())
    moved = [run for run in runs if base.of(run) != ours.of(run) and base.of(run) != theirs.of(run)]
    removed = [run for run in moved if bool(ours.of(run)) != bool(theirs.of(run))]
    if removed:
        raise InputError(
            f"one branch removed what the other changed: {_some(removed)}",
            remedy="settle it with `git rm -r` or `git checkout BRANCH -- RUN`, and commit that on one branch first",
        )
    files: dict[str, bytes | None] = {}
    for run in moved:
        for path in theirs.of(run).keys() - ours.of(run).keys():
            files[path] = None
        files.update({path: ours.read(path) for path in ours.of(run)})
    new = _added(base.read(accepted.ACCEPTED), theirs.read(accepted.ACCEPTED))
    kept = [line for run, line in new if run not in moved]
    if any(accepted.ACCEPTED in side.files for side in (ours, theirs)):
        files[accepted.ACCEPTED] = ours.read(accepted.ACCEPTED) + b"".join(kept)
    reasons: dict[str, list[Line]] = {}
    for run, line in new:
        if run in moved:
            reasons.setdefault(run, []).append(json.loads(line))
    return Merge(tuple(moved), files, reasons)


def _added(base: bytes, side: bytes) -> list[tuple[str, bytes]]:
    """Return the lines that a branch added, with their runs, in order. Raises InputError for one that is no entry."""
    there = Counter(base.splitlines(keepends=True))
    added = []
    for number, line in enumerate(side.splitlines(keepends=True), start=1):
        if there[line] > 0:
            there[line] -= 1
            continue
        entry = accepted.entry_of(line.rstrip(b"\n"))
        if isinstance(entry, str):
            raise InputError(
                f"{entry} on the other branch",
                file=accepted.ACCEPTED,
                line=number,
                remedy="restore it there first",
            )
        added.append((str(entry["run"]), line))
    return added


def _is_explained(one: Change, lines: Sequence[Line]) -> bool:
    """Return whether what moved in a run is what the other branch accepted for it, and nothing besides."""
    accepted_as = {move["path"]: move["after"] for line in lines for move in line["inputs"]}
    moved = {path: after for path, (_, after) in one.findings.digests.items()}
    return bool(moved) and all(path in accepted_as and accepted_as[path] == moved[path] for path in moved)


def _put(path: Path, data: bytes | None) -> None:
    try:
        if data is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, data)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({system_reason(error)}); make room, then accept again"
        ) from error


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return " ".join(names[:_NAMED]) + more
