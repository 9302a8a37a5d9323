"""Commands that print a run: show, explain."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from ....fail.errors import InputError
from ...console import painter, wants_colour, width_of
from ..common import RUN_HELP, Verb, no_such_run, path_given, run_named


def add(commands: Any, verb: Verb) -> None:
    """Add the commands show and explain."""
    parser = verb(commands, "show", show)
    parser.add_argument("run", type=path_given, metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "other", nargs="?", type=path_given, metavar="RUN", help="another run to compare it with"
    )
    parser.add_argument("--html", type=path_given, metavar="FILE", help="write it as one page for a browser")
    parser.add_argument(
        "--request",
        type=int,
        metavar="STEP",
        help="what the model saw at this step: messages, tools, options",
    )
    parser = verb(commands, "explain", explain)
    parser.add_argument("run", type=path_given, metavar="RUN", help=RUN_HELP)
    parser.add_argument("--step", type=int, metavar="N", help="this step only")


def show(options: argparse.Namespace) -> int:
    """Print a recorded run, or two; exit code 1 where two did not do the same."""
    runs = [_folder_of(options, run) for run in (options.run, options.other) if run is not None]
    if options.request is not None:
        return _show_request(options, runs)
    if options.html is not None:
        from .pages import show_page

        return show_page(options, runs)
    if len(runs) == 2:
        return _show_two(options, *runs)
    from ....evidence.queries.show import show

    plain = options.no_color or not wants_colour(sys.stdout)
    if options.json or not sys.stdout.isatty() or not _can_draw(sys.stdout):
        paint = painter(sys.stdout, options.no_color)
        print(show(runs[0], as_json=options.json, paint=paint, root=_root(options)))
        return 0
    from ....views.model import run_of
    from ....views.terminal import print_run

    print_run(run_of(runs[0], _root(options)), sys.stdout, no_color=plain)
    return 0


def _show_request(options: argparse.Namespace, runs: list[Path]) -> int:
    """Print what the model saw at a step of one run."""
    from ....evidence.queries.show_request import show_request

    if len(runs) == 2 or options.html is not None:
        raise InputError("--request is about one run, as text or with --json", remedy="leave the other out")
    paint = painter(sys.stdout, options.no_color)
    print(show_request(runs[0], options.request, as_json=options.json, paint=paint))
    return 0


def _folder_of(options: argparse.Namespace, name: str) -> Path:
    """Return the folder of a run: that of its journal while the run is not finished."""
    folder = run_named(options, name)
    partial = folder.parent / f"{folder.name}.partial"
    if not os.path.lexists(folder) and not os.path.isdir(partial):
        raise no_such_run(options, name)
    return partial if os.path.isdir(partial) and not os.path.isdir(folder) else folder


def _show_two(options: argparse.Namespace, one: Path, other: Path) -> int:
    from ....evidence.checking.differences.drift import compare
    from ....views.model import run_of
    from ....views.tree import two_as_text

    left, right = (run_of(folder, _root(options)) for folder in (one, other))
    # what runs were set up with differs more often than not, and is told by what they did
    drift = compare(left.lines[1:], right.lines[1:])
    if options.json:
        first = None if drift.first is None else drift.first.to_dict()
        data = {"runs": [left.name, right.name], "first": first, "classes": dict(drift.counts)}
        print(json.dumps({**data, "same_setup": left.run == right.run}, sort_keys=True))
    elif sys.stdout.isatty() and _can_draw(sys.stdout):
        from ....views.terminal import print_two

        plain = options.no_color or not wants_colour(sys.stdout)
        print_two(left, right, drift, sys.stdout, no_color=plain)
    else:
        print(two_as_text(left, right, drift))
    return 0 if drift.first is None else 1


def _root(options: argparse.Namespace) -> Path | None:
    return Path(options.root) if options.root is not None else None


def _can_draw(stream: TextIO) -> bool:
    """Return whether the library is there that draws at a terminal (the extra `view`), and the lines can be encoded."""
    try:
        "\u2500\u2502\u251c\u2514\u2588".encode(stream.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return importlib.util.find_spec("rich") is not None


def explain(options: argparse.Namespace) -> int:
    """Say of a recorded run what every rule made of each call."""
    from ....evidence.queries.explain import as_data, as_text, explain_run
    from ....review.remedy.explain_denial import add_explanations

    paint = painter(sys.stdout, options.no_color)
    explained = explain_run(run_named(options, options.run), root=_root(options))
    add_explanations(explained, options.step, paint)
    if options.json:
        print(json.dumps(as_data(explained, options.step), sort_keys=True))
    else:
        width = width_of(sys.stdout) if sys.stdout.isatty() else None
        print(as_text(explained, options.step, paint, width))
    return 0
