"""Commands that make runs: run, resume."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError
from ...light_dataclasses import replace
from ...runtime.core.redaction import Redactor
from ...runtime.core.secret_kinds import ENV_KIND, KEY_KINDS
from ...runtime.formats.canonical_json import NotJson, freeze
from ...runtime.formats.escape import escape_terminal
from ..console import painter
from ..progress import Progress, tell_model_errors
from ..run_result import say_result
from .common import (
    Verb,
    by_name,
    escaped_path,
    near,
    path_given,
    print_warnings,
    run_named,
    seconds_given,
    task_named,
    variable_given,
)

_PERFORM: Final = "--perform-effects"


def add(commands: Any, verb: Verb) -> None:
    """Add the commands run and resume."""
    parser = verb(commands, "run", run)
    parser.add_argument(
        "task",
        type=path_given,
        metavar="TASK",
        help="task file; tasks/ and .yaml may be left out, as in canonical/v1",
    )
    parser.add_argument(
        "--out", type=path_given, metavar="DIR", help="folder of the run (default: runs/KIND/NAME)"
    )
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        type=variable_given,
        metavar="NAME=VALUE",
        help="the value of a variable in the instructions, before that of the task; needs --out",
    )
    parser.add_argument(
        "--principal",
        metavar="NAME",
        help="on whose behalf the run acts, before that of the task; needs --out",
    )
    parser.add_argument("--timeout", type=seconds_given, metavar="S", help="end the run after S seconds")
    parser.add_argument(
        "--approve",
        type=path_given,
        metavar="ask|FOLDER",
        help="who is asked about calls that need a person: you, at the terminal, or by files in FOLDER; "
        "needs --out unless the task says people:",
    )
    parser.add_argument("--replace", action="store_true", help="replace a recorded run of a live model")
    parser.add_argument(
        _PERFORM,
        action="store_true",
        help="call external tools although a record stands, which otherwise answers for them",
    )
    parser.add_argument(
        "--otlp", metavar="URL", help="send spans live to http://HOST:PORT or grpc://HOST:PORT"
    )
    parser.add_argument(
        "--durability",
        choices=("off", "step", "effect"),
        help="what is on the disk before the run goes on (default: off for a script, else effect)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with an unfinished run that is there, else begin one"
    )
    parser.add_argument("--discard", action="store_true", help="drop an unfinished run that is there")
    _add_on_signal(parser)
    _live_options(
        parser,
        "ask a live model: anthropic:..., openai:..., ollama:...; needs --out unless the task says live:",
        "where the model answers, if not at its provider's",
    )
    parser = verb(commands, "resume", resume)
    parser.add_argument(
        "run", type=path_given, metavar="RUN", help="folder of the run, with or without runs/ and .partial"
    )
    for word, text in (("--done", "has taken place"), ("--not-done", "has not taken place")):
        parser.add_argument(
            word, action="append", default=[], metavar="CALL", help=f"the call in doubt {text}"
        )
    parser.add_argument(
        "--approve",
        type=path_given,
        metavar="ask|FOLDER",
        help="who is asked about calls that need a person, if not as before",
    )
    parser.add_argument("--rebase", action="store_true", help="go on although inputs changed; records both")
    _add_on_signal(parser)
    _live_options(parser, "the live model, if not the one before", "where it answers")


def _add_on_signal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-signal",
        choices=("suspend", "cancel"),
        help="Ctrl-C and SIGTERM suspend a run that is kept in a journal (default), or end it",
    )


def _live_options(parser: argparse.ArgumentParser, model: str, where: str) -> None:
    parser.add_argument("--llm", metavar="PROVIDER:MODEL", help=model)
    parser.add_argument(
        "--llm-option", action="append", default=[], metavar="KEY=JSON", help="sent with every request"
    )
    parser.add_argument("--no-stream", action="store_true", help="ask for each reply in one piece")
    parser.add_argument("--base-url", metavar="URL", help=where)
    parser.add_argument(
        "--quiet", action="store_true", help="print the answer, the ending and the place of the files only"
    )


def run(options: argparse.Namespace) -> int:
    """Run a task, record it, and say how it ended."""
    from ...evidence.files.folder import is_unfinished
    from ...evidence.recording import index
    from ...evidence.recording.durability import OFF, durability_of
    from ...evidence.recording.record import check_replaceable, ending_ok, live_export, record_run
    from ...evidence.tasks.openings import refuse_given
    from ...evidence.tasks.place import expected_of, refuse_foreign
    from ...evidence.tasks.script_calls import calls_of_no_tool
    from ...evidence.tasks.task import build, load_task

    path, home = task_named(options)
    paint = painter(sys.stdout, options.no_color)
    progress = None if options.json or options.quiet else Progress(sys.stdout, paint)
    task = load_task(path, root=options.root)
    kind, name = task.kind_and_name
    place = home / "runs" / path.resolve().parent.name / path.stem
    out = Path(options.out if options.out is not None else near(place))
    options.recorded = out
    if options.resume and options.discard:
        raise InputError("--resume and --discard are both given", remedy="say one")
    given = by_name(options.variable)
    foreign = {
        "asks": options.approve is not None,
        "deadline": options.timeout is not None,
        "variables": bool(given),
        "principal": options.principal,
    }
    refuse_foreign(task, out, home, model=options.llm, **foreign)
    if options.resume and is_unfinished(out):
        return _go_on(options, out, task)
    model = _model(options, options.llm, progress)
    if task.agent is not None:
        print(
            f"tachograph: the agent is {task.agent}, code of the project, which is executed", file=sys.stderr
        )
    agent, setting = build(task, model=model, variables=given, principal=options.principal)
    refuse_given(task, agent, given)
    live = agent.identity["execution_path"] != "stub"
    for line in [] if live else calls_of_no_tool(task, agent.gate.tools):
        print(f"tachograph: {escape_terminal(line, 400)}", file=sys.stderr)
    if options.approve is not None:
        way = "terminal" if options.approve == "ask" else "file"
        approve = _approver(options, agent.policy, way)
        setting = replace(setting, approve=approve, approvals=way)
    if options.timeout is not None:
        setting = replace(setting, deadline_s=options.timeout)
    setting = replace(setting, on_signal=options.on_signal or setting.on_signal)
    print_warnings(agent.policy)
    if progress is not None:
        progress.redactor = agent.redactor()
        progress.place_of = agent.policy.shown
    if live and not options.replace:
        check_replaceable(out, setting.run_id, "--replace")
    rejected = Path(near(home / ".tachograph" / "rejected" / f"{kind}-{name}"))
    if not live and not options.perform_effects:
        setting = _answered(agent, setting, out, rejected)
    expected = expected_of(task, live=live, people=options.approve is not None)

    def say(result: Any) -> int:
        good = ending_ok(result, expected)
        say_result(options, result, out, good, paint)
        if result.mode == "interrupted" and not good:
            return 128 + (result.signum or 2)
        return 0 if good else 1

    def perform() -> int:
        with live_export(options.otlp, lambda line: print(f"tachograph: {line}", file=sys.stderr)) as extra:
            result = record_run(
                agent,
                setting,
                out,
                listeners=[*([progress] if progress else []), *extra],
                expected=expected,
                rejected=rejected,
                durability=options.durability,
                discard=options.discard,
            )
        index.update_for(home, out)
        return say(result)

    if durability_of(agent, setting, options.durability) == OFF:
        return perform()
    return _in_own_process(options, out, task.root, perform, say)


def _in_own_process(options: argparse.Namespace, out: Path, root: Path | None, perform: Any, say: Any) -> int:
    """Perform a run that is kept in a journal; see `cli.run_in_child`."""
    if not getattr(options, "supervised", False):
        return int(perform())
    from ..run_in_child import in_own_process

    return in_own_process(options, out, root, perform, say)


def _answered(agent: Any, setting: Any, out: Path, rejected: Path) -> Any:
    """Return the configuration of a scripted run, with external calls answered by the record of an earlier one."""
    from ...evidence.recording.external import answered_from

    answered = answered_from(agent, setting, out, str(out), rejected)
    if answered.answers is not None:
        shown = escape_terminal(os.path.dirname(answered.answers.place), 400)
        words = f"external tools are not called: the record in {shown} answers for them"
        print(f"tachograph: {words}; {_PERFORM} calls them", file=sys.stderr)
    return answered


def _go_on(options: argparse.Namespace, out: Path, task: Any) -> int:
    """Resume the unfinished run in the place of a task's run."""
    from ...evidence.recording.resume import run_begun, task_begun
    from ...evidence.tasks.openings import refuse_other

    begun = task_begun(out)
    if begun is not None and begun != task.file:
        raise InputError(
            f"{escaped_path(out)}.partial is of another task, {escape_terminal(str(begun), 200)}",
            remedy="name its task, another --out, or give --discard",
        )
    refuse_other(run_begun(out) or {}, f"{escaped_path(out)}.partial", options.variable, options.principal)
    options.run, options.done, options.not_done, options.rebase = str(out), [], [], False
    return resume(options)


