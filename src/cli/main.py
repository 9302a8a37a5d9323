"""The command `tachograph`.

Exit codes: 0 done, or as the task expects; 1 any other ending, drift or damage; 2 bad input, one line with file, line
and remedy, nothing written; 3 a run that cannot go on by itself; 130 and 143 ended by a signal; 141 nobody reads
the output any more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from errno import EACCES, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EROFS
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..fail.errors import ExpectationError, InputError, NotRecorded, RecordError, TachographError
from .common import AGENT, BAD_INPUT, FAILED, INTERRUPTED, JSON, OK, VERSION, count, dump, project_at, say

if TYPE_CHECKING:
    from ..evidence.tasks import Task
    from ..runtime.driver import Word
    from ..runtime.run import RunMade

# the other commands, by the modules that hold them
_MODULES = {
    "records": ("accept", "check", "explain", "replay"),
    "seal": ("seal", "verify"),
    "views": ("ls", "page", "profiles", "push", "show", "site"),
    "policy": ("policy", "review"),
} | {name: (name,) for name in ("init", "mcp")}

# why the system refuses a place that somebody names; anything else is a disk or service that fails
_UNUSABLE = (EACCES, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EROFS)


class _Commands(click.Group):
    """The commands; those of other modules are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *chain(*_MODULES.values())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        is_known = cmd_name in self.list_commands(ctx)
        for module, names in _MODULES.items():
            for name in names if cmd_name in names or not is_known else ():  # an unknown one may be like any
                self.add_command(getattr(import_module(f".{module}", __package__), name))
        return super().get_command(ctx, cmd_name)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit."""
    try:
        code = commands.main(arguments, prog_name="tachograph", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = BAD_INPUT
    except click.ClickException as error:
        click.echo(f"tachograph: {error.format_message()}", err=True)
        code = BAD_INPUT
    except TachographError as error:
        for line in error.lines():
            say(f"tachograph: {line}", err=True)
        code = error.exit_code
    except OSError as error:
        why = f"{error.filename!s:.999}: {error.strerror}" if error.filename else error.strerror or str(error)
        say("; ".join([f"tachograph: {why}", *getattr(error, "__notes__", ())]), err=True)
        code = BAD_INPUT if error.errno in _UNUSABLE else FAILED
    except (KeyboardInterrupt, click.Abort) as error:
        caught = error.__cause__ or error  # which click raises its Abort from
        say("; ".join(["tachograph: stopped", *getattr(caught, "__notes__", ())]), err=True)
        code = INTERRUPTED
    except SystemExit as end:  # click ends so after a completion, or where nobody reads the output any more
        code = 141 if end.code else OK
    sys.exit(code if isinstance(code, int) else OK)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
def commands() -> None:
    """Run agents under a policy, and prove the records that their runs leave."""


@commands.command()
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option("--llm", metavar="PROVIDER:MODEL", help="The live model.")
@click.option("--base-url", metavar="URL", help="The address of its service.")
@click.option("--llm-option", "options", multiple=True, metavar="NAME=VALUE", help="A setting for it.")
@click.option("--approve", is_flag=True, help="Ask people at this terminal about calls.")
@click.option("--profile", metavar="NAME", help="Ask this profile; TASK is the question then.")
@click.option("--again", is_flag=True, help="Repeat external effects that a recorded run has made.")
@JSON
def run(tasks: tuple[str, ...], profile: str | None, again: bool, is_json: bool, **live: Any) -> int:
    """Run tasks and record them in runs/KIND/NAME. Without a TASK, all that have a script.

    A TASK is a file, or the name KIND/NAME of one in tasks/. External effects that a recorded run has made are taken
    from its record unless --again is given. A task for live models prints each line of its run; after Ctrl-C
    `tachograph resume` goes on with it. A question to a profile is written as a task into tasks/asked.
    """
    from ..evidence.record import earlier_lines, record
    from ..evidence.tasks import load_task

    if profile is not None and len(tasks) != 1:
        raise InputError("takes one question", file=profile, remedy="give it in quotes")
    start = Path(tasks[0]).parent if tasks and profile is None else Path()
    project, failed = project_at(start), False
    found: list[dict[str, Any]] = []
    if is_json:  # also where a task is bad input after others were recorded
        click.get_current_context().call_on_close(lambda: dump(found))
    names = tasks or project.task_names()
    if not names:
        say("tasks: there is no task to run", err=is_json)
    for given in names:
        if profile is None:
            task = load_task(project.task_file(Path(given)))
        else:
            from .live import task_for_question

            task = task_for_question(project, profile, given, live["llm"])
        if task.root != project.root:
            raise task.error("", "the task belongs to another project", "change into that project")
        _say_wider(task)
        if task.is_scripted and any(live.values()):
            remedy = "give it llm: {live: [...]}, or leave out the options"
            raise task.error("/llm", "the task has a script, and not a live model", remedy)
        if not task.is_scripted and not tasks:
            say(f"{task.folder}: is for live models; record it by name", err=is_json)
            continue
        folder = project.folder(task.folder)
        try:
            if task.is_scripted:
                is_external = any(tool.acts_beside_io for tool in task.tools)
                earlier = earlier_lines(task, folder) if is_external and not again else None
                made = record(task, folder, earlier=earlier)
            else:
                from .live import record_live

                made = record_live(task, folder, is_quiet=is_json, **live)
        except (ExpectationError, NotRecorded) as error:  # the other tasks are run all the same
            failed = True
            found.append({"name": task.folder, "problems": error.lines()})
            for line in error.lines():
                say(f"tachograph: {task.folder}: {line}", err=True)
            continue
        found.append(_outcome(task.folder, made))
        if not is_json:
            _say_recorded(**found[-1])
        is_expected = task.spec.expected.ending is not None  # else the run would have been refused
        failed = failed or (made.ended.ending != "final_answer" and not is_expected)
    project.write_list()
    return FAILED if failed else OK


def _say_wider(task: Task) -> None:
    """Say which policies of plans and profiles allow more than that of the task, which counts for nothing there."""
    others = {it.version: it for it in task.policies if it.version != task.policy.version}.values()
    if not others:
        return
    from ..review.compare import gates, wider

    tools = {tool.name: tool for tool in task.tools}
    for other in others:
        for change in wider(*gates(task.policy, other, tools), {}):
            words = f"{change.place}: {change.words}, which {task.policy.file} above it denies"
            say(f"tachograph: {other.file} allows {words}", err=True)


def _outcome(name: str, made: RunMade) -> dict[str, Any]:
    """Return what a run came to; of its denials the addresses."""
    from ..runtime.log.events import Decided

    denials = [it.at for it in made.journal.events if isinstance(it, Decided) and it.decision == "deny"]
    ended = made.ended
    about = {"ending": ended.ending, "mode": ended.mode or "", "answer": ended.answer, "denials": denials}
    return {"name": name, **about}


def _say_recorded(name: str, ending: str, mode: str, denials: Sequence[str], **_: Any) -> None:
    denied = f"{count(len(denials), 'denial')} (tachograph explain {name})" if denials else ""
    words = ", ".join(filter(None, (ending, mode, denied)))
    say(f"{name}: {words}, recorded in runs/{name}")


@commands.command()
@click.argument("run")
@click.option("--done", multiple=True, metavar="AT", help="The effect at this address happened.")
@click.option("--not-done", multiple=True, metavar="AT", help="The effect at this address did not happen.")
@click.option("--base-url", metavar="URL", help="The address of the service of its live model.")
@click.option("--approve", is_flag=True, help="Ask people at this terminal about calls.")
def resume(run: str, done: tuple[str, ...], not_done: tuple[str, ...], **live: Any) -> int:
    """Go on with a run whose process ended, or with a conversation."""
    from ..evidence.folder import partial_of
    from ..evidence.record import resume as resume_run

    project = project_at(Path(), (run,))
    name, settled = project.run_name(run), _settled(done, not_done)
    task, folder = project.task_of(name), project.folder(name)
    if not partial_of(folder).is_dir():
        raise RecordError("has ended", file=name, remedy="there is nothing to resume")
    if task.is_session and not task.is_scripted:
        again = {"given": name, "base_url": live["base_url"], "done": done, "not_done": not_done}
        return int(click.get_current_context().invoke(chat, **again))
    if task.is_scripted:
        made = resume_run(task, folder, settled)
    else:
        from .live import resume_live

        made = resume_live(task, folder, settled, **live)
    project.write_list()
    _say_recorded(**_outcome(name, made))
    return OK if made.ended.ending == "final_answer" or task.spec.expected.ending else FAILED


def _settled(done: tuple[str, ...], not_done: tuple[str, ...]) -> dict[str, Word]:
    """Return a person's word on each effect in doubt. Raises InputError for two of one."""
    for at in {*done} & {*not_done}:
        raise InputError("is given as done and as not done", file=at, remedy="give one of them")
    return {**dict.fromkeys(done, "done"), **dict.fromkeys(not_done, "not_done")}


