"""The commands that make recorded runs again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..fail.errors import InputError, RecordError
from .common import AGENT, BAD_INPUT, FAILED, JSON, OK, PATH, count, dump, names_of, project_at, say

if TYPE_CHECKING:
    from ..evidence.compare import Difference

_runs = click.argument("runs", nargs=-1, metavar="[RUN]...")


@click.command()
@_runs
@AGENT
@click.option("--all", "is_all", is_flag=True, help="Print every difference, not only what is gravest.")
@click.option("--github", "is_github", is_flag=True, help="Also print annotations for GitHub Actions.")
@JSON
def check(runs: tuple[str, ...], agent: str | None, is_all: bool, is_github: bool, is_json: bool) -> int:
    """Make recorded runs again and compare every line and file. Without a RUN, all of them."""
    from ..evidence import check as checking
    from ..evidence.drift import drift, github_commands, not_made

    if is_github and is_json:
        raise InputError("cannot be used together", file="--github and --json", remedy="give one of them")
    project = project_at(Path(), runs, agent)
    problems = [] if runs else project.problems()
    names = names_of(project, runs, of_tasks=True)
    found: dict[str, list[Difference]] = {}
    code = FAILED if problems else OK
    for name in names:
        folder, label = project.folder(name), project.label(name)
        try:
            found[name] = checking.check(project.source_of(name), folder, label)
        except RecordError as error:  # a run of a live model is made from its record
            damage = checking.in_itself(folder, label)
            found[name], code = damage or not_made(error), code or (FAILED if damage else BAD_INPUT)
        except InputError as error:
            found[name], code = not_made(error), BAD_INPUT
    if is_json:
        dump({"runs": found, "problems": problems})
        return code or (FAILED if any(found.values()) else OK)
    found = {name: differences for name, differences in found.items() if differences}
    for line in [*problems, *drift(found, project.root)]:
        say(line)
    for command in github_commands(found, project.root, project.folder) if is_github else ():
        click.echo(command)  # the one that `say` would disarm
    for name, differences in found.items() if is_all else ():
        say(f"{name}: {count(len(differences), 'difference')}")
        _say_differences(differences)
    say(f"{len(names) - len(found)} of {count(len(names), 'run')} {'holds' if len(names) == 1 else 'hold'}")
    return code or (FAILED if found else OK)


def _say_differences(differences: Iterable[Difference]) -> None:
    for difference in differences:
        say(f"  {difference.kind} {difference.at}: {difference.words}")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--exposure", is_flag=True, help="Also where a new record shows what the earlier one hides.")
def accept(runs: tuple[str, ...], exposure: bool) -> None:
    """Record drifted runs anew, and say how they differed. External effects are not repeated."""
    from ..evidence import accept as accepting

    accepting.refuse_in_ci()
    project = project_at(Path(), runs)
    names = names_of(project, runs)
    about = {name: (project.source_of(name), project.folder(name), f"runs/{name}") for name in names}
    found = {name: accepting.acceptable(*about[name], exposure=exposure) for name in names}
    for name, differences in found.items():
        for verdict in (it for it in differences if it.kind == "VERDICT"):
            say(f"{name}: VERDICT {verdict.at}: {verdict.words}")
    for name, differences in found.items():
        if differences:
            accepting.accept(*about[name])
        say(f"{name}: {count(len(differences), 'difference') + ' accepted' if differences else 'holds'}")
        _say_differences(it for it in differences if it.kind != "VERDICT")
    project.write_list()


@click.command()
@_runs
@AGENT
@click.option("--policy", "policy_file", metavar="FILE", type=PATH, help="By this policy instead.")
def replay(runs: tuple[str, ...], agent: str | None, policy_file: Path | None) -> int:
    """Make runs again from their logs alone, and compare every line.

    With --policy, say at which decision each run would go another way.
    """
    from ..evidence.check import replay as replay_run
    from ..review.replays import what_if
    from ..runtime.log.journal import Diverged
    from ..runtime.policy.policy import Policy

    project = project_at(Path(), runs, agent)
    other = Policy.load(policy_file) if policy_file is not None else None
    code = OK
    for name in names_of(project, runs, of_tasks=True):
        try:
            about = project.source_of(name), project.folder(name), project.label(name)
            if other is None:
                say(f"{name}: {len(replay_run(*about).journal.lines)} lines are the same")
                continue
            flip = what_if(*about, other)
            say(f"{name}: {'decides the same' if flip is None else 'goes another way'}")
            for prefix, what in flip.told(200) if flip else ():
                say(f"  {prefix} {what}")
            code = code or (OK if flip is None else FAILED)
        except Diverged as error:
            say(f"{name}: {error}; `tachograph check {name}` says what moved")
            code = code or FAILED
        except InputError as error:
            say(f"tachograph: {error}", err=True)
            code = BAD_INPUT
    return code


@click.command()
@_runs
@AGENT
def explain(runs: tuple[str, ...], agent: str | None) -> int:
    """Print each decision of recorded runs, and what every rule says. Without a RUN, of all of them.

    Below a denied call stands the least edit of the policy that would allow it.
    """
    from ..review.explain import explain as explain_run

    project = project_at(Path(), runs, agent)
    code = OK
    for name in names_of(project, runs, of_tasks=True):
        say(name)
        try:
            for line in explain_run(project.source_of(name), project.folder(name), project.label(name)):
                say(f"  {line}")
        except InputError as error:
            say(f"tachograph: {error}", err=True)
            code = BAD_INPUT
    return code