def _approver(options: Any, policy: Any, way: str | None, progress: Progress | None = None) -> Any:
    """Who is asked about calls that need a person; None where the task answers. `progress` learns of the policy."""
    if progress is not None:
        from ...runtime.core.known_secrets import from_environment, registered

        progress.place_of = policy.shown
        values = from_environment(policy.redact_env, skips_short=True).values()
        progress.redactor = policy.redactor([*registered(), *((ENV_KIND, value) for value in values)])
    from ...runtime.driver.file_approvals import ByFile
    from ..terminal_approval import Terminal

    if way is None and options.approve is not None:
        raise InputError("the run was begun with its task's answers", remedy="leave out --approve")
    if way is None:
        return None
    if options.approve is None and way == "file":
        raise InputError("a person was asked by file", remedy="say where: --approve FOLDER")
    if options.approve in (None, "ask"):
        return Terminal(policy, painter(sys.stderr, options.no_color))

    def tell(path: Path, question: Any) -> None:
        words = f"a person is asked in {escape_terminal(str(path), 400)} (for {question.timeout_s} s)"
        print(f"tachograph: {words}; answer with `tachograph approve`", file=sys.stderr, flush=True)

    return ByFile(options.approve, tell=tell)


_WAIT_S: Final = 300.0  # a model on this machine, or one that thinks, is long silent
_TOTAL_S: Final = 1800.0


