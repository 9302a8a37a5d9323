"""Every field of every committed run is changed, with all that follows from it, and held against `check`.

    python -m tests.evidence.forgeries [--sample] [RUN...]

Each change is made by a forger who knows the format and runs the loop: where `check` answers parts of the run from the
record, the forger takes the files that the run gives with the changed answer. A field is unproven if a change of it
passes. Exactly those that `evidence/checking/proof.py` lists may.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from dev.sample import PARTS, commit_of, is_in_part
from tachograph.evidence.checking.check import examine, runs_below
from tachograph.evidence.checking.proof import UNPROVEN, Unproven, pointers, unproven_field
from tachograph.evidence.checking.workers import each
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.manifest import FILES, MANIFEST
from tachograph.evidence.recording import index
from tachograph.fail.errors import RecordError
from tachograph.runtime.formats.json_pointer import unescape_pointer
from tachograph.runtime.journal.cassette import Cassette
from tests.evidence.forger import Lines, forge, lines_of
from tests.support import ROOT

FOLDERS = ("policy", "tools", "data", "tasks", "runs")
OTHERS = 3  # values seen at the same place of other runs that are tried
GONE = object()

# (type of line, JSON Pointer with * for numbers) -> values seen there
Seen = dict[tuple[str, str], list[Any]]
# (number of the line, -1 for the manifest; JSON Pointer) -> whether the field is to be forged
Wanted = Callable[[int, str], bool]


@dataclass
class Forged:
    """What became of the forgeries of one run."""

    run: str
    tried: int = 0
    fields: int = 0
    passed: list[str] = field(default_factory=list)  # forgeries of fields that are said to be derived again
    met: set[Unproven] = field(default_factory=set)  # entries of UNPROVEN of which a forgery passed


def copied(to: Path) -> Path:
    """A copy of what committed runs are checked against."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__", "*.partial"))
    return to


