"""The commands that show runs to people."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..fail.errors import RecordError
from .common import FAILED, HEADERS, JSON, OK, PATH, count, dump, names_of, project_at, records_at, say

if TYPE_CHECKING:
    from ..evidence.project import Project
    from ..runtime.log.events import Event


@click.command()
@JSON
def ls(is_json: bool) -> int:
    """List runs with name, ending, failure mode, steps and model. A run need not have ended."""
    from ..evidence.show import overview

    runs, code = [(name.removesuffix(".partial"), read) for name, read in _logs_of(project_at(Path()))], OK
    found: list[dict[str, str | int]] = []
    width = max(len(name) for name, _ in runs)
    for name, read in runs:
        try:
            ending, mode, steps, model = overview(read())
        except RecordError as error:
            line, code = str(error), FAILED
            found.append({"name": name, "problem": line})
        else:
            line = f"{ending:22}  {mode or '-':20}  {count(steps, 'step'):9} {model}"
            found.append({"name": name, "ending": ending, "mode": mode, "steps": steps, "model": model})
        if not is_json:
            say(f"{name:{width}}  {line}")
    if is_json:
        dump(found)
    return code


@click.command()
def profiles() -> None:
    """List the profiles of the project. They are agents that tasks, other agents and `run --profile` start."""
    from ..evidence.agent_file import read_profile
    from ..runtime.mcp.server import profile_names

    root = project_at(Path()).root
    if not (names := sorted(profile_names(root))):
        say("profiles: there is no profile")
    for name in names:
        spec = read_profile(root, name).value
        say(f"{name}: {spec.description}")
        has = [spec.policy.file, spec.model, *spec.tools, *spec.agents, *spec.hand_over_to]
        say(f"  {', '.join(filter(None, has))}")


def _logs_of(project: Project) -> list[tuple[str, Callable[[], list[Event]]]]:
    """Return the name of each run and what reads its log; names of those that have not ended end in `.partial`."""
    from ..evidence.folder import partial_of
    from ..evidence.record_files import lines_in, recorded_log

    def recorded(name: str) -> list[Event]:
        return [line.event for line in recorded_log(project.folder(name), f"runs/{name}")]

    is_open = project.open_names()
    names = project.run_names() if is_open else names_of(project, ())
    opened = [(f"{name}.partial", partial(lines_in, partial_of(project.folder(name)))) for name in is_open]
    return [*((name, partial(recorded, name)) for name in names), *opened]


@click.command()
@click.argument("run")
@click.option("--tree", "is_tree", is_flag=True, help="As a tree of steps, calls and attempts.")
@click.option("--follow", "is_followed", is_flag=True, help="As it goes on, until it ends or Ctrl-C.")
def show(run: str, is_tree: bool, is_followed: bool) -> None:
    """Print what a run did, line by line.

    The run need not have ended. RUN may also be the file of a log.
    Lines are cut at 160 characters, those of a log that is named by its file at 4,000.
    """
    from ..evidence.folder import not_ended, partial_of
    from ..evidence.record_files import events_in, recorded_log
    from ..evidence.show import follow, line_of, shown_log

    if is_tree and is_followed:
        raise click.UsageError("--follow prints lines as they come, and no tree; leave one of them out")
    if Path(run).suffix == ".jsonl" and Path(run).is_file() and not (is_tree or is_followed):
        for line in shown_log(Path(run)):
            say(line)
        return
    ((name, folder),) = records_at((run,), open_too=True)
    log = f"{name}/state.jsonl"
    if is_followed:
        is_open = partial_of(folder).is_dir()  # comes before an earlier record
        for event in follow(partial_of(folder) if is_open else folder, log):
            say(line_of(event))
        return
    events = events_in(folder, log)
    if is_tree:
        from ..views.outline import outline
        from ..views.tree import drawn

        width = shutil.get_terminal_size().columns if os.isatty(1) else None
        click.echo(drawn(outline(events), width), nl=False)
    else:
        for event in events:
            say(line_of(event))
    if folder.suffix == ".partial":
        say(str(not_ended(name, folder)))
    else:
        recorded_log(folder, name)  # the last line may be cut off, or missing


@click.command()
@click.argument("run")
@click.option("--out", metavar="FILE", type=PATH, help="Where; KIND-NAME.html if absent.")
def page(run: str, out: Path | None) -> None:
    """Write a run as one page of HTML. It loads nothing and runs no script; the run need not have ended."""
    from ..evidence.record_files import events_in
    from ..views.page import page as page_of
    from ..views.site import write_page

    ((name, folder),) = records_at((run,), open_too=True)
    file = out or Path("-".join([*folder.resolve().parts[-2:]]) + ".html")
    write_page(file, page_of(name, events_in(folder, f"{name}/state.jsonl")))
    say(f"{file}: written")


@click.command()
@click.option("--out", metavar="DIR", type=PATH, help="Where; the folder `site` if absent.")
def site(out: Path | None) -> None:
    """Write a page for each run, and an index of them. The folder may hold nothing else."""
    from ..views import site as pages

    project = project_at(Path())
    # of a run that has not ended, not even the first line may be there
    logs = sorted((name, read()) for name, read in _logs_of(project))
    runs = [run for run in logs if run[1]]
    folder = out or project.root / "site"
    pages.write_site(folder, pages.site(runs))
    say(f"{folder / 'index.html'}: written, with {count(len(runs), 'run')}")


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--endpoint", required=True, metavar="URL", help="Such as http://127.0.0.1:4318/v1/traces.")
@HEADERS
def push(runs: tuple[str, ...], endpoint: str, headers: dict[str, str]) -> None:
    """Send traces of recorded runs to an OTLP receiver. Without a RUN, of all of them."""
    from ..evidence.record_files import recorded_log
    from ..tracing.push import push as push_spans
    from ..tracing.spans import spans_of
    from ..tracing.viewers import for_viewers

    for name, folder in records_at(runs):
        spans = for_viewers(spans_of([line.event for line in recorded_log(folder, name)]))
        push_spans(spans, endpoint, headers)
        say(f"{name.removeprefix('runs/')}: {count(len(spans), 'span')} sent")
