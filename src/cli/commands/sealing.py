"""The command that signs records, `tachograph seal`, and what `verify --trust` says of snapshots."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...fail.errors import InputError
from ...runtime.formats.escape import escape_terminal
from .common import Verb, near, owners, path_given, root_of, run_folders

if TYPE_CHECKING:
    from ...evidence.sealing.compare import Changes
    from ...evidence.sealing.seal_all import Sealed, Verdict


def add(commands: Any, verb: Verb) -> None:
    """Add the command seal."""
    parser = verb(commands, "seal", seal)
    parser.add_argument(
        "runs", nargs="*", type=path_given, metavar="RUN", help="folders of runs, one seal each"
    )
    parser.add_argument(
        "--all", action="store_true", help="sign the whole project: write the next snapshot to seals/"
    )
    parser.add_argument(
        "--add-signature", action="store_true", help="with --all: sign the last snapshot with another key"
    )
    parser.add_argument(
        "--key",
        action="append",
        type=path_given,
        required=True,
        metavar="FILE",
        help="private key (PEM); with --all it may be given several times",
    )
    parser.add_argument(
        "--trust",
        type=path_given,
        metavar="KEYS",
        help="with --all: these keys must have signed the snapshot before",
    )


def add_to_verify(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verify` that concern snapshots."""
    parser.add_argument(
        "--trust",
        type=path_given,
        metavar="KEYS",
        help="compare the project with its last signed snapshot; KEYS names public keys and a threshold",
    )
    parser.add_argument(
        "--strict", action="store_true", help="with --trust: unsealed changes are problems too"
    )
    parser.add_argument(
        "--at-least",
        type=_number,
        metavar="N",
        help="with --trust: snapshot N must be there, else all was rolled back",
    )


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < len(text) <= 6 and int(text) > 0:
        return int(text)
    raise InputError(
        f"{escape_terminal(text, 40)!r} must be the number of a snapshot",
        file="--at-least",
        remedy="give a number from 1 to 999999",
    )


def seal(options: argparse.Namespace) -> int:
    """Sign recorded runs, or a whole project."""
    if bool(options.runs) == options.all:
        raise InputError("it is not said what to seal", remedy="name runs, or give --all, not both")
    if options.all:
        return _seal_all(options)
    for name, given in (("--add-signature", options.add_signature), ("--trust", options.trust)):
        if given:
            raise InputError("is for snapshots of the whole project", file=name, remedy="give --all")
    if len(options.key) > 1:
        raise InputError("a run is sealed with one key", file="--key", remedy="give it once, or --all")
    from ...evidence.sending.seal import seal as seal_run

    root, folders = run_folders(options)
    keys = {near(folder): seal_run(folder, Path(options.key[0]), root) for folder in owners(root, folders)}
    if options.json:
        print(json.dumps(keys, sort_keys=True))
        return 0
    for name, keyid in keys.items():
        print(f"sealed    {escape_terminal(name, 400)}/seal.json with key {keyid[:16]}")
    return 0


def _seal_all(options: argparse.Namespace) -> int:
    from ...evidence.sealing.keys import trusted_keys
    from ...evidence.sealing.seal_all import add_signature, seal_all

    root = root_of(options, own=True)
    keys = [Path(key) for key in options.key]
    if options.add_signature:
        if options.trust is not None:
            raise InputError("goes with a new snapshot only", file="--trust", remedy="leave it out")
        sealed = add_signature(root, keys)
    else:
        trusted = trusted_keys(Path(options.trust)) if options.trust is not None else None
        sealed = seal_all(root, keys, trusted)
    if options.json:
        since = _lines(sealed.since)
        data = {"snapshot": sealed.sequence, "file": sealed.file, "keys": sealed.keys, "since": since}
        print(json.dumps(data, sort_keys=True))
        return 0
    _say_sealed(sealed)
    return 0


def _say_sealed(sealed: Sealed) -> None:
    if not sealed.keys:
        print(f"unchanged {sealed.file}: nothing changed since it, so no snapshot was written")
        return
    covered = f"{len(sealed.tree.runs)} runs, {len(sealed.tree.files)} files"
    print(f"sealed    {sealed.file}: {covered}, with key {', '.join(key[:16] for key in sealed.keys)}")
    for line in _lines(sealed.since):
        print(f"changed   {escape_terminal(line, 400)}")


def _lines(changes: Changes | None) -> list[str]:
    """Return what changed since the snapshot before, without what a person should do about it."""
    if changes is None:
        return []
    return [line.partition("; ")[0] for line in (*changes.problems, *changes.unsealed)]


def verdict_of(options: argparse.Namespace, root: Path) -> Verdict | None:
    """Return what the snapshots of a project prove, if `verify --trust` asks.

    Raises:
        InputError: The options do not go together, a key is none, or the library that checks signatures is missing.
    """
    if options.trust is None:
        for name, given in (("--strict", options.strict), ("--at-least", options.at_least is not None)):
            if given:
                raise InputError(
                    "needs the keys to trust", file=name, remedy="give --trust KEYS, see docs/sealing.md"
                )
        return None
    if options.runs:
        raise InputError(
            "a snapshot is of the whole project",
            file="--trust",
            remedy="name no run; `--key FILE` is for runs",
        )
    from ...evidence.sealing.keys import trusted_keys
    from ...evidence.sealing.seal_all import verify_snapshot

    return verify_snapshot(root, trusted_keys(Path(options.trust)), options.at_least)


def chain_problems(root: Path) -> list[str]:
    """Return one line for each thing wrong with the chain of a project's snapshots, without looking at signatures."""
    from ...evidence.sealing.snapshots import read_snapshots

    return read_snapshots(root)[1]


def summary(verdict: Verdict | None, root: Path) -> str:
    """Return in a few words which snapshot a project was compared with, or that it has some and was with none."""
    if verdict is None:
        from ...evidence.sealing.snapshots import SEALS

        return f", compared with no snapshot in {SEALS}/ (--trust KEYS)" if (root / SEALS).is_dir() else ""
    if verdict.snapshot is None:
        return "; not sealed"
    later = len(verdict.unsealed)
    changes = f"; {later} later change{'' if later == 1 else 's'} unsealed" if later else ""
    names = escape_terminal(", ".join(verdict.names), 200)
    return f", {len(verdict.runs)} runs as sealed in {verdict.snapshot.file} by {names}{changes}"


def sealed_runs(verdict: Verdict | None, root: Path) -> set[str]:
    """Return the runs that are as they were sealed, named as the other lines of `verify` name them."""
    return set() if verdict is None else {near(root / name) for name in verdict.runs}


def as_data(verdict: Verdict | None) -> dict[str, Any]:
    """Return what the snapshots of a project prove, for output as JSON; nothing where it was not asked."""
    if verdict is None:
        return {}
    snapshot = verdict.snapshot.sequence if verdict.snapshot is not None else None
    return {"snapshot": snapshot, "keys": verdict.names, "sealed": verdict.runs, "unsealed": verdict.unsealed}
