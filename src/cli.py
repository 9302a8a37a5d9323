"""The command line: parse, call, print, exit code.

Exit codes: 0 done, or as the task expects; 1 any other ending, drift or a missed expectation; 2 bad input or a
place that cannot be written to; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .console import Progress, clip, painter
from .fail.errors import ExpectationError, InputError, Interrupted, OutputError

_EXIT_CODES = "exit codes: 0 as wanted, 1 another ending or drift, 2 bad input, 130 interrupted"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # no text file: a caller's own
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = parser.parse_args(argv)
    if options.command is None and not options.version:
        parser.print_help()
        return 0
    try:
        code: int = options.act(options)
        sys.stdout.flush()
        return code
    except ExpectationError as error:
        print("the run missed what its task expects:", file=sys.stderr)
        for line in error.differences:
            print(f"  {line}", file=sys.stderr)
        print(f"  the committed run stays; this one is kept in {error.kept}", file=sys.stderr)
        return 130 if isinstance(error.__cause__, Interrupted) else 1
    except (InputError, OutputError) as error:
        print(f"tachograph: {clip(str(error), 1000)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tachograph: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()  # its reader left: nothing more to say
        return 1
    except OSError as error:
        _drop_output()
        print(f"tachograph: the output cannot be written ({type(error).__name__})", file=sys.stderr)
        return 2


def _drop_output() -> None:
    """Let what is still to be printed go nowhere, so that nothing complains at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tachograph",
        description="Run agents under a policy, record what they did, and prove the record.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(act=_version)
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = _verb(verbs, "run", _run, "run a task and record it as four files")
    run.add_argument("task", help="task file, such as tasks/canonical/v1.yaml")
    run.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/KIND/NAME)")
    run.add_argument("--otlp", metavar="URL", help="send spans live to http://HOST:PORT or grpc://HOST:PORT")
    run.add_argument("--quiet", action="store_true", help="print the ending only")
    check = _verb(verbs, "check", _check, "make recorded runs again and compare them byte for byte")
    check.add_argument("runs", nargs="*", metavar="RUN", help="folders of runs (default: all below runs/)")
    show = _verb(verbs, "show", _show, "print a recorded run")
    show.add_argument("run", metavar="RUN", help="folder of a run")
    policy = verbs.add_parser("policy", help="look at a policy", epilog=_EXIT_CODES)
    kinds = policy.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, act, text in (
        ("check", _policy_check, "load policy files and say whether they hold"),
        ("version", _policy_version, "print the version of a policy"),
        ("decide", _policy_decide, 'decide one call: {"tool": ..., "arguments": {...}}'),
    ):
        verb = _verb(kinds, name, act, text)
        if name == "decide":
            verb.add_argument("call", metavar="CALL.json", help="file with the call, - for standard input")
            verb.add_argument("--policy", metavar="FILE", help="policy file (default: policy/v1.yaml)")
        else:
            verb.add_argument(
                "files", nargs="*", metavar="FILE", help="policy file (default: policy/v1.yaml)"
            )
        verb.add_argument(
            "--overlay", action="append", default=[], metavar="FILE", help="merge over it; may be repeated"
        )
    return parser


def _verb(verbs: Any, name: str, act: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text, epilog=_EXIT_CODES)
    parser.set_defaults(act=act)
    parser.add_argument("--root", metavar="DIR", help="project root (default: the folder that holds policy/)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--no-color", action="store_true", help="no colour at a terminal either")
    return parser


def _version(_options: argparse.Namespace) -> int:
    from . import __version__

    print(f"tachograph {__version__}")
    return 0


def _root(options: argparse.Namespace) -> Path:
    from .runtime.places import project_root, shipped

    if options.root is not None:
        root = Path(options.root)
        if not (root / "policy").is_dir():
            raise InputError("holds no policy/ folder", file=options.root, remedy="give the project's root")
        return root
    return project_root(Path.cwd()) or shipped(".")


def _task_path(options: argparse.Namespace) -> tuple[Path, Path]:
    """The task file and the project that its run belongs to."""
    from .runtime.places import project_root, shipped

    path = Path(options.task)
    root = Path(options.root) if options.root else project_root(path.resolve().parent)
    inside = shipped(options.task)
    if not os.path.exists(path) and not path.is_absolute() and os.path.isfile(inside):
        path, root = inside, None  # a task that came with the package; its run goes below the current folder
    return path, root or Path.cwd()