def manifest_of(run: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((run / MANIFEST).read_bytes())
    return {**manifest, "type": "manifest"}


def seen_in(runs: Iterable[Path]) -> Seen:
    """The values of all fields, and the entries of all objects, of some runs."""
    seen: Seen = {}
    for run in runs:
        for line in [*lines_of(run), manifest_of(run)]:
            for pointer, value in _nodes(line):
                values = seen.setdefault((line["type"], _general(pointer)), [])
                if value not in values and len(values) < 8:
                    values.append(value)
    return seen


def _nodes(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    yield pointer, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _nodes(item, f"{pointer}/{key}")


def _general(pointer: str) -> str:
    return "/".join("*" if part.isdecimal() else part for part in pointer.split("/"))


def forged_values(line: dict[str, Any], pointer: str, seen: Seen) -> Iterator[Any]:
    """Other values for a field: one made from it, none at all, and those that other runs have there."""
    old = at(line, pointer)
    if isinstance(old, bool):
        yield not old
    elif isinstance(old, int | float):
        yield old + 1
    elif isinstance(old, str):
        yield f"{old}x"
        if len(old) > 7 and all(letter in "0123456789abcdef" for letter in old[-8:]):
            yield old[:-1] + ("1" if old[-1] == "0" else "0")
    else:
        yield "x"
    yield GONE
    others = [value for value in seen.get((line["type"], _general(pointer)), ()) if value != old]
    yield from others[:OTHERS]


def at(line: Any, pointer: str) -> Any:
    """The value at a pointer; GONE where there is none."""
    for part in map(unescape_pointer, pointer.split("/")[1:]):
        try:
            line = line[int(part) if isinstance(line, list) else part]
        except (KeyError, IndexError, TypeError, ValueError):
            return GONE
    return line


def put(line: Any, pointer: str, value: Any) -> None:
    """Set or remove the value at a pointer."""
    *way, last = map(unescape_pointer, pointer.split("/")[1:])
    for part in way:
        line = line[int(part) if isinstance(line, list) else part]
    key: Any = int(last) if isinstance(line, list) else last
    if value is GONE:
        del line[key]
    else:
        line[key] = value


def added(line: dict[str, Any], seen: Seen) -> Iterator[tuple[str, Any]]:
    """Entries that objects of other runs have and that are absent in those of a line."""
    for pointer, value in _nodes(line):
        if isinstance(value, dict):
            for (kind, place), values in seen.items():
                head, _, key = place.rpartition("/")
                if kind == line["type"] and head == _general(pointer) and key not in value:
                    yield f"{pointer}/{key}", values[0]


def attempts(run: Path, seen: Seen) -> Iterator[tuple[int, str, Any]]:
    """Every forgery of a run: number of the line, which is -1 for the manifest; pointer; value."""
    for number, line in [*enumerate(lines_of(run)), (-1, manifest_of(run))]:
        for pointer in pointers(line):
            if pointer not in ("/prev", "/type"):  # the chain is made anew, and lines stay lines
                for value in forged_values(line, pointer, seen):
                    yield number, pointer, value
        for pointer, value in added(line, seen):
            yield number, pointer, value


def passes(run: Path, root: Path, number: int, pointer: str, value: Any) -> bool:
    """Whether a forgery passes: all fits together, `check` holds, and the forged value stands in the record."""
    try:
        if number < 0:
            _forge_manifest(run, pointer, value, root)
        else:
            forge(run, lambda lines: put(lines[number], pointer, value), root=root)
    except RecordError:
        return False  # no other file follows from such a ledger
    if examine(run, root=root).ok:
        return True
    if number < 0:
        return False
    # the forger runs the loop on the forged answers, and takes what comes of it
    with mock.patch.object(Cassette, "_compare", lambda *_: None):
        fresh = examine(run, root=root).fresh
    if fresh is None:
        return False
    volatile = {key: manifest_of(run)[key] for key in manifests.VOLATILE}
    whole = manifests.render({**json.loads(fresh[MANIFEST]), **volatile})
    for name, data in {**fresh, MANIFEST: whole}.items():
        (run / name).write_bytes(data)
    index.update(root)
    lines: Lines = lines_of(run)
    return number < len(lines) and at(lines[number], pointer) == value and examine(run, root=root).ok


def _forge_manifest(run: Path, pointer: str, value: Any, root: Path) -> None:
    manifest = manifest_of(run)
    put(manifest, pointer, value)
    del manifest["type"]
    (run / MANIFEST).write_bytes(manifests.render(manifest))
    index.update(root)


def in_part(run: str, part: str | None) -> Wanted:
    """A choice of fields: with `part` the tenth of a run's fields that this text selects, else all."""
    return lambda number, pointer: part is None or is_in_part(f"{run} {number} {pointer}", part)


def forge_all(run: Path, root: Path, seen: Seen, wanted: Wanted) -> Forged:
    """Try the forgeries of a run in those fields that are wanted."""
    name = run.relative_to(root).as_posix()
    before = {file: (run / file).read_bytes() for file in FILES}
    lines, manifest = lines_of(run), manifest_of(run)
    made = Forged(name)
    done: set[tuple[int, str]] = set()
    for number, pointer, value in attempts(run, seen):
        line = manifest if number < 0 else lines[number]
        if not wanted(number, pointer):
            continue
        made.tried += 1
        done.add((number, pointer))
        if passes(run, root, number, pointer, value):
            entry = unproven_field(lines, line, pointer)
            if entry is None:
                shown = "nothing" if value is GONE else json.dumps(value)[:60]
                made.passed.append(f"{name} line {number + 1} {pointer} = {shown}")
            else:
                made.met.add(entry)
        for file, data in before.items():
            (run / file).write_bytes(data)
    index.update(root)
    made.fields = len(done)
    return made


def forge_copy(run: str, seen: Seen, part: str | None) -> Forged:
    """Try the forgeries of a committed run in a copy of its project."""
    with tempfile.TemporaryDirectory() as place:
        root = copied(Path(place) / "project")
        return forge_all(root / run, root, seen, in_part(run, part))


def main(arguments: list[str]) -> int:
    """Print what was tried; exit code 1 if a forgery of a field passes that is said to be derived again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", action="store_true", help=f"one field of {PARTS}, chosen by the commit")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="such as loop/hook_denies; all without one")
    options = parser.parse_args(arguments)
    known = runs_below(ROOT)
    runs = [ROOT / "runs" / name for name in options.runs] or known
    for run in runs:
        if run not in known:
            parser.error(f"{run.relative_to(ROOT)} is no recorded run")
    part = commit_of(ROOT) if options.sample else None
    work = partial(forge_copy, seen=seen_in(known), part=part)
    all_made = each(work, [run.relative_to(ROOT).as_posix() for run in runs])
    for made in all_made:
        print(f"{made.tried:6} forgeries of {made.fields:4} fields  {made.run}")
        for line in made.passed:
            print(f"  passes: {line}")
    passed = sum(len(made.passed) for made in all_made)
    met = {entry for made in all_made for entry in made.met}
    print(
        f"forgeries: {sum(made.tried for made in all_made)} tried, {passed} pass that should not; "
        f"{len(met)} of {len(UNPROVEN)} entries of the list of unproven fields met"
    )
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
