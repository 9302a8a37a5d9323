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
from .verbs.common import EXIT_CODES


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
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(act=verbs.looking.version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for part in verbs.PARTS:
        part.add(commands, _verb)
    return parser


def _verb(commands: Any, name: str, act: Any, text: str) -> argparse.ArgumentParser:
    """A command with the options that all have; `act` gets the parsed options and returns the exit code."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=EXIT_CODES
    )
    parser.set_defaults(act=act)
    parser.add_argument("--root", metavar="DIR", help="project root (default: the folder that holds policy/)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--no-color", action="store_true", help="no colour at a terminal either")
    return parser
