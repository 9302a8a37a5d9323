"""The command that searches what was recorded for secrets, and tries whether any would be recorded: secrets."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

from ...fail.errors import InputError
from ...runtime.formats.escape import escape_terminal
from ..console import Paint, painter
from .common import Verb, near, path_given, root_of, run_folders, task_named

if TYPE_CHECKING:
    from ...evidence.canary.trial import Shown, Trial
    from ...runtime.core.redaction import Redactor
    from ...runtime.policy.policy import Policy

_WIDTH = 100  # of what a trial prints, which nobody reads


def add(commands: Any, verb: Verb) -> None:
    """Add the command secrets."""
    parser = verb(commands, "secrets", secrets)
    parser.add_argument(
        "runs",
        nargs="*",
        type=path_given,
        metavar="RUN",
        help="folders of runs; runs/ may be left out (default: all below it); with --canary: tasks",
    )
    parser.add_argument(
        "--canary",
        action="store_true",
        help="make runs with marked values in every way in, under the policy of each task named or the project's, "
        "and search every byte that they write",
    )


def secrets(options: argparse.Namespace) -> int:
    """Search every file of recorded runs for secrets; no line shows one."""
    if options.canary:
        return _canary(options)
    from ...evidence.checking.differences.drift import counted
    from ...evidence.checking.secrets import leaks

    is_whole = not options.runs
    root, folders = run_folders(options)
    lines = leaks([root / "runs"] if is_whole else folders, root)
    if options.json:
        print(json.dumps({"runs": len(folders), "secrets": lines}, sort_keys=True))
        return int(bool(lines))
    paint = painter(sys.stdout, options.no_color)
    for line in lines:
        print(f"{paint('secret', 'red')}  {escape_terminal(line, 400)}")
    names = escape_terminal(near(folders[0]), 400) if len(folders) == 1 else f"{len(folders)} runs"
    print(
        f"secrets: {counted(len(lines), 'place')} in {names} may hold a secret"
        if lines
        else f"secrets: none found in {names}"
    )
    return int(bool(lines))


def _canary(options: argparse.Namespace) -> int:
    """Try under each policy whether a marked value is written anywhere, and say of each way in what was found."""
    from ...evidence.canary.trial import KINDS, tried

    policies = _policies(options)
    trials = {
        name: [tried(kind, _section(policy), _show) for kind in KINDS] for name, policy in policies.items()
    }
    failed = any(not trial.is_clean for of_policy in trials.values() for trial in of_policy)
    if options.json:
        data = {name: {trial.kind.name: trial.to_dict() for trial in made} for name, made in trials.items()}
        print(json.dumps(data, sort_keys=True))
        return int(failed)
    paint = painter(sys.stdout, options.no_color)
    for name, made in trials.items():
        _say(escape_terminal(name, 400), made, paint)
    return int(failed)


def _policies(options: argparse.Namespace) -> dict[str, Policy]:
    """Return the policies of the tasks that are named, else the project's, by the name of the task or the policy."""
    from ...runtime.policy.policy import Policy

    if not options.runs:
        root = root_of(options)
        path = root / "policy" / "v1.yaml"
        return {near(path): Policy.load(path, root=root)}
    from ...evidence.tasks.named_files import policy_of
    from ...evidence.tasks.task import load_task

    policies = {}
    for name in options.runs:
        options.task = name
        task = load_task(task_named(options)[0], root=options.root)
        if task.agent is not None:
            raise InputError(
                "the policy of this task stands in code",
                file=name,
                remedy="name a task with policy:, or none for the project's",
            )
        policies[task.file] = policy_of(task)
    return policies


def _section(policy: Policy) -> Any:
    """Return what a policy says of redaction, without tools that the trial does not have."""
    section = policy.data.get("redact")
    if not isinstance(section, dict):
        return section
    return {key: value for key, value in section.items() if key != "reveal_to"}


def _show(stream: TextIO, redactor: Redactor) -> Shown:
    """Return what prints a run as `tachograph run` does."""
    from ...evidence.canary.trial import Shown
    from ..progress import Progress

    progress = Progress(stream, lambda text, _colour: text, _WIDTH)
    progress.redactor = redactor
    return Shown(progress, progress.token)


def _say(name: str, trials: list[Trial], paint: Paint) -> None:
    from ...evidence.canary.marks import WAYS
    from ...evidence.checking.differences.drift import counted

    found = {(item.way, item.place, trial.kind.name) for trial in trials for item in trial.found}
    for way, what in WAYS.items():
        places = sorted({place for one, place, _ in found if one == way})
        if not places:
            print(f"{paint('kept out', 'green')}  {what}")
            continue
        kinds = sorted({kind for one, _, kind in found if one == way})
        print(f"{paint('found', 'red')}     {what}: in {', '.join(places)} ({'; '.join(kinds)})")
    for line in dict.fromkeys(line for trial in trials for line in trial.problems):
        print(f"{paint('not tried', 'yellow')}  {escape_terminal(line, 400)}")
    ways = len({way for way, _, _ in found})
    size = sum(sum(trial.places.values()) for trial in trials)
    told = (
        f"{counted(ways, 'marked value')} of {len(WAYS)} found"
        if ways
        else f"none of {len(WAYS)} marked values"
    )
    print(f"secrets: {told} in {size:,} bytes that {counted(len(trials), 'run')} wrote, under {name}")
