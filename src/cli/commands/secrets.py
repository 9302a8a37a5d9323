"""The command that searches what was recorded for secrets: secrets."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ...runtime.formats.escape import escape_terminal
from ..console import painter
from .common import Verb, near, path_given, run_folders


def add(commands: Any, verb: Verb) -> None:
    """Add the command secrets."""
    parser = verb(commands, "secrets", secrets)
    parser.add_argument(
        "runs",
        nargs="*",
        type=path_given,
        metavar="RUN",
        help="folders of runs; runs/ may be left out (default: all below it)",
    )


def secrets(options: argparse.Namespace) -> int:
    """Search every file of recorded runs for secrets; no line shows one."""
    from ...evidence.checking.differences.drift import counted
    from ...evidence.checking.secrets import leaks

    is_whole = not options.runs
    root, folders = run_folders(options)
    lines = leaks([root / "runs"] if is_whole else folders, root)
    if options.json:
        print(json.dumps({"runs": len(folders), "secrets": lines}, sort_keys=True))
        return int(bool(lines))
    paint = painter(sys.stdout, options.no_color)
    for line in lines:
        print(f"{paint('secret', 'red')}  {escape_terminal(line, 400)}")
    names = escape_terminal(near(folders[0]), 400) if len(folders) == 1 else f"{len(folders)} runs"
    print(
        f"secrets: {counted(len(lines), 'place')} in {names} may hold a secret"
        if lines
        else f"secrets: none found in {names}"
    )
    return int(bool(lines))