def _run(options: argparse.Namespace) -> int:
    from .evidence.record import ending_ok, live_export, record_run
    from .evidence.task import build, load_task

    path, home = _task_path(options)
    out = Path(options.out or _near(home / "runs" / path.resolve().parent.name / path.stem))
    task = load_task(path, root=options.root)
    agent, setting = build(task)
    paint = painter(sys.stdout, options.no_color)
    listeners: list[Any] = [] if options.json or options.quiet else [Progress(sys.stdout, paint)]
    kind, name = task.kind_and_name
    rejected = Path(_near(home / ".tachograph" / "rejected" / f"{kind}-{name}"))
    with live_export(options.otlp, lambda line: print(f"tachograph: {line}", file=sys.stderr)) as extra:
        result = record_run(
            agent,
            setting,
            out,
            root=task.root,
            listeners=[*listeners, *extra],
            expected=task.expected,
            rejected=rejected,
        )
    good = ending_ok(result, task.expected)
    if options.json:
        print(
            json.dumps(
                {
                    "run_id": result.run_id,
                    "ending": result.ending,
                    "failure_mode": result.mode,
                    "answer": result.answer,
                    "as_wanted": good,
                    "folder": str(out),
                },
                sort_keys=True,
            )
        )
    else:
        if result.answer is not None:
            print(f"answer    {clip(result.answer, 2000)}")
        print(f"ending    {paint(result.ending, 'green' if good else 'red')}")
        print(f"files     {_near(out)}/: state.jsonl trace.json run_report.md manifest.json")
    if result.mode == "interrupted" and not good:
        return 130
    return 0 if good else 1


def _near(path: Path) -> str:
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return str(path)


def _check(options: argparse.Namespace) -> int:
    from .evidence.check import examine, runs_below

    root = _root(options)
    folders = [Path(run) for run in options.runs] or runs_below(root)
    if not folders:
        raise InputError(
            "there is no recorded run", file=str(root / "runs"), remedy="record one with `tachograph run`"
        )
    given_root = Path(options.root) if options.root else None
    found = [examine(folder, root=given_root) for folder in folders]
    bad = [item for item in found if not item.ok]
    if options.json:
        print(
            json.dumps(
                {"runs": len(found), "drifted": {item.run: item.lines for item in bad}}, sort_keys=True
            )
        )
        return 1 if bad else 0
    paint = painter(sys.stdout, options.no_color)
    for item in bad:
        print(f"{paint('drift', 'red')}  {item.run}")
        for line in item.lines:
            print(f"  {clip(line, 400)}")
        if item.accept:
            print(f"  accept it: {item.accept}")
    if bad:
        print(f"check: {len(bad)} of {len(found)} runs drifted")
        return 1
    names = found[0].run if len(found) == 1 else f"{len(found)} runs"
    print(f"check: {names} re-derived, all files identical")
    return 0


def _show(options: argparse.Namespace) -> int:
    from .evidence.show import show

    print(show(Path(options.run), as_json=options.json, paint=painter(sys.stdout, options.no_color)))
    return 0


def _load_policies(options: argparse.Namespace, files: Sequence[str]) -> list[Any]:
    from .runtime.policy import Policy

    root = _root(options)
    paths = [Path(file) for file in files] or [root / "policy" / "v1.yaml"]
    return [(path, Policy.load(path, options.overlay, root=root)) for path in paths]


def _policy_check(options: argparse.Namespace) -> int:
    loaded = _load_policies(options, options.files)
    folder = _root(options) / "tools"
    names = {path.stem for path in folder.glob("*.py")}
    for _, policy in loaded:
        if names:
            policy.check_tools(names)
    if options.json:
        print(json.dumps({_near(path): policy.version for path, policy in loaded}, sort_keys=True))
        return 0
    for path, policy in loaded:
        print(
            f"{_near(path)}: version {policy.version}, {len(policy.allowed)} tools allowed, "
            f"{len(policy.data.get('url_allowlist', ()))} URL entries, {len(policy.mounts)} mounts"
        )
    return 0


def _policy_version(options: argparse.Namespace) -> int:
    loaded = _load_policies(options, options.files)
    if not options.json:
        print("\n".join(policy.version for _, policy in loaded))
    elif len(loaded) == 1:
        print(json.dumps({"version": loaded[0][1].version}))
    else:
        print(json.dumps({_near(path): policy.version for path, policy in loaded}, sort_keys=True))
    return 0


def _policy_decide(options: argparse.Namespace) -> int:
    from .evidence.decide import decide_file

    ((_, policy),) = _load_policies(options, [options.policy] if options.policy else [])
    decision = decide_file(options.call, policy, _root(options))
    if options.json:
        print(json.dumps(decision.record(), sort_keys=True))
    else:
        paint = painter(sys.stdout, options.no_color)
        colour = {"allow": "green", "deny": "red"}.get(decision.decision, "yellow")
        print(
            f"{paint(decision.decision, colour)}  {decision.rule_id}  {decision.at}  {clip(decision.reason, 400)}"
        )
    return 0 if decision.decision == "allow" else 1
