"""The command that accepts drift: `tachograph accept`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...fail.errors import EffectNotRecorded, InputError
from ...runtime.formats.escape import escape_terminal
from ..console import painter
from .common import Verb, in_project, owners, path_given, root_of, run_folders
from .policy.diff import add_jobs, over_runs


def add(commands: Any, verb: Verb) -> None:
    """Add the command accept."""
    parser = verb(commands, "accept", accept)
    parser.add_argument(
        "runs", nargs="*", type=path_given, metavar="RUN", help="folders of runs that drifted"
    )
    parser.add_argument("--all", action="store_true", help="all runs that drifted and can be accepted")
    parser.add_argument("--reason", metavar="TEXT", help="why the runs may differ; one for all of them")
    parser.add_argument(
        "--expose-secrets",
        action="store_true",
        help="accept too what puts secrets into records that were kept out of them, or lets a tool have them",
    )
    parser.add_argument(
        "--code-changed",
        action="store_true",
        help="accept too what differs by the code or a package, which only the manifest claims to have been others",
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="while git merges a branch: make runs that both changed anew from the merged inputs; "
        "--reason is for what neither accepted",
    )
    add_jobs(parser)


def accept(options: argparse.Namespace) -> int:
    """Record drifted runs anew, with a reason."""
    from ...review.drift import accept as accepting

    refuse_in_ci()
    if options.merge:
        return _accept_merge(options)
    reason = accepting.reason_of(options.reason)
    if bool(options.runs) == options.all:
        raise InputError("it is not said what to accept", remedy="name runs, or give --all, not both")
    if options.root is not None or in_project():
        accepting.recover(root_of(options))
    root, folders = _folders(options)
    changes, left, unrecorded = examined(options, root, folders, reason)
    if options.runs and left:
        (run, why), *more = left.items()
        others = f" (and {len(more)} more are refused)" if more else ""
        kind = EffectNotRecorded if run in unrecorded else InputError
        raise kind(f"{why}{others}; nothing was written", file=run)
    return accept_changes(options, root, changes, left)


def _accept_merge(options: argparse.Namespace) -> int:
    """Record what two branches give together that both accepted changes."""
    from ...evidence.checking.check import runs_below
    from ...evidence.checking.differences.drift import counted
    from ...evidence.files.accepted import ACCEPTED
    from ...review.drift.accept import needs_line, reason_of, recover
    from ...review.drift.merge import merge_of

    if options.runs or options.all:
        raise InputError("--merge is for all runs", remedy="leave out the names of runs and --all")
    reason = reason_of(options.reason) if options.reason is not None else None
    root = root_of(options, own=True)
    merge = merge_of(root)
    recover(root)
    options.all = True
    try:
        merge.begin(root)
        changes, left, _ = examined(options, root, owners(root, runs_below(root)), "")
        if left:
            (run, why), *more = left.items()
            others = f" (and {len(more)} more are refused)" if more else ""
            raise InputError(f"{why}{others}; nothing was written", file=run)
        changes = merge.with_reasons(changes, reason)
        needs_line(root, changes)
    except BaseException:
        merge.undo(root)
        raise
    if not options.json:
        both = counted(len(merge.both), "run")
        print(f"merge: {both} changed on both branches; {ACCEPTED} keeps the reasons of both")
    code = accept_changes(options, root, changes, {})
    if not options.json:
        print("now: git add runs, look at `git diff --cached`, and commit the merge")
    return code


def refuse_in_ci() -> None:
    """Raise InputError in CI, where nobody can have looked at what is accepted."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):  # noqa: TID251 - decides nothing in a run
        raise InputError(
            "CI never accepts",
            remedy="accept where you work and commit the result; unset CI if this is there",
        )


def _folders(options: argparse.Namespace) -> tuple[Path, list[Path]]:
    """Return the project and the runs named, each once."""
    root, folders = run_folders(options)
    return root, owners(root, folders)


def examined(
    options: argparse.Namespace, root: Path, folders: Sequence[Path], reason: str
) -> tuple[list[Any], dict[str, str], set[str]]:
    """Return the runs to accept, why others are not, and which of them have external calls without an answer.

    With `--all` only those that drift.
    """
    from ...evidence.checking.check import examine
    from ...evidence.checking.experiment.find import find_causes
    from ...review.drift.accept import change, refusal
    from ...runtime.core.clock import stopwatch

    def timed(folder: Path) -> tuple[Any, float]:
        begun = stopwatch()
        return examine(folder, root=root), stopwatch() - begun

    results = over_runs(options, timed, folders, "accept", ("drifted", lambda item: not item[0].ok))
    find_causes([item for item, _ in results], root, jobs=options.jobs)
    changes, left = [], {}
    for folder, (item, seconds) in zip(folders, results, strict=True):
        why = refusal(item, folder, root, code_changed=options.code_changed, expose=options.expose_secrets)
        if why is None:
            changes.append(change(item, folder, root, reason, seconds))
        elif options.runs or not item.ok:
            left[item.run] = why
    return changes, left, {item.run for item, _ in results if item.unrecorded}


def accept_changes(
    options: argparse.Namespace,
    root: Path,
    changes: list[Any],
    left: dict[str, str],
    *,
    announced: bool = False,
) -> int:
    """Put changes in place and print what was done; return the exit code.

    Args:
        options: The parsed options of the command.
        root: The project.
        changes: What is accepted.
        left: By run why it is not accepted.
        announced: Whether the preview was printed already.
    """
    from ...evidence.checking.differences.drift import counted
    from ...evidence.files.accepted import ACCEPTED
    from ...review.drift.accept import accept as put_in_place
    from ...review.drift.accept import needs_line, preview, sealed

    paint = painter(sys.stdout, options.no_color)
    seals = list(sealed(changes))
    if changes:
        needs_line(root, changes)  # no preview of what would be refused
    if changes and not options.json and not announced:
        for line in preview(changes):
            print(escape_terminal(line, 400))
        sys.stdout.flush()  # what is about to be done is told before it is done
    added = put_in_place(root, changes) if changes else []
    if options.json:
        document = {
            "accepted": added,
            "recorded": sorted(one.findings.run for one in changes),
            "left": left,
            "seals_dropped": seals,
        }
        print(json.dumps(document, sort_keys=True))
        return 1 if left else 0
    for run in seals:
        print(
            f"{paint('seal', 'yellow')}  {escape_terminal(run, 200)}: its seal was of what it was before; seal it again"
        )
    for run, why in left.items():
        print(f"{paint('left', 'yellow')}  {escape_terminal(run, 200)}: {escape_terminal(why, 1000)}")
    if not changes:
        print(
            "accept: nothing was accepted"
            if left
            else "accept: no run drifted, so there is nothing to accept"
        )
    else:
        print(f"accept: {counted(len(changes), 'run')} recorded anew; {ACCEPTED} says why")
    return 1 if left else 0
