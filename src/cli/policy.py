"""The commands `tachograph policy ...`, and `tachograph review`."""

from __future__ import annotations

from itertools import chain
from os.path import relpath
from pathlib import Path

import click

from ..fail.errors import InputError
from .common import AGENT, BAD_INPUT, FAILED, JSON, OK, PATH, as_yaml, count, dump, names_of, project_at, say


@click.group()
def policy() -> None:
    """Read, test and compare policies."""


@policy.command("test")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=PATH)
@JSON
def policy_test(files: tuple[Path, ...], is_json: bool) -> int:
    """Run tests of policies. Without a FILE, all of policy/tests."""
    from ..evidence.policy_tests import files_of_tests, run_tests

    root = project_at(Path()).root
    results = [(path, *it) for path in files_of_tests(root, files) for it in run_tests(root, path)]
    failed = [lines for _, _, lines in results]
    if is_json:
        dump([{"file": relpath(path, root), "test": name, "problems": said} for path, name, said in results])
    else:
        for line in chain(*failed):
            say(line)
        say(f"{failed.count([])} of {len(failed)} tests of policies pass")
    return FAILED if any(failed) else OK


@policy.command("show")
@click.argument("file", metavar="FILE", type=PATH)
def policy_show(file: Path) -> None:
    """Print a policy as it is in force, merged with what it extends."""
    from ..runtime.policy.policy import Policy

    found = Policy.load(file)
    say(f"# version {found.version}")
    click.echo(as_yaml(found.data), nl=False)


@policy.command("decide")
@click.argument("file", metavar="FILE", type=PATH)
@click.argument("tool")
@click.argument("arguments", default="{}")
@JSON
def policy_decide(file: Path, tool: str, arguments: str, is_json: bool) -> int:
    """Decide one call by the policy in FILE. The tool is imported, and not called.

    The TOOL is one of the project, and its ARGUMENTS are JSON.
    Exit code 0 if it is allowed, else 1.
    """
    from ..runtime.mcp.server import accepted_tools
    from ..runtime.tools.loader import load_tools
    from ..testing import decide

    root = project_at(file.parent).root
    modules = {path.stem for path in (root / "tools").glob("*.py")} & {tool}
    tools = load_tools(modules, root).tools + [it for it in accepted_tools(root).values() if it.name == tool]
    (found,) = decide(file, tools, [{"name": tool, "arguments": arguments}])
    if is_json:
        dump(found)
    else:
        say(f"{found.decision} by {found.rule_id}: {found.reason} ({found.at})")
    return OK if found.decision == "allow" else FAILED


@policy.command("schema")
def policy_schema_command() -> None:
    """Print the JSON Schema of policies. It is for editors and other programs."""
    from ..runtime.policy.sections import policy_schema

    dump(policy_schema())


@policy.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=PATH)
def policy_check(files: tuple[Path, ...]) -> None:
    """Load policies, and report what is wrong with them."""
    from ..evidence.tasks import root_around
    from ..runtime.mcp.server import tool_names
    from ..runtime.policy.consistency import check_names
    from ..runtime.policy.policy import Policy

    for path in files:
        loaded = Policy.load(path)
        root = root_around(path.parent)
        # another policy may be of functions in code
        if root is not None and (known := tool_names(root)):
            check_names(loaded, known)
        rest = "policy decide, policy test and run hold it against the arguments of tools"
        say(f"{path}: no problem found (version {loaded.version}); {rest}")


@policy.command("diff")
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


@policy.command("suggest")
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


@policy.command("coverage")
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
