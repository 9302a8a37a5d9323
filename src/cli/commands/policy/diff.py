"""What many runs are done with on all cores, and `policy diff`: what a change of policy does."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ....fail.errors import InputError
from ...console import painter, width_of
from ..common import Verb, add_files, path_given, root_of

Result = TypeVar("Result")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the option `--jobs`."""
    parser.add_argument(
        "--jobs", type=_jobs, metavar="N", help="processes to work with (default: the cores at hand)"
    )


def _jobs(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1")
    return int(text)


def over_runs(
    options: argparse.Namespace,
    work: Callable[[Path], Result],
    folders: Sequence[Path],
    word: str,
    counted: tuple[str, Callable[[Result], bool]],
) -> list[Result]:
    """`work` done on every run, on all cores; at a terminal a line says how far it is.

    `counted` names what the line counts and says of which results.
    """
    if len(folders) == 1:
        return [work(folders[0])]
    from ....evidence.checking.workers import Ticker, each

    with Ticker(sys.stderr, word, len(folders), *counted) as tell:
        return each(work, folders, tell=tell, jobs=options.jobs)


def add(kinds: Any, verb: Verb) -> None:
    """Add the command `policy diff`."""
    parser = verb(kinds, "policy diff", policy_diff)
    parser.add_argument(
        "old", type=path_given, metavar="OLD", help="policy file, or as git has it: HEAD:policy/v1.yaml"
    )
    parser.add_argument("new", type=path_given, metavar="NEW", help="policy file, or as git has it")
    for name, side in (("--overlay", "NEW"), ("--old-overlay", "OLD")):
        add_files(parser, name, f"merge over {side}; may be repeated")
    text = "recorded runs to ask too: a run, or a folder such as runs/; may be repeated"
    parser.add_argument("--runs", action="append", default=[], type=path_given, metavar="DIR", help=text)
    parser.add_argument("--markdown", action="store_true", help="print a comment for a pull request")
    add_jobs(parser)


def policy_diff(options: argparse.Namespace) -> int:
    """Say what a change of policy does: 0 if nothing is widened, 1 if something is or that cannot be told."""
    from dataclasses import replace  # here, since commands that make no plan start without it

    from ....evidence.checking.workers import Ticker
    from ....review.plan.markdown import markdown_of
    from ....review.plan.plan import ask_runs, compare_sides, runs_in
    from ....review.plan.sources import Sources
    from ....review.plan.text import AT_A_TERMINAL, MOST, lines_of

    root = root_of(options)
    if options.markdown and options.json:
        raise InputError("--markdown and --json are two documents", remedy="give one of them")
    folders = runs_in(Path(place) for place in options.runs)
    with Sources(root) as sources:
        old = sources.side(options.old, options.old_overlay)
        new = sources.side(options.new, options.overlay)
        plan = compare_sides(old, new, root, _again(options))
        if folders:
            with Ticker(
                sys.stderr, "policy diff", len(folders), "otherwise", lambda run: run.is_otherwise
            ) as tell:
                plan = replace(plan, runs=ask_runs(folders, old, new, root, tell=tell, jobs=options.jobs))
    if options.json:
        print(json.dumps({**plan.to_dict(), "exit": plan.code}, sort_keys=True))
    elif options.markdown:
        print(markdown_of(plan), end="")
    else:
        most = AT_A_TERMINAL if sys.stdout.isatty() else MOST
        for line in lines_of(plan, width_of(sys.stdout), painter(sys.stdout, options.no_color), most):
            print(line)
    return plan.code


def _again(options: argparse.Namespace) -> str:
    """Return the command as it was given, without options that only concern the output."""
    words = ["tachograph", "policy", "diff", options.old, options.new]
    for name, values in (("--old-overlay", options.old_overlay), ("--overlay", options.overlay)):
        words += [word for value in values for word in (name, value)]
    words += [word for place in options.runs for word in ("--runs", place)]
    if options.root is not None:
        words += ["--root", options.root]
    return shlex.join(words)
