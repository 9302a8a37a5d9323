"""Making the evidence: every task is run and recorded, then the index and the generated pages are written.

    python -m dev.build [KIND [NAME]]          record
    python -m dev.build --check [KIND [NAME]]  compare, write nothing

One process for all runs. A run that misses what its task expects never replaces the one in place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev import docs
from tachograph.evidence.checking.check import examine, was_stopped
from tachograph.evidence.recording import index
from tachograph.evidence.recording.external import answered_from
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import EffectNotRecorded, ExpectationError, InputError, OutputError
from tachograph.runtime.formats.escape import escape_terminal


@dataclass(frozen=True, slots=True)
class Made:
    """What became of one task: `problems` is empty where all went as expected."""

    task: str
    ending: str
    problems: tuple[str, ...] = ()


def tasks(root: Path, kind: str | None = None, name: str | None = None) -> list[Path]:
    """Task files, sorted. Raises InputError where nothing has that kind or name."""
    there = sorted((root / "tasks").glob("*/*.yaml"))
    of_kind = [path for path in there if kind is None or path.parent.name == kind]
    found = [path for path in of_kind if name is None or path.stem == name]
    if not found:
        where = "/".join(filter(None, ("tasks", kind, name)))
        names = [path.stem for path in of_kind] or sorted({path.parent.name for path in there})
        raise InputError("there is no such task", file=where, remedy=f"known: {', '.join(names) or 'none'}")
    return found


def make(path: Path, root: Path) -> Made:
    """Run one task and record it below `runs/`."""
    task = load_task(path, root=root)
    if not task.is_scripted:
        return Made(task.file, "left alone: live")
    place = Path(path.parent.name, path.stem)
    rejected = root / ".tachograph" / "rejected" / "-".join(place.parts)
    try:
        agent, setting = build(task)
        setting = answered_from(agent, setting, root / "runs" / place, f"runs/{place.as_posix()}")
        result = record_run(agent, setting, root / "runs" / place, expected=task.expected, rejected=rejected)
        if was_stopped(task, [result.mode or ""]):
            raise KeyboardInterrupt
    except EffectNotRecorded as error:
        return Made(task.file, "not recorded", (str(error),))
    except ExpectationError as error:
        if was_stopped(task, ["interrupted"] if error.__cause__ is not None else []):
            raise KeyboardInterrupt from None
        kept = f"the committed run stays; this one is kept in {rejected.relative_to(root)}"
        return Made(task.file, "missed", (*error.differences, kept))
    return Made(task.file, result.ending)


def compare(path: Path, root: Path) -> Made:
    """Check one task's recorded run."""
    place = Path("runs", path.parent.name, path.stem)
    found = examine(root / place, root=root)
    accept = (f"accept it: {found.accept}",) if found.accept and not found.ok else ()
    return Made(place.as_posix(), "identical" if found.ok else found.kind, (*found.lines, *accept))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each run and a closing one; exit code 0, 1 where something missed, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="evidence-build", description="Record, or check, the project's runs."
    )
    parser.add_argument("--check", action="store_true", help="compare with the recorded runs, write nothing")
    parser.add_argument("kind", nargs="?", metavar="KIND", help="a folder of tasks/")
    parser.add_argument("name", nargs="?", metavar="NAME", help="one task of it")
    options = parser.parse_args(argv)
    root = Path.cwd()
    try:
        return _main(root, options.kind or None, options.name or None, checking=options.check)
    except (InputError, OutputError) as error:
        print(f"tachograph: {escape_terminal(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tachograph: interrupted", file=sys.stderr)
        return 130


def _main(root: Path, kind: str | None, name: str | None, *, checking: bool) -> int:
    chosen = tasks(root, kind, name)
    bad = 0
    if not checking:
        for path in chosen:  # bad input is refused before anything is recorded
            task = load_task(path, root=root)
            if task.is_scripted:
                build(task)
    try:
        for path in chosen:
            made = compare(path, root) if checking else make(path, root)
            bad += bool(made.problems)
            print(f"{made.ending.ljust(24)}{made.task}", flush=True)
            for line in made.problems:
                print(f"  {escape_terminal(line)}")
    finally:
        if not checking:
            index.update(root)  # whatever was recorded until then
    if not checking and not bad:
        docs.write(root)
    what = "-".join(filter(None, (kind or "evidence", name)))
    verb = "identical" if checking else "as expected"
    print(f"{what}: {len(chosen) - bad} of {len(chosen)} runs {verb}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
