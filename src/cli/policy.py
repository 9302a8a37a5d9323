"""The commands `tachograph policy ...`."""

from __future__ import annotations

from itertools import chain
from os.path import relpath
from pathlib import Path

import click

from .common import FAILED, JSON, OK, PATH, as_yaml, dump, project_at, say
from .review import policy_coverage, policy_diff, policy_suggest


@click.group()
def policy() -> None:
    """Read, test and compare policies."""


for _command in (policy_diff, policy_suggest, policy_coverage):
    policy.add_command(_command)


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
