"""The command that lists recorded runs: ls."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ....fail.errors import InputError, RecordError
from ....runtime.formats.escape import escape_terminal
from ....runtime.formats.read_file import read_unlinked
from ...console import painter
from ..common import Verb, near, path_given, root_of

_HEADS = ("run", "ending", "mode", "steps", "model", "when")


def add(commands: Any, verb: Verb) -> None:
    """Add the command ls."""
    parser = verb(commands, "ls", ls)
    parser.add_argument(
        "runs",
        nargs="?",
        type=path_given,
        metavar="FOLDER",
        help="folder with runs below it (the project's runs/)",
    )


def ls(options: argparse.Namespace) -> int:
    """List the recorded runs of the project or below a folder; exit code 1 where one cannot be read."""
    from ....evidence.files.words.how_to_resume import resumed_by
    from ....views.site import runs_in

    current = Path.cwd()
    if options.runs is not None:
        runs = Path(options.runs)
    elif options.root is None and (current / "runs").is_dir():
        runs = current / "runs"
    else:
        runs = root_of(options, own=True) / "runs"
    rows = [_row(folder, runs) for folder in runs_in(runs)]
    if options.json:
        print(json.dumps(rows, sort_keys=True))
    else:
        _print_table(rows, options.no_color)
        for row in rows:
            if row["ending"] == "unfinished":
                folder = str(row["folder"])
                print(f"unfinished: go on with {resumed_by(folder.removesuffix('.partial'), Path(folder))}")
    return 1 if any(row["problem"] for row in rows) else 0


def _row(folder: Path, runs: Path) -> dict[str, Any]:
    """Return what stands in the list of one run; `problem` says why it cannot be read, else None."""
    from ....runtime.journal.ledger import read

    name = folder.name if folder == runs else folder.relative_to(runs).as_posix()
    row: dict[str, Any] = {"run": name, "folder": near(folder), **dict.fromkeys(_HEADS[1:]), "problem": None}
    if folder.suffix == ".partial":
        return {**row, "run": name.removesuffix(".partial"), "ending": "unfinished"}
    try:
        first, *_, last = read(read_unlinked(folder / "state.jsonl"), row["folder"])
        start = first["clock"]["start"] if first["clock"]["kind"] == "system" else None
        return {
            **row,
            "ending": last["terminal_reason"],
            "mode": last["failure_mode"],
            "steps": last["totals"]["steps"],
            "model": f"{first['model']['provider']}/{first['model']['name']}",
            "when": start,
        }
    except RecordError as error:
        problem = str(error)
    except (KeyError, TypeError, ValueError, InputError):
        problem = "its record has another shape"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    return {**row, "problem": problem}


def _print_table(rows: list[dict[str, Any]], no_color: bool) -> None:
    paint = painter(sys.stdout, no_color)
    lines: list[tuple[str, ...]] = [_HEADS]
    for row in rows:
        when = (row["when"] or "")[:19].replace("T", " ")
        texts = [row["run"], row["ending"], row["mode"], row["steps"], row["model"], when]
        lines.append(tuple(escape_terminal("" if text is None else str(text), 60) for text in texts))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [
            text.rjust(width) if head == "steps" else text.ljust(width)
            for head, text, width in zip(_HEADS, line, widths, strict=True)
        ]
        problem = rows[number - 1]["problem"] if number else None
        text = "  ".join(cells).rstrip()
        if problem:
            text += f"  {paint('cannot be read', 'red')}: {escape_terminal(problem, 200)}"
        print(text if number else paint(text, "dim"))
