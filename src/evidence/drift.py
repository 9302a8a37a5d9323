"""Tell how runs have drifted: what has moved, and the gravest thing that follows from it, told once for all runs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ..fail.errors import InputError
from .compare import CHANGED, GRAVEST_FIRST, Difference

_STORIES: Final = 12  # of one cause
_FILES: Final = 10
_NAMES: Final = 4
_LINE: Final = re.compile(r"(:[0-9]+)+$")


def not_made(error: InputError) -> list[Difference]:
    """Return the differences of a run that cannot be made any more."""
    place, _, words = str(error).partition(": ")
    return [Difference("INPUT", place, words), Difference("ENDING", "0", "the run cannot be made", (place,))]


def drift(found: Mapping[str, Sequence[Difference]], root: Path) -> list[str]:
    """Return what to say of runs that have drifted: at most 30 lines for each cause.

    Args:
        found: The differences of each run, by its name.
        root: The project.
    """
    moved: dict[str, str] = {}
    runs: dict[Difference, list[str]] = {}
    inputs: dict[Difference, set[str]] = {}
    for name, differences in found.items():
        gravest = min(differences, key=_gravity)
        story = msgspec.structs.replace(gravest, rests_on=())
        runs.setdefault(story, []).append(name)
        inputs.setdefault(story, set()).update(gravest.rests_on)
        # that other inputs are read now, or not any more, mostly follows
        told = {*gravest.rests_on}
        moved |= {
            it.at: it.words
            for it in differences
            if it.kind == "INPUT" and (it.words == CHANGED or it.at in told)
        }
    lines = [f"{path}: {moved[path]}{_hint(root, path)}" for path in sorted(moved)[:_FILES]]
    if len(moved) > _FILES:
        lines.append(f"and {_some(sorted(moved)[_FILES:], 'more input')}")
    causes: dict[str, list[Difference]] = {}
    for story in sorted(runs, key=lambda story: (_gravity(story), -len(runs[story]))):
        causes.setdefault(_heading(story, sorted(inputs[story])), []).append(story)
    for heading, stories in causes.items():
        lines.append(heading)
        for story in stories[:_STORIES]:
            lines.append(f"  {story.kind} {story.at}: {story.words}")
            lines.append(f"    {_some(runs[story], 'run')}")
        if others := [name for story in stories[_STORIES:] for name in runs[story]]:
            lines.append(f"  and otherwise in {_some(others, 'run')}")
    return lines


def _gravity(difference: Difference) -> int:
    return GRAVEST_FIRST.index(difference.kind)


def _heading(story: Difference, rests_on: Sequence[str]) -> str:
    if story.kind == "DAMAGE":
        return "Damaged records:"
    if rests_on:
        return f"What follows from {_some(rests_on, 'input') if rests_on[1:] else rests_on[0]}:"
    return "No recorded input has moved; code of Tachograph, of a package or of an uncalled tool is another:"


def _some(names: Sequence[str], noun: str) -> str:
    """Return how many there are of some things, and the names of the first."""
    more = ", ..." if names[_NAMES:] else ""
    return f"{len(names)} {noun}{'s' if names[1:] else ''}: {', '.join(names[:_NAMES])}{more}"


def _hint(root: Path, path: str) -> str:
    """Return how to see what has changed in a file of a project."""
    file = root / _LINE.sub("", path)
    has_returns = file.is_file() and b"\r\n" in file.read_bytes()
    ends = " (its lines end with carriage returns)" if has_returns else ""
    # nothing of git is run: the configuration of a repository may start programs
    is_checkout = any((folder / ".git").exists() for folder in (root, *root.parents))
    return f"{ends}; git diff -- {shlex.quote(os.path.relpath(file))}" if is_checkout else ends