def _model(options: argparse.Namespace, spec: str | None, progress: Progress | None) -> Any:
    """Open the live model that was asked for, and say which address it uses; None where none was."""
    if spec is None:
        if options.base_url is not None or options.llm_option:
            raise InputError("there is no live model to set", remedy="give --llm PROVIDER:MODEL too")
        return None
    from ...runtime.models.providers import open_model

    extra = dict(map(_option, options.llm_option))
    limit = getattr(options, "timeout", None) or _TOTAL_S  # no call outlasts the run by much
    streams = progress is not None and sys.stdout.isatty()
    model: Any = open_model(
        spec,
        base_url=options.base_url,
        on_text=progress.token if progress and streams else None,
        timeout_s=min(_WAIT_S, limit),
        total_s=min(_TOTAL_S, limit),
        stream=progress is not None and not options.no_stream,  # nobody listens without it
        extra=extra,
    )
    print(
        f"tachograph: the model {escape_terminal(spec, 100)} is asked at {escape_terminal(model.host, 200)}",
        file=sys.stderr,
    )
    tell_model_errors(sys.stderr, Redactor(KEY_KINDS, model.secrets))
    return model


def _option(text: str) -> tuple[str, Any]:
    """Read `KEY=JSON`; a value that is not JSON is taken as text."""
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise InputError(
            f"{escape_terminal(text, 80)!r} sets nothing", remedy="write --llm-option temperature=0"
        )
    try:
        return key, freeze(json.loads(value)).value()
    except NotJson as error:
        raise InputError(
            f"{escape_terminal(key, 40)} cannot be recorded: {error.reason}", remedy="give plain JSON"
        ) from None
    except ValueError:
        return key, value


def resume(options: argparse.Namespace) -> int:
    """Go on with a run that died."""
    from ...evidence.recording import index
    from ...evidence.recording.recorded import project_of
    from ...evidence.recording.resume import resume_folder
    from ...evidence.recording.unfinished import brings_its_model
    from ...runtime.journal.durable_run import DONE, NOT_DONE

    out = run_named(options, options.run)
    place = options.recorded = out.with_name(out.name.removesuffix(".partial"))
    _refuse_finished(out)
    both = set(options.done) & set(options.not_done)
    if both:
        raise InputError(
            f"call {escape_terminal(min(both), 80)!r} is both --done and --not-done", remedy="say one"
        )
    resolutions = {**dict.fromkeys(options.done, DONE), **dict.fromkeys(options.not_done, NOT_DONE)}
    paint = painter(sys.stdout, options.no_color)
    progress = None if options.json or options.quiet else Progress(sys.stdout, paint)
    root = Path(options.root) if options.root is not None else None

    def again(model: Mapping[str, Any]) -> Any:
        spec = options.llm or f"{model['provider']}:{model['name']}"
        options.llm_option = options.llm_option or [
            f"{key}={json.dumps(value)}" for key, value in model.get("options", {}).items()
        ]
        return _model(options, spec, progress)

    own = brings_its_model(out, root, options.llm)

    def say(result: Any) -> int:
        say_result(options, result, place, result.ok, paint)
        if result.mode == "interrupted":
            return 128 + (result.signum or 2)
        return 0 if result.ok else 1

    def perform() -> int:
        result = resume_folder(
            out,
            resolutions=resolutions,
            rebase=options.rebase,
            root=root,
            open_model=None if own else again,
            has_model=options.llm is not None,
            listeners=[] if progress is None else [progress],
            approver=lambda policy, way: _approver(options, policy, way, progress),
            on_signal=options.on_signal,
        )
        index.update_for(project_of(place, root), place)
        return say(result)

    return _in_own_process(options, place, root, perform, say)


def _refuse_finished(out: Path) -> None:
    """Raise InputError where a folder holds nothing to go on with."""
    partial = out if out.suffix == ".partial" else out.with_name(f"{out.name}.partial")
    aside = partial.with_suffix(".old")  # of a finish that was cut off, which is put right first
    if not partial.is_dir() and not aside.is_dir():
        remedy = (
            f"the run is over: see `tachograph show {escaped_path(out)}`"
            if out.is_dir()
            else "name the folder that the run was to be recorded in"
        )
        raise InputError("there is no unfinished run to go on with", file=str(out), remedy=remedy)
