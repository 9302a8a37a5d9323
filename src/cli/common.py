"""What the commands share: exit codes, what they print, and how they find a project and its runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..fail.errors import InputError, RecordError

if TYPE_CHECKING:
    from ..evidence.project import Project

_MOST = 4_000  # characters of a line
OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
PATH = click.Path(path_type=Path)


def harmless(text: str, most: int = _MOST) -> str:
    """Return a line to print; text of models, tools and files is harmless in it."""
    from ..runtime.formats.escape import escape_build_log

    return escape_build_log(text, most)


def say(text: str, *, err: bool = False, most: int = _MOST) -> None:
    """Print a line that is harmless, cut at a number of characters."""
    click.echo(harmless(text, most), err=err)


def dump(data: Any) -> None:
    """Print data as one JSON document. It is ASCII, so text of models, tools and files is harmless in it."""
    import json

    from msgspec import to_builtins

    click.echo(json.dumps(to_builtins(data), indent=2))


def _say_version(context: click.Context, option: click.Parameter, is_asked: bool) -> None:
    """Print the version, and end."""
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version  # slow, and every command comes here

        try:
            say(f"tachograph {version('tachograph')}")
        except PackageNotFoundError:
            say("tachograph, not installed: from a folder of sources")
        context.exit()


VERSION = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Print the version.",
)


JSON = click.option("--json", "is_json", is_flag=True, help="Print one JSON document instead.")
AGENT = click.option("--agent", metavar="MODULE:NAME", help="An agent in code, such as app:agent.")


def as_yaml(data: Any) -> str:
    """Return data as YAML that our own reader takes: no aliases, and nothing that readers understand differently."""
    from decimal import Decimal

    import yaml

    from ..runtime.formats.yaml_syntax import is_ambiguous

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_str(self, data: str) -> yaml.ScalarNode:
            return self.represent_scalar("tag:yaml.org,2002:str", data, '"' if is_ambiguous(data) else None)

        def represent_float(self, data: float) -> yaml.ScalarNode:
            return self.represent_scalar("tag:yaml.org,2002:float", f"{Decimal(repr(data)):f}")

    Dumper.add_representer(float, Dumper.represent_float)
    Dumper.add_representer(str, Dumper.represent_str)
    # a text of several lines would be none that our own reader takes
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=False, width=1_000_000))


def project_at(start: Path, runs: tuple[str, ...] = (), agent: str | None = None) -> Project:
    """Return the project that a folder lies in, or the records of an agent in code where one is named.

    Raises:
        InputError: There is no project, in words that fit the runs, or no such agent.
    """
    # the command starts without what it does not need
    from ..evidence.folder import made_in_code, where_it_lies
    from ..evidence.project import Project
    from ..evidence.record_files import is_from_code

    if agent is not None:
        from ..evidence.agent_records import AgentRecords

        return AgentRecords(agent)
    try:
        return Project(start)
    except InputError:
        for run in runs:
            if is_from_code(where_it_lies(Path(run))):
                raise made_in_code(run) from None
        raise


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end what goes on as Ctrl-C does, so that nothing which it has started outlives it."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` wants it
            signal.signal(number, signal.default_int_handler)


# a token of RFC 9110, and what may follow it in a line; compiled for the commands that are given one
_HEADER_TEXT: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+=([!-~][\t -~]*)?"


def _by_name(context: click.Context, option: click.Parameter, headers: tuple[str, ...]) -> dict[str, str]:
    if not all(re.fullmatch(_HEADER_TEXT, header) for header in headers):
        raise InputError("is not of the form NAME=VALUE", file="--header", remedy="give a name and a value")
    return dict(header.split("=", 1) for header in headers)


_HEADER: Final = "An HTTP header, such as a key."
HEADERS: Final = click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", callback=_by_name, help=_HEADER
)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names_of(project: Project, runs: tuple[str, ...], *, of_tasks: bool = False) -> list[str]:
    """Return the names of recorded runs, of all if none is given.

    Args:
        project: The project.
        runs: The runs.
        of_tasks: Whether records of agents in code are told and left out, or refused where they are named.

    Raises:
        InputError: There is none, one has not ended, or one that is named is refused.
    """
    from ..evidence.folder import made_in_code, not_ended, partial_of

    names = [project.run_name(run) for run in runs] if runs else project.run_names()
    if not names:
        raise InputError("has no recorded run", file="runs", remedy="run a task, or name a record's folder")
    for name in names:
        if not project.folder(name).is_dir():
            raise not_ended(project.label(name), partial_of(project.folder(name)))
    from_code = [name for name in names if of_tasks and project.is_from_code(name)]
    for name in from_code:
        if runs:
            raise made_in_code(f"runs/{name}")
        say(str(made_in_code(f"runs/{name}")), err=True)
    return [name for name in names if name not in from_code]


def records_at(runs: tuple[str, ...], *, open_too: bool = False) -> list[tuple[str, Path]]:
    """Return what messages call records, and where they lie: runs of the project, or any folders with a log.

    Args:
        runs: The runs; all of the project if none is given.
        open_too: Whether they may be runs that have not ended.

    Raises:
        InputError: There is no such run, or it has not ended.
    """
    from ..evidence.folder import not_ended, partial_of, where_it_lies
    from ..evidence.record_files import STATE, head_in

    found = []
    for run in runs or names_of(project_at(Path()), ()):
        try:
            project = project_at(Path())
            name = f"runs/{project.run_name(run)}"
            folder = project.root / name
            is_open = Path(run).suffix == ".partial" and partial_of(folder).is_dir()
            folder = partial_of(folder) if is_open else where_it_lies(folder)
        except InputError as error:
            name, folder = run, where_it_lies(Path(run))
            if not (folder / STATE).is_file():
                if not isinstance(error, RecordError):  # there is no project
                    head_in(Path(run))
                raise
        if folder.suffix == ".partial" and not open_too:
            raise not_ended(name, folder)
        found.append((name, folder))
    return found
