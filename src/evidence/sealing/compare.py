"""How a project differs from its snapshot.

What no check makes again rests on the seal alone. A run that was deleted, moved or copied, a live run that is another
one, and sealed lines that are gone from the accepted changes are problems until a new snapshot is made. Every other
change is unsealed: it came after the snapshot, and `check` and review have to answer for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...light_dataclasses import dataclass, field
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import read_unlinked
from ..files.accepted import ACCEPTED
from ..recording.index import INDEX
from .snapshots import Snapshot
from .statement import SealedRun, Tree


@dataclass
class Changes:
    """What differs from a snapshot, one line each.

    Attributes:
        problems: What must not differ until it is sealed again.
        unsealed: Later changes that the snapshot does not cover.
        runs: The runs that are as they were sealed.
    """

    problems: list[str] = field(default_factory=list)
    unsealed: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


def changes_since(snapshots: Sequence[Snapshot], tree: Tree, root: Path) -> Changes:
    """Compare a project with the last of its snapshots.

    Args:
        snapshots: The snapshots in their order, at least one. Those before the last tell what is an earlier state.
        tree: The project as it stands.
        root: Its folder.
    """
    out = Changes()
    _compare_runs(snapshots, tree, out)
    _compare_files(snapshots, tree, out)
    _compare_accepted(snapshots[-1], tree, root, out)
    return out


def _compare_runs(snapshots: Sequence[Snapshot], tree: Tree, out: Changes) -> None:
    last = snapshots[-1]
    sealed, present = last.tree.runs, tree.runs
    home = {run.ledger: name for name, run in sealed.items() if run.ledger is not None}
    named: set[str] = set()
    for name, run in sorted(present.items()):
        own = sealed.get(name)
        owner = None if run.ledger is None else home.get(run.ledger)
        if own == run:
            out.runs.append(name)
        elif own is not None and own.ledger == run.ledger:
            out.unsealed.append(f"{name}/manifest.json: is not the one in {last.file}; its ledger is")
        elif name in named:
            continue
        elif owner is not None:
            named.update((name, owner))
            out.problems.append(_moved(name, owner, last, tree))
        else:
            _other_run(name, run, snapshots, out)
    for name in sorted(sealed.keys() - present.keys() - named):
        out.problems.append(
            f"{name}: is gone, but {last.file} holds it; restore it, or seal the project without it"
        )


def _moved(name: str, owner: str, last: Snapshot, tree: Tree) -> str:
    """Return the line for a place that holds a run which was sealed in another place."""
    there = tree.runs.get(owner)
    own = last.tree.runs.get(name)
    if there is None:
        return f"{name}: is the run that {last.file} holds as {owner}, which is gone; restore it there"
    if own is not None and there.ledger == own.ledger:
        return f"{name} and {owner}: have changed places since {last.file}; put them back"
    return f"{name}: is a copy of {owner} as {last.file} holds it; restore its own run or remove it"


def _other_run(name: str, run: SealedRun, snapshots: Sequence[Snapshot], out: Changes) -> None:
    """Report a run that is not in the last snapshot."""
    last = snapshots[-1]
    own = last.tree.runs.get(name)
    if own is None:
        proof = "" if run.can_be_remade else ", and no check makes it again"
        out.unsealed.append(f"{name}: is a new run since {last.file}{proof}")
        return
    earlier = _earlier([item.tree.runs.get(name) == run for item in snapshots], snapshots)
    if own.can_be_remade and run.can_be_remade:
        out.unsealed.append(f"{name}: is another run than in {last.file}{earlier}")
        return
    out.problems.append(
        f"{name}: is another run than in {last.file}{earlier}, and no check makes it again; "
        "restore it, or read it and seal the project"
    )


def _compare_files(snapshots: Sequence[Snapshot], tree: Tree, out: Changes) -> None:
    last = snapshots[-1]
    sealed, present = last.tree.files, tree.files
    for name in sorted(sealed.keys() | present.keys()):
        if name == ACCEPTED or (name == INDEX and tree.runs != last.tree.runs):
            continue  # compared line by line; it follows from the runs, which are named
        if name not in present:
            out.unsealed.append(f"{name}: is gone since {last.file}")
        elif name not in sealed:
            out.unsealed.append(f"{name}: is new since {last.file}")
        elif present[name] != sealed[name]:
            same = [item.tree.files.get(name) == present[name] for item in snapshots]
            out.unsealed.append(f"{name}: has changed since {last.file}{_earlier(same, snapshots)}")


def _compare_accepted(last: Snapshot, tree: Tree, root: Path, out: Changes) -> None:
    """Compare the accepted changes: lines are added to them, never changed or taken out."""
    length = last.tree.accepted_bytes
    if ACCEPTED not in last.tree.files or tree.files.get(ACCEPTED) == last.tree.files[ACCEPTED]:
        if ACCEPTED in tree.files and ACCEPTED not in last.tree.files:
            out.unsealed.append(f"{ACCEPTED}: is new since {last.file}")
        return
    text = read_unlinked(root / ACCEPTED) if ACCEPTED in tree.files else b""
    if canonical_json.digest(text[:length]) != last.tree.files[ACCEPTED]:
        out.problems.append(
            f"{ACCEPTED}: lines that {last.file} holds were changed or taken out; restore them, or seal the project"
        )
    else:
        added = text[length:].count(b"\n")
        out.unsealed.append(f"{ACCEPTED}: {added} new line{'' if added == 1 else 's'} since {last.file}")


def _earlier(same: Sequence[bool], snapshots: Sequence[Snapshot]) -> str:
    """Return a note on the latest earlier snapshot that holds what stands now."""
    found = [snapshot.file for snapshot, is_same in zip(snapshots, same, strict=True) if is_same]
    return f", but again as in {found[-1]}" if found else ""