@commands.command()
@click.argument("given", metavar="TASK|PROFILE|FOLDER")
@AGENT
@click.option("--llm", metavar="PROVIDER:MODEL", help="The live model.")
@click.option("--base-url", metavar="URL", help="The address of its service.")
@click.option("--llm-option", "options", multiple=True, metavar="NAME=VALUE", help="A setting for it.")
@click.option("--done", multiple=True, metavar="AT", help="The effect at this address happened.")
@click.option("--not-done", multiple=True, metavar="AT", help="The effect at this address did not happen.")
def chat(given: str, agent: str | None, done: tuple[str, ...], not_done: tuple[str, ...], **live: Any) -> int:
    """Talk with an agent at this terminal, and record the talk.

    The agent is a profile, that of a task, or one in code; calls that need a person are asked about here. What is typed
    while a turn goes on interrupts it, and so does Ctrl-C; twice, it leaves the conversation open, and the same command
    with its name KIND/NAME goes on. /quit or Ctrl-D ends it and records it in runs/KIND/NAME. A FOLDER is for the
    record of an agent in code.
    """
    from importlib.util import find_spec

    if find_spec("prompt_toolkit") is None:
        raise InputError("needs the package prompt_toolkit", remedy='run: pip install "tachograph[chat]"')
    if not (sys.stdin and sys.stdout and sys.stdin.isatty() and sys.stdout.isatty()):  # or one is closed
        raise InputError("chat needs a terminal", remedy="ask by `tachograph run --profile PROFILE QUESTION`")
    from .chat import talk

    return talk(project_at(Path(), (given,), agent), given, settled=_settled(done, not_done), **live)


@commands.command()
@JSON
def doctor(is_json: bool) -> int:
    """Say whether this installation and this project are sound. Exit code 1 if not. Tools and hooks are imported."""
    from ..evidence.doctor import examine

    found = examine(Path())
    if is_json:
        dump([finding._asdict() for finding in found])
    for finding in () if is_json else found:
        say(f"{finding.status:4}  {finding.what}: {finding.words}")
    return FAILED if any(finding.status == "bad" for finding in found) else OK
