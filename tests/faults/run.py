"""The fault suite: each fault is made, and the run must survive it as `docs/evidence.md` says.

    python -m tests.faults.run [--only NAME] [--sample] [--jobs N] [--list]

Prints a line a fault and the score; exit code 1 if one was not survived. A fault that this machine cannot make
is named with what it needs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event

from dev.sample import choose
from tests.support import ROOT

from . import (  # noqa: F401 - they register
    accepting,
    breaks,
    kills,
    limits,
    media,
    places,
    power,
    signals,
    together,
    tool_faults,
    vanish,
)
from .lab import Lab, lab
from .registry import FAULTS, Entry


def main() -> int:
    parser = argparse.ArgumentParser(description="make faults, and see that runs survive them")
    parser.add_argument("--only", metavar="NAME", help="a fault, or all whose names begin so")
    parser.add_argument("--sample", action="store_true", help="those that dev/sample.py chooses")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="print the names and what is broken")
    options = parser.parse_args()
    chosen = [entry for name, entry in FAULTS.items() if name.startswith(options.only or "")]
    if options.sample:
        found = choose({entry.name: [_file(entry)] for entry in chosen}, ROOT)
        print(f"faults: {found.why}", flush=True)
        chosen = [entry for entry in chosen if entry.name in found.names]
    if not chosen:
        print(f"faults: there is none named {options.only!r}; --list prints them", file=sys.stderr)
        return 2
    if options.list:
        for entry in chosen:
            print(f"{entry.name:18} {entry.words}")
        return 0
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    survived = _all(chosen, min(options.jobs, len(chosen)))
    missed, left_out = survived.count(False), survived.count(None)
    note = f", {left_out} not run here" if left_out else ""
    made = len(chosen) - left_out
    print(f"faults: {made - missed} of {made} survived{note}, {time.monotonic() - begun:.0f} s")
    return 1 if missed else 0


def _file(entry: Entry) -> str:
    """Return the file of the suite that holds a fault."""
    return entry.cases.__module__.replace(".", "/") + ".py"


def _all(chosen: list[Entry], jobs: int) -> list[bool | None]:
    """Make faults, several at a time, each job in a lab of its own."""
    waiting: SimpleQueue[Entry] = SimpleQueue()
    ended = Event()
    for entry in chosen:
        waiting.put(entry)

    def work(_job: int) -> list[bool | None]:
        found = []
        with lab() as own:
            assert own.whole  # the run that nothing disturbs is made first
            while not ended.is_set():
                try:
                    found.append(_made(own, waiting.get_nowait()))
                except Empty:
                    break
        return found

    with ThreadPoolExecutor(jobs) as pool:
        try:
            return [one for found in pool.map(work, range(jobs)) for one in found]
        finally:
            ended.set()  # a signal came: the fault under way cleans up after itself, and is the last


def _made(found: Lab, entry: Entry) -> bool | None:
    """Make all cases of a fault: True where all were survived, None where it cannot be made here."""
    missing = entry.missing()
    if missing:
        print(f"not run here  {entry.name:18} needs {', '.join(missing)}", flush=True)
        return None
    begun, number, case = time.monotonic(), 0, "(at the start)"
    cases = entry.cases(found)
    try:
        while (name := next(cases, None)) is not None:
            number, case = number + 1, name
    except Exception:  # noqa: BLE001 - whatever it is, this fault was not survived, and the others count too
        print(f"MISSED        {entry.name:18} {case}\n{traceback.format_exc(limit=-2)}", flush=True)
        return False
    seconds = time.monotonic() - begun
    print(f"survived      {entry.name:18} {number:5} cases  {seconds:5.1f} s  {entry.words}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
