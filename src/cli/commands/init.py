"""The command that lays out a new project: init."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from ...runtime.formats.escape import escape_terminal
from ..console import painter
from .common import Verb, near, path_given


def add(commands: Any, verb: Verb) -> None:
    """Add the command init."""
    parser = verb(commands, "init", init)
    parser.add_argument(
        "folder",
        type=path_given,
        metavar="DIR",
        help="an empty, a new or an existing folder; inside a git repository, files of git, CI and the hook are "
        "written at the repository's top, outside DIR",
    )
    parser.add_argument(
        "--install",
        metavar="SPEC",
        help="what CI installs: a version, a wheel, or a Git URL (default: what runs here)",
    )


def init(options: argparse.Namespace) -> int:
    """Lay out a project and say what each file is for."""
    from ... import __version__
    from ...scaffold.new_project import begin

    folder = Path(options.folder)
    begun = begin(folder, __version__, options.install)
    if options.json:
        kinds = {"created": begun.created, "kept": begun.kept, "runs": begun.runs}
        data = {kind: [place for place, _ in places] for kind, places in kinds.items()}
        notes = [] if begun.note is None else [begun.note]
        print(json.dumps({"folder": str(folder), **data, "notes": notes}, sort_keys=True))
        return 0
    paint = painter(sys.stdout, options.no_color)
    wide = max(len(place) for place, _ in (*begun.created, *begun.kept, *begun.runs))
    for word, colour, places in (
        ("created", "green", begun.created),
        ("recorded", "green", begun.runs),
        ("kept", "yellow", begun.kept),
    ):
        for place, words in places:
            print(
                f"{paint(f'{word:<9}', colour)} {escape_terminal(f'{place:<{wide}}', 200)}  "
                f"{escape_terminal(words, 200)}"
            )
    outside = [place for place, _ in begun.created if place.startswith("../")]
    if outside:
        named = escape_terminal(", ".join(outside), 400)
        print(
            f"\n{paint('outside', 'yellow')}   {named}: written at the top of the git repository that DIR is in"
        )
    if begun.note is not None:
        print(f"\n{paint('note', 'yellow')}      {escape_terminal(begun.note, 400)}")
    here = near(folder)
    enter = [] if here == "." else [f"cd {escape_terminal(shlex.quote(here), 400)}"]
    first, *others = [*enter, "tachograph check                      # make the runs again, byte for byte"]
    print(f"\nnext      {first}")
    for step in others:
        print(f"          {step}")
    print("          tachograph show runs/first/welcome    # look at one")
    print("          tachograph policy test                # what the policy says to calls")
    print("          tachograph seal --all --key FILE      # sign all of it, at a release")
    return 0
