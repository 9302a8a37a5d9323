"""Make a snapshot of a project, add a signature to it, verify a project by it."""

from __future__ import annotations

from pathlib import Path

from ...fail.errors import InputError, OutputError, RecordError
from ...light_dataclasses import dataclass
from ..checking.check import runs_below
from ..checking.verify import verify
from ..recording.index import problems as index_problems
from .compare import Changes, changes_since
from .keys import TrustedKeys, private_signer
from .snapshots import (
    SEALS,
    Snapshot,
    add_signatures,
    file_of,
    read_snapshots,
    sign,
    signature_problem,
    signatures,
    write,
)
from .statement import Tree, statement, tree_of


@dataclass(frozen=True)
class Sealed:
    """A snapshot that was made or signed.

    Attributes:
        file: Its file, relative to the project.
        sequence: Its number.
        keys: The ids of the keys that signed now; none where nothing was to be sealed.
        tree: What it covers.
        since: What changed since the snapshot before; None for the first.
    """

    file: str
    sequence: int
    keys: tuple[str, ...]
    tree: Tree
    since: Changes | None


@dataclass(frozen=True)
class Verdict:
    """What the snapshots of a project prove of it.

    Attributes:
        problems: One line for each thing wrong.
        unsealed: One line for each later change.
        snapshot: The last snapshot that enough keys signed; None without one.
        names: The trusted keys that signed it.
        runs: The runs that are as they were sealed.
    """

    problems: list[str]
    unsealed: list[str]
    snapshot: Snapshot | None
    names: tuple[str, ...]
    runs: tuple[str, ...]


def seal_all(root: Path, keys: list[Path], trusted: TrustedKeys | None = None) -> Sealed:
    """Sign a project as it stands, and write the next snapshot. Nothing is written where nothing changed.

    Args:
        root: The project.
        keys: Files of private keys.
        trusted: If given, the snapshot before must be signed by these keys.

    Raises:
        InputError: A key is none, or the project or its snapshots do not hold.
        OutputError: The snapshot cannot be written.
    """
    signers = [private_signer(key) for key in keys]
    snapshots = _whole_chain(root)
    if snapshots and trusted is not None:
        unsigned = signature_problem(snapshots[-1], trusted)
        if unsigned is not None:
            raise RecordError(unsigned)
    tree = _whole_tree(root)
    last = snapshots[-1] if snapshots else None
    if last is not None and last.tree == tree:
        return Sealed(last.file, last.sequence, (), tree, Changes())
    sequence = last.sequence + 1 if last is not None else 1
    envelope = sign(statement(tree, sequence, last.digest if last is not None else None), signers)
    write(root, sequence, envelope)
    since = changes_since(snapshots, tree, root) if snapshots else None
    return Sealed(file_of(sequence), sequence, _ids(signers), tree, since)


def add_signature(root: Path, keys: list[Path]) -> Sealed:
    """Add signatures to the last snapshot, which must be of the project as it stands.

    Raises:
        InputError: A key is none, there is no snapshot, or the project is not the one that was sealed.
        OutputError: The snapshot cannot be written.
    """
    signers = [private_signer(key) for key in keys]
    snapshots = _whole_chain(root)
    if not snapshots:
        raise RecordError(
            "there is no snapshot to sign", file=SEALS, remedy="make one: tachograph seal --all --key FILE"
        )
    last = snapshots[-1]
    tree = _whole_tree(root)
    if last.tree != tree:
        changes = changes_since(snapshots, tree, root)
        (first, *_) = [*changes.problems, *changes.unsealed]
        raise RecordError(
            f"is not the project as it stands: {first}",
            file=last.file,
            remedy="check out what it seals, or make a new one: tachograph seal --all --key FILE",
        )
    write(root, last.sequence, add_signatures(last, signers), replace=True)
    return Sealed(last.file, last.sequence, _ids(signers), tree, None)


def verify_snapshot(root: Path, keys: TrustedKeys, at_least: int | None = None) -> Verdict:
    """Verify a project by its snapshots: their chain, the signatures, and what changed since.

    The project is compared with the last snapshot that enough trusted keys signed.

    Args:
        root: The project.
        keys: The keys to trust, from a file that is not part of the project.
        at_least: The number of a snapshot that must be there, which shows that everything was rolled back.

    Raises:
        InputError: Something cannot be read, or the library that checks signatures is not installed.
    """
    snapshots, problems = read_snapshots(root)
    if not snapshots and not problems:
        problems.append(f"{SEALS}: there is no snapshot; make one with `tachograph seal --all --key FILE`")
    while snapshots:
        problem = signature_problem(snapshots[-1], keys)
        if problem is None:
            break
        problems.append(problem)
        snapshots.pop()
    sequence = snapshots[-1].sequence if snapshots else 0
    if at_least is not None and sequence < at_least:
        problems.append(
            f"{SEALS}: the last snapshot with enough signatures is number {sequence}, but number {at_least} was made; "
            "the project was rolled back, or is an old copy"
        )
    if not snapshots:
        return Verdict(problems, [], None, (), ())
    changes = changes_since(snapshots, tree_of(root), root)
    names = signatures(snapshots[-1], keys).names
    return Verdict(
        [*problems, *changes.problems], changes.unsealed, snapshots[-1], names, tuple(changes.runs)
    )


def _whole_chain(root: Path) -> list[Snapshot]:
    snapshots, problems = read_snapshots(root)
    if problems:
        raise RecordError(problems[0])
    return snapshots


def _whole_tree(root: Path) -> Tree:
    """Return the project as it stands, once its records hold.

    Raises:
        RecordError: A record does not hold.
        OutputError: The project changed at the same time.
    """
    tree = tree_of(root)
    for folder in runs_below(root):
        wrong = verify(folder, root)
        if wrong:
            raise _does_not_hold(wrong[0])
    wrong = index_problems(root)
    if wrong:
        raise _does_not_hold(wrong[0])
    if tree_of(root) != tree:
        raise OutputError("the project changed while it was being sealed; seal it again")
    return tree


def _does_not_hold(problem: str) -> InputError:
    return RecordError(
        f"the project does not hold, so nothing was sealed: {problem}", remedy="`tachograph verify` lists all"
    )


def _ids(signers: list[object]) -> tuple[str, ...]:
    return tuple(str(signer.public_key.keyid) for signer in signers)  # type: ignore[attr-defined]
