"""The fault suite: each fault is made, and the run must survive it as `docs/evidence.md` says.

    python -m tests.faults.run [--only NAME] [--list]

Prints a line a fault and the score; exit code 1 if one was not survived. A fault that this machine cannot make
is named with what it needs.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from . import breaks, kills, limits, media, places, power, signals, tool_faults  # noqa: F401 - they register
from .lab import Lab, lab
from .registry import FAULTS, Entry


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", metavar="NAME", help="a fault, or all whose names begin so")
    parser.add_argument("--list", action="store_true", help="print the names and what is broken")
    options = parser.parse_args()
    chosen = [entry for name, entry in FAULTS.items() if name.startswith(options.only or "")]
    if not chosen:
        print(f"faults: there is none named {options.only!r}; --list prints them", file=sys.stderr)
        return 2
    if options.list:
        for entry in chosen:
            print(f"{entry.name:18} {entry.words}")
        return 0
    begun = time.monotonic()
    with lab() as found:
        survived = [_made(found, entry) for entry in chosen]
    missed, left_out = survived.count(False), survived.count(None)
    note = f", {left_out} not run here" if left_out else ""
    made = len(chosen) - left_out
    print(f"faults: {made - missed} of {made} survived{note}, {time.monotonic() - begun:.0f} s")
    return 1 if missed else 0


def _made(found: Lab, entry: Entry) -> bool | None:
    """Make all cases of a fault: True where all were survived, None where it cannot be made here."""
    missing = entry.missing()
    if missing:
        print(f"not run here  {entry.name:18} needs {', '.join(missing)}", flush=True)
        return None
    begun, number, case = time.monotonic(), 0, "(at the start)"
    try:
        for case in entry.cases(found):
            number += 1
    except AssertionError:
        print(f"MISSED        {entry.name:18} {case}", flush=True)
        print("".join(traceback.format_exc(limit=-2)), flush=True)
        return False
    seconds = time.monotonic() - begun
    print(f"survived      {entry.name:18} {number:5} cases  {seconds:5.1f} s  {entry.words}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
