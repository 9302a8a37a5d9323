"""The commands `tachograph review`, and `tachograph policy diff`, `suggest` and `coverage`."""

from __future__ import annotations

from pathlib import Path

import click

from ..fail.errors import InputError
from .common import AGENT, BAD_INPUT, FAILED, JSON, OK, PATH, as_yaml, count, dump, names_of, project_at, say


@click.command()
@click.argument("base")
@click.option("--markdown", "is_markdown", is_flag=True, help="Print Markdown, for a pull request.")
def review(base: str, is_markdown: bool) -> int:
    """Compare recorded runs and policies with those of a commit.

    Nothing of the project is run or imported. Exit code 1 if a decision has moved, something is exposed, or a record
    is damaged, or if BASE holds a policy that cannot be read.
    """
    from ..review.records import review
    from ..runtime.formats.escape import code_span

    project = project_at(Path())
    found = review(project, base)
    for line in found.lines(project.root, code_span if is_markdown else str):
        say(line)
    return BAD_INPUT if found.problems else FAILED if found.is_grave else OK


@click.command("diff")
@click.argument("old")
@click.argument("new")
@click.option("--runs", "with_runs", is_flag=True, help="Also make recorded runs of OLD again under NEW.")
@click.option("--markdown", "is_markdown", is_flag=True, help="Print Markdown, for a pull request.")
@JSON
@click.option("--all", "is_all", is_flag=True, help="Print more than 40 changes of each kind.")
def policy_diff(old: str, new: str, with_runs: bool, is_markdown: bool, is_json: bool, is_all: bool) -> int:
    """Compare what two policies allow.

    Each is a file, REVISION:FILE of the git repository here, or a REVISION of the file at the other side. Nothing of
    the project is run; only --runs imports its tools. Exit code 1 if more is allowed, or less redacted.
    """
    from ..review.compare import diff
    from ..review.replays import flips
    from ..review.revisions import policy_at
    from ..review.static_tools import tools_beside
    from ..review.words import as_data, markdown, summary, told

    if is_markdown and is_json:
        raise InputError("cannot be used together", file="--markdown and --json", remedy="give one of them")
    before = policy_at(old, Path(new))
    after = policy_at(new, Path(old))
    tools = next(filter(None, map(tools_beside, map(Path, (new, old, "policy")))), {})
    changes = diff(before, after, tools)
    found, number = flips(project_at(Path()), before, after) if with_runs else ([], None)
    if is_json:
        dump(as_data(changes, found))
    elif is_markdown:
        for line in markdown(f"{old} -> {new}", changes, found, number):
            click.echo(line)
    else:
        for line in [*told(changes, found, is_all=is_all), summary(changes, found, number)]:
            say(line)
    return FAILED if any(change.kind in ("WIDER", "EXPOSURE") for change in changes) else OK


@click.command("suggest")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@AGENT
def policy_suggest(runs: tuple[str, ...], agent: str | None) -> int:
    """Print the strictest policy under which recorded runs pass.

    It is drafted from what they asked for.
    Conditions on arguments, limits of tools and redaction are taken from the policy of the runs. Exit code 1 if a run
    goes another way under the draft.
    """
    from ..review.replays import questions_of, what_if
    from ..review.suggest import suggest

    project = project_at(Path(), runs, agent)
    names = names_of(project, runs, of_tasks=True)
    about = [(project.source_of(name), project.folder(name), project.label(name)) for name in names]
    draft = suggest(questions_of(*it)[:2] for it in about)
    say(f"# drafted from {count(len(names), 'recorded run')}: {', '.join(names)}")
    click.echo(as_yaml(draft.data), nl=False)
    failed = [name for source, folder, name in about if what_if(source, folder, name, draft) is not None]
    for name in failed:
        say(f"{name}: goes another way under this draft", err=True)
    return FAILED if failed else OK


@click.command("coverage")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=PATH)
def policy_coverage(files: tuple[Path, ...]) -> int:
    """Print the tests that would notice changes of a policy.

    They are for single changes that no test notices.
    Without a FILE, of all tests in policy/tests. Exit code 1 if there is such a change.
    """
    from ..evidence.policy_tests import FileOfTests, files_of_tests, read_tests
    from ..review.coverage import coverage

    root, code = project_at(Path()).root, OK
    by_policy: dict[str, list[FileOfTests]] = {}
    for path in files_of_tests(root, files):
        read = read_tests(root, path)
        by_policy.setdefault(read.document.value.policy, []).append(read)
    for name, tested in by_policy.items():
        tests = [pair for it in tested for pair in zip(it.document.value.tests, it.questions, strict=True)]
        found = coverage(tested[0].gate, tests)
        noticed = found.changes - len(found.unnoticed)
        say(f"{name}: its tests notice {noticed} of {count(found.changes, 'change')}")
        for change in found.unnoticed:
            kind = "wider" if change.is_wider else "tighter"
            say(f"# {kind}, and not noticed: {change.place}: {change.words}")
            click.echo(as_yaml([change.test]), nl=False)
            code = FAILED
    return code
