"""What is printed of a run that has ended: its answer, its ending and its files, or the same as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..runtime.formats.escape import escape_terminal
from .commands.common import escaped_path
from .console import Paint, width_of


def say_result(options: argparse.Namespace, result: Any, out: Path, good: bool, paint: Paint) -> None:
    """Print how a run ended; `good` says whether it ended as it should have."""
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
            print(_answer(result.answer))
        print(f"ending    {paint(result.ending, 'green' if good else 'red')}")
        print(f"files     {escaped_path(out)}/: state.jsonl trace.json run_report.md manifest.json")


def _answer(text: str) -> str:
    """Return the answer of a run: one line in a pipe, wrapped at a terminal."""
    line = escape_terminal(text, 2000)
    if not sys.stdout.isatty():
        return f"answer    {line}"
    head = "answer    "
    wide = width_of(sys.stdout) - len(head)
    import textwrap  # for a terminal only

    rows = textwrap.wrap(line, wide, break_on_hyphens=False) or [""]
    return f"\n{' ' * len(head)}".join([f"{head}{rows[0]}", *rows[1:]])
