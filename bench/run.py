"""Prints what governing costs, as ratios of things measured in this very run. Gates nothing.

    python bench/run.py [--quick] [--only NAME] [--json FILE] [--write]

`docs/performance.md` says what the lines mean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import async_runs
import decisions
import durability
import engines
import growth
import policies
import policy_diffs
import processes
import redactions
import replays
import reviews
import steps
from measure import Row

PARTS: dict[str, Callable[..., list[Row]]] = {
    "decisions": decisions.rows,
    "engines": engines.rows,
    "steps": steps.rows,
    "redactions": redactions.rows,
    "growth": growth.rows,
    "processes": processes.rows,
    "policies": policies.rows,
    "durability": durability.rows,
    "replays": replays.rows,
    "policy_diffs": policy_diffs.rows,
    "reviews": reviews.rows,
    "async_runs": async_runs.rows,
}
WIDTH = 72
PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def main() -> int:
    parser = argparse.ArgumentParser(description="measure costs as ratios; gates nothing")
    parser.add_argument("--quick", action="store_true", help="a few seconds and less steady figures")
    parser.add_argument("--only", choices=PARTS, metavar="NAME", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to FILE as well")
    parser.add_argument("--write", action="store_true", help="write the table of docs/performance.md")
    options = parser.parse_args()
    # a command as people run it has its bytecode on the disk
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if options.write and options.only:
        parser.error("--write needs all groups: leave out --only")
    begun = time.monotonic()
    found: dict[str, list[Row]] = {}
    print(f"{'':{WIDTH}} {'measured':>9} {'':9} {'target':>7}")
    for name in [options.only] if options.only else PARTS:
        found[name] = PARTS[name](quick=options.quick)
        print(name)
        for row in found[name]:
            print(_line(row), flush=True)
    over = [row for rows in found.values() for row in rows if row.verdict == "over"]
    print(f"{len(over)} over target, {time.monotonic() - begun:.0f} s")
    if options.json is not None:
        options.json.write_text(
            json.dumps(_document(found, options.quick), indent=1) + "\n", encoding="utf-8"
        )
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), found, options.quick), encoding="utf-8")
    return 0


def with_table(page: str, found: dict[str, list[Row]], quick: bool) -> str:
    """Return the page with the figures of a run between its two marks."""
    head, _, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    kind = "a quick run" if quick else "one run"
    where = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} processors"
    lines = [f"Figures of {kind}: {where}.", "", "| | measured | target | |", "|---|---:|---:|---|"]
    for name, rows in found.items():
        lines.append(f"| **{name}** | | | |")
        lines += [_cells(row) for row in rows if not math.isnan(row.value)]
    table = "\n".join(lines)
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def _cells(row: Row) -> str:
    target = "" if row.target is None else f"{row.target:g}"
    unit = "" if row.unit == "x" else f" {row.unit}"
    return f"| {row.name.strip()} | {row.value:.3g}{unit} | {target} | {row.verdict} |"


def _line(row: Row) -> str:
    target = "" if row.target is None else f"{row.target:g}"
    value = "" if math.isnan(row.value) else f"{row.value:.2f}"  # a row that only says something
    return f"  {row.name:{WIDTH - 2}} {value:>9} {row.unit:9} {target:>7} {row.verdict:5}{row.note}".rstrip()


def _document(found: dict[str, list[Row]], quick: bool) -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "quick": quick,
        "rows": {
            name: [
                {**asdict(row), "value": None if math.isnan(row.value) else row.value, "verdict": row.verdict}
                for row in rows
            ]
            for name, rows in found.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
