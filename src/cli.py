"""The command line: parse, call, print, exit code.

Exit codes: 0 done, or as the task expects; 1 any other ending, drift or a missed expectation; 2 bad input or a
place that cannot be written to; 3 suspended, `resume` goes on; 130 and 143 ended by a signal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import verbs
from .console import clip
from .fail.errors import ExpectationError, InputError, Interrupted, OutputError, Suspended

_EXIT_CODES = (
    "exit codes: 0 as wanted, 1 another ending or drift, 2 bad input, 3 suspended, 130/143 ended by a signal"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    _fill_closed_streams()
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
            print(f"  {clip(line, 1000)}", file=sys.stderr)
        print(f"  the committed run stays; this one is kept in {clip(error.kept, 400)}", file=sys.stderr)
        return 128 + error.__cause__.signum if isinstance(error.__cause__, Interrupted) else 1
    except Suspended as error:
        print(f"tachograph: suspended: {clip(str(error), 1000)}", file=sys.stderr)
        return 3
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


def _fill_closed_streams() -> None:
    """Put nothing where a caller closed a standard stream, so that no file of ours takes its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))  # noqa: SIM115 - kept


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
    parser.set_defaults(act=verbs.version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = _verb(commands, "run", verbs.run, "run a task and record it as four files")
    run.add_argument("task", help="task file, such as tasks/canonical/v1.yaml")
    run.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/KIND/NAME)")
    run.add_argument(
        "--llm", metavar="PROVIDER:MODEL", help="ask a live model: anthropic:..., openai:..., ollama:..."
    )
    run.add_argument(
        "--llm-option", action="append", default=[], metavar="KEY=JSON", help="sent with every request"
    )
    run.add_argument("--no-stream", action="store_true", help="ask for each reply in one piece")
    run.add_argument("--base-url", metavar="URL", help="where the model answers, if not at its provider's")
    run.add_argument("--timeout", type=float, metavar="S", help="end the run after S seconds")
    run.add_argument("--replace", action="store_true", help="replace a recorded run of a live model")
    run.add_argument("--otlp", metavar="URL", help="send spans live to http://HOST:PORT or grpc://HOST:PORT")
    run.add_argument(
        "--durability",
        choices=("off", "step", "effect"),
        help="what is on the disk before the run goes on (default: off for a script, else effect)",
    )
    run.add_argument(
        "--quiet", action="store_true", help="print the answer, the ending and the place of the files only"
    )
    check = _verb(commands, "check", verbs.check, "make recorded runs again and compare them byte for byte")
    check.add_argument("runs", nargs="*", metavar="RUN", help="folders of runs (default: all below runs/)")
    verify = _verb(commands, "verify", verbs.verify, "check records in themselves, without running anything")
    verify.add_argument("runs", nargs="*", metavar="RUN", help="folders of runs (default: all below runs/)")
    verify.add_argument("--key", metavar="FILE", help="each run must have a seal of this key (PEM)")
    seal = _verb(commands, "seal", verbs.seal, "sign the four files of runs with an ed25519 key")
    seal.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    seal.add_argument("--key", required=True, metavar="FILE", help="private key (PEM)")
    show = _verb(commands, "show", verbs.show, "print a recorded run")
    show.add_argument("run", metavar="RUN", help="folder of a run")
    resume = _verb(commands, "resume", verbs.resume, "go on with a run that died, from its journal")
    resume.add_argument("run", metavar="DIR", help="folder of the run, with or without .partial")
    resume.add_argument(
        "--done", action="append", default=[], metavar="CALL", help="the call in doubt has taken place"
    )
    resume.add_argument(
        "--not-done",
        action="append",
        default=[],
        metavar="CALL",
        help="the call in doubt has not taken place",
    )
    resume.add_argument("--llm", metavar="PROVIDER:MODEL", help="the live model, if not the one before")
    resume.add_argument(
        "--llm-option", action="append", default=[], metavar="KEY=JSON", help="sent with every request"
    )
    resume.add_argument("--no-stream", action="store_true", help="ask for each reply in one piece")
    resume.add_argument("--base-url", metavar="URL", help="where it answers")
    resume.add_argument("--rebase", action="store_true", help="go on although inputs changed; records both")
    resume.add_argument(
        "--quiet", action="store_true", help="print the answer, the ending and the place only"
    )
    explain = _verb(commands, "explain", verbs.explain, "say why each call of a run was decided as it was")
    explain.add_argument("run", metavar="RUN", help="folder of a run")
    explain.add_argument("--step", type=int, metavar="N", help="this step only")
    replay = _verb(
        commands, "replay", verbs.replay, "make runs again from their own records: no model, no tools"
    )
    replay.add_argument(
        "--policy", metavar="FILE", help="say what this policy would have decided, up to the first difference"
    )
    replay.add_argument(
        "--overlay", action="append", default=[], metavar="FILE", help="merge over that policy"
    )
    replay.add_argument("runs", nargs="*", metavar="RUN", help="folders of runs (default: all below runs/)")
    policy = commands.add_parser("policy", help="look at a policy", epilog=_EXIT_CODES)
    kinds = policy.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, act, text in (
        ("check", verbs.policy_check, "load policy files and say whether they hold"),
        ("version", verbs.policy_version, "print the version of a policy"),
        ("decide", verbs.policy_decide, 'decide one call: {"tool": ..., "arguments": {...}}'),
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


def _verb(commands: Any, name: str, act: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=_EXIT_CODES
    )
    parser.set_defaults(act=act)
    parser.add_argument("--root", metavar="DIR", help="project root (default: the folder that holds policy/)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--no-color", action="store_true", help="no colour at a terminal either")
    return parser
